"""Each message is answered once over random stops and kills, cut connections and jumps of the clock."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot.system import SystemClock
from bot.testing.clock import SteeredClock
from tests.blackbox.conftest import World
from tests.shares import one_in
from tests.torture import scene
from tests.torture.inside import Inside, environment, quick_ends
from tests.torture.outside import Alone

HOUR, DAY = 3_600.0, 86_400.0
JUMPS = (HOUR, -HOUR, 30 * DAY, -30 * DAY, 8 * HOUR, -8 * HOUR, HOUR, -HOUR)
"""Clock changes in seconds: forward and back, as at changes of summer time, and as after a night of sleep of the
machine."""
STOP_SECONDS = 10.0


async def stopped(root: Path, rng: random.Random, times: int) -> None:
    """Send SIGTERM at random moments while messages arrive. The exit code must be 0 in time, and each message is
    answered once.
    """
    loop = asyncio.get_running_loop()
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, "telegram", str)
        questions = []
        for number in range(times):
            life = await Alone(world).start()
            questions.append(scene.WORDS.format(number))
            await side.say(questions[-1])
            await asyncio.sleep(rng.random() * rng.choice([0.01, 0.1, 0.5]))  # the moment is random
            began = loop.time()
            await life.end()
            assert loop.time() - began < STOP_SECONDS
        life = await Alone(world).start()
        await scene.until_answered(side, *questions)
        await scene.until_quiet(root)
        await life.end()
        for words in questions:
            assert await side.replies(words) == [scene.answered(words)]
        scene.on_file_once(world, *questions)


async def test_a_stop_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    await stopped(tmp_path, random.Random(11), 3)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(4))
async def test_fifty_stops_of_two_hundred(part: int, tmp_path: Path) -> None:
    await stopped(tmp_path, random.Random(scene.seed() + part), 50)


async def in_flight(root: Path, count: int, *, soon: float = 5) -> None:
    """Kill the process while `count` chats wait for the model. After a restart each chat must be answered once within
    `soon` seconds.
    """
    loop = asyncio.get_running_loop()
    async with scene.new_world(root) as world:
        await scene.prepare(world, "telegram", str)
        world.config["channels"]["telegram"]["allow"] = ["*"]
        gate = asyncio.Event()

        async def slow(body: Any) -> Any:
            await gate.wait()
            return scene.script(body)

        world.model.script(slow)
        life = await Alone(world).start()
        asked = {2_000 + number: scene.WORDS.format(number) for number in range(count)}
        for chat_id, words in asked.items():
            world.telegram.say(words, chat_id=chat_id)
        await world.model.until(lambda: world.model.active == count)
        await life.process.kill()
        gate.set()
        life = await Alone(world).start()
        began = loop.time()
        await world.telegram.until(lambda: all(world.texts(chat_id) for chat_id in asked))
        assert loop.time() - began < soon
        await scene.until_quiet(root)
        await life.end()
        shown = {chat_id: world.texts(chat_id) for chat_id in asked}
        assert shown == {chat_id: [scene.answered(words)] for chat_id, words in asked.items()}
        scene.on_file_once(world, *asked.values(), deaths=1)


async def test_twenty_messages_in_flight_are_answered_once_and_soon(tmp_path: Path) -> None:
    await in_flight(tmp_path, 20, soon=20)  # the limit is higher, since other tests run at the same time


@pytest.mark.torture
async def test_fifty_messages_in_flight_are_answered_within_five_seconds(tmp_path: Path) -> None:
    await in_flight(tmp_path, 50)


async def cut_off(root: Path, channel: str, messages: int, clock: SteeredClock) -> None:
    """Cut the connection at every message, before or after it."""
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, channel, str)
        life = Inside(world, clock=clock)
        with environment(world):
            await life.start()
            questions = [scene.WORDS.format(number) for number in range(messages)]
            for number, words in enumerate(questions):
                if number % 2:
                    await _cut(world, channel)
                await side.say(words)
                if not number % 2:
                    await _cut(world, channel)

                async def all_answered(words: str = words) -> bool:
                    clock.advance(1.0)
                    await side.bring_again()
                    return bool(await side.replies(words))

                await scene.eventually_so(all_answered)
            await scene.until_quiet(root)
            await life.end()
            for words in questions:
                assert await side.replies(words) == [scene.answered(words)]
        scene.on_file_once(world, *questions)


async def _cut(world: World, channel: str) -> None:
    if channel == "slack":
        await world.slack.cut_sockets()
        return
    world.telegram.fail("getUpdates", action="cut")


@pytest.mark.parametrize("channel", one_in(2, ["telegram", "slack"]))
async def test_with_its_sockets_cut_at_every_message_it_answers_each_once(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    await cut_off(tmp_path, channel, 6, SteeredClock(SystemClock()))


@pytest.mark.torture
@pytest.mark.parametrize("channel", ["telegram", "slack"])
async def test_with_its_sockets_cut_for_three_hundred_messages(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    await cut_off(tmp_path, channel, 300, SteeredClock(SystemClock()))


async def jumped(
    world: World, side: scene.Side, jump: Callable[[float], Any], jumps: Sequence[float], began: str
) -> list[str]:
    """Let the clock jump while a turn runs. That turn and the next one must be answered."""
    gate = asyncio.Event()
    questions = []

    async def slow(body: Any) -> Any:
        await gate.wait()
        return scene.script(body)

    world.model.script(slow)
    for number, seconds in enumerate(jumps):
        gate.clear()
        running, after = (scene.WORDS.format(f"{began} {number} {part}") for part in ("running", "after"))
        asked = len(world.model.requests)
        await side.say(running)
        await world.model.until(lambda asked=asked: len(world.model.requests) > asked)  # type: ignore[misc]
        await jump(seconds)
        gate.set()
        await scene.until_answered(side, running)
        await side.say(after)
        await scene.until_answered(side, after)
        questions += [running, after]
    await scene.until_quiet(world.root)
    for words in questions:
        assert await side.replies(words) == [scene.answered(words)]
    return questions


@pytest.mark.parametrize("channel", one_in(2, ["slack", "telegram"]))
async def test_a_clock_that_jumps_while_turns_run_costs_and_doubles_nothing(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    clock = SteeredClock(SystemClock())

    async def jump(seconds: float) -> None:
        clock.jump(seconds)

    async with scene.new_world(tmp_path) as world:
        side = await scene.prepare(world, channel, str)
        with environment(world):
            life = await Inside(world, clock=clock).start()
            questions = await jumped(world, side, jump, JUMPS[:5], "one")
            await life.end()
            clock.jump(-30 * DAY)  # the clock is set back while no process runs
            life = await Inside(world, clock=clock).start()
            questions += await jumped(world, side, jump, JUMPS[5:], "two")
            await life.end()
        scene.on_file_once(world, *questions)


@pytest.mark.torture
async def test_a_process_whose_clock_jumps(tmp_path: Path) -> None:
    address = Path(tempfile.mkdtemp()) / "clock"  # the path of a socket must be short

    async def jump(seconds: float) -> None:
        reader, writer = await asyncio.open_unix_connection(address)
        writer.write(json.dumps({"jump": seconds}).encode() + b"\n")
        await reader.readline()
        writer.close()

    async with scene.new_world(tmp_path) as world:
        side = await scene.prepare(world, "telegram", str)
        life = await Alone(world, options=["--clock", str(address)]).start()
        questions = await jumped(world, side, jump, JUMPS, "one")
        await life.end()
        scene.on_file_once(world, *questions)


SYSTEM_CALLS = ("write", "pwrite64", "fdatasync", "fsync", "rename", "sendto")


def untraceable() -> str:
    """Return the reason why strace cannot be used here; "" if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-D", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "ptrace is not allowed here"


