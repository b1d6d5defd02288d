"""A network that cuts, half-closes, stops or delays connections. Each message is answered, or its person is told, and
every repeat is marked. `MESSAGES=… SEED=… make torture` repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot.testing.telegram import refusal
from tests.torture import chaotic, scene
from tests.torture.chaotic import PEOPLE, Net, net

REPEATED = scene.REPEATS

MESSAGES = int(os.environ.get("MESSAGES", "1000"))
CHANCE = 0.01
"""Probability that a connection breaks at a piece of data. About one message in twelve is affected."""
LONGEST = {"telegram": 60.0, "slack": 420.0}
"""Max seconds after the network has recovered until everything is answered. Slack repeats an unconfirmed event at once, after one
minute and after five.
"""


async def conversation(net: Net, channel: str, person: int, rounds: int) -> None:
    """Let a person ask several questions, each after the answer to the previous one."""
    for _ in range(rounds):
        question, began = await net.ask(channel, person), net.clock.monotonic()
        while not (shown := net.shown(question)) and not net.given_up(question):  # noqa: ASYNC110 - two servers have an event each
            await asyncio.sleep(0.02)
        if shown:
            net.waited[question] = began, net.clock.monotonic()


async def storm(root: Path, rng: random.Random, channels: tuple[str, ...], messages: int, kills: int) -> None:
    """Send messages through a bad network, and kill the gateway meanwhile."""
    rounds = messages // PEOPLE
    async with net(root, rng, *channels) as world:
        life, given_up = await world.start(), list[str]()
        await world.ask(channels[0], 0)
        # On a busy machine each answer also waits for the processor, so the limit is longer.
        longest = max(LONGEST[channel] for channel in channels) + PEOPLE * await world.until_answered()
        for proxy in world.proxies.values():
            proxy.chance = CHANCE
        people = [
            asyncio.create_task(conversation(world, channels[person % len(channels)], person, rounds))
            for person in range(PEOPLE)
        ]
        try:
            for number in range(kills):
                goal = (number + 1) * messages // (kills + 1)
                while world.number < goal:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                await life.process.kill()
                life = await world.start()
            await asyncio.wait(people, timeout=messages / 10)
            world.heal()
            healed = world.clock.monotonic()
            await asyncio.wait(people, timeout=3 * longest / chaotic.SPEED)
            await asyncio.gather(*(one for one in people if one.done()))
            for question in world.silent():
                # A start takes a minute of the fast clock. All of Slack's repeats may come while the gateway starts.
                assert world.given_up(question), f"nothing was said to {question}"
                assert not world.taken_in(question), f"{question} was taken in, and nothing said to it"
                given_up.append(question)
                del world.asked[question]
        finally:
            for task in people:
                task.cancel()
            await asyncio.gather(*people, return_exceptions=True)
        await scene.until_quiet(root)
        repeats = world.honest()
        took = max(ended - max(began, healed) for began, ended in world.waited.values())
        struck = sum((proxy.struck for proxy in world.proxies.values()), Counter[str]())
        scene.tell(
            f"chaos SEED={os.environ['SEED']} {'+'.join(channels)}: {len(world.asked)} messages, {kills} kills, "
            f"{dict(struck)}; by number of marked repeats {dict(sorted(repeats.items()))}; {len(given_up)} given up by "
            f"Slack; the last answer {max(0.0, took):.0f} s after it was asked and the network well"
        )
        assert took < longest
        assert world.number == rounds * PEOPLE + 1
        assert sum(struck.values()) > messages // 50, "the network was not that bad"
        assert sum(count * number for count, number in repeats.items()) <= messages // 5 + kills * PEOPLE
        await life.end()


@pytest.mark.torture
@pytest.mark.parametrize("channel", ["telegram", "slack"])
async def test_through_a_bad_network_and_a_kill_every_message_is_answered(
    channel: str, tmp_path: Path
) -> None:
    await storm(tmp_path, random.Random(scene.seed()), (channel,), 4 * PEOPLE, 1)


@pytest.mark.torture
@pytest.mark.parametrize("channels", [("telegram",), ("slack",), ("telegram", "slack")])
async def test_a_thousand_messages_through_a_bad_network_and_kills(
    channels: tuple[str, ...], tmp_path: Path
) -> None:
    await storm(tmp_path, random.Random(scene.seed()), channels, MESSAGES, 10)


@pytest.mark.torture
@pytest.mark.parametrize("answers_only", [False, True])
async def test_what_is_due_while_everything_is_deaf_for_forty_seconds_comes_after_it(
    answers_only: bool, tmp_path: Path
) -> None:
    async with net(tmp_path, random.Random(scene.seed()), "telegram") as world:
        gate = asyncio.Event()

        async def slow(body: Any) -> Any:
            await gate.wait()
            return chaotic.script(body)

        life = await world.start()
        await world.ask("telegram", PEOPLE)
        usual = await world.until_answered()
        world.world.model.script(slow)
        for person in range(20):
            await world.ask("telegram", person)
        await world.world.model.until(lambda: world.world.model.active == 20)
        gate.set()
        await world.deaf(40, answers_only=answers_only)
        assert await world.until_answered() < 60 + 10 * usual
        await scene.until_quiet(tmp_path)
        repeats = world.honest()
        # A send that was lost is repeated once. A send that arrived without its response is repeated once more.
        assert max(repeats) == (1 if answers_only else 0), repeats
        await life.end()


@pytest.mark.torture
async def test_connections_that_died_while_they_were_idle_are_not_used(tmp_path: Path) -> None:
    async with net(tmp_path, random.Random(scene.seed()), "telegram") as world:
        life = await world.start()
        for person in range(4):
            await world.ask("telegram", person)
        usual = await world.until_answered()
        for _ in range(3):
            await world.clock.sleep(5)  # longer than an idle connection may live
            world.proxies["telegram"].strand()
            for person in range(4):
                await world.ask("telegram", person)
            # The open poll is also dead. The gateway gives it up after 15 s.
            assert await world.until_answered() < 30 + 10 * usual
        assert world.honest() == {0: 16}, "nothing was sent into the void"
        await life.end()


async def test_a_repeat_goes_over_a_new_connection_that_has_just_answered(tmp_path: Path) -> None:
    async with net(tmp_path, random.Random(scene.seed()), "telegram") as world:
        world.world.config["channels"]["telegram"]["streaming"] = {"enabled": False}
        life = await world.start()
        server = world.world.telegram
        server.fail("sendMessage", times=3, action="lose")
        server.fail("getMe", times=2, action="hang")
        question = await world.ask("telegram", 0)
        await server.until(lambda: len(world.shown(question)) == 4)
        await scene.until_quiet(tmp_path)
        first, *more = world.shown(question)
        assert not first.startswith(REPEATED)
        assert [text.startswith(REPEATED) for text in more] == [True] * 3
        methods = [call.method for call in server.calls if call.method in {"getMe", "sendMessage"}]
        asked = methods[methods.index("sendMessage") + 1 :]
        assert asked.count("getMe") >= 5, "two did not answer"
        assert all(asked[at - 1] == "getMe" for at, name in enumerate(asked) if name == "sendMessage")
        await life.end()


@pytest.mark.torture
async def test_after_a_conflict_a_bad_gateway_and_a_poll_that_hangs_telegram_is_heard_within_seconds(
    tmp_path: Path,
) -> None:
    async with net(tmp_path, random.Random(scene.seed()), "telegram") as world:
        life = await world.start()
        server = world.world.telegram
        await world.ask("telegram", 0)
        usual = await world.until_answered()
        conflict = refusal(409, "Conflict: terminated by other getUpdates request")
        for fault in (conflict, {"status": 502, "body": "<html>Bad Gateway</html>"}):
            server.fail("getUpdates", times=12, **fault)
        server.fail("getUpdates", action="hang")
        server.cut_polls()
        await world.ask("telegram", 1)
        await server.until(lambda: not server.faults)
        assert await world.until_answered() < 20 + 10 * usual
        await life.end()