@pytest.mark.torture
@pytest.mark.parametrize("channel", ["telegram", "slack", "web"])
async def test_killed_at_real_system_calls(channel: str, tmp_path: Path) -> None:
    if why := untraceable():
        pytest.skip(why)
    rng = random.Random(scene.seed())
    killed = Counter[str]()
    for number in range(10):
        call = rng.choice(SYSTEM_CALLS)
        at = rng.randint(1, 12 if call in {"rename", "fsync"} else 40)
        try:
            killed[call] += await killed_at(tmp_path / str(number), channel, call, at)
        except (AssertionError, TimeoutError) as error:
            error.add_note(f"{channel}: {call} {at}")
            raise
    scene.tell(f"{channel}: killed at {dict(killed)}")


async def killed_at(root: Path, channel: str, call: str, at: int) -> bool:
    """Kill the process in the nth system call of a kind while it handles a message, and start it again. Return True if
    that call was reached.
    """
    root.mkdir()
    words = scene.WORDS.format(call)
    # `-D` detaches strace, so that the gateway is the child of this process and strace is not.
    strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    async with scene.new_world(root) as world:
        life = Alone(world, before=[*strace, "-e", f"inject={call}:signal=KILL:when={at}"])
        side = await scene.prepare(world, channel, lambda: life.address("web"))
        try:
            await life.start()
            await side.say(words)

            async def over() -> bool:
                await side.bring_again()
                return life.dead or (bool(await side.replies(words)) and not scene.unfinished(root))

            await scene.eventually_so(over)
            came = life.dead
            await life.process.kill()
            life = await Alone(world).start()
            await scene.until_answered(side, words)
            await scene.until_quiet(root)
            await scene.ready(world.session, life.dashboard)
            scene.exactly_once(channel, words, await side.replies(words))
            await life.end()
        finally:
            await scene.leave(side)
        scene.on_file_once(world, words, deaths=1)
    return came
