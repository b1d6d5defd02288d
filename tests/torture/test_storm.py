"""Many faults of the model and the platforms at once. Within a minute after the last fault, everybody who wrote has an
answer, or was told that there is none. `SEED=… make torture` repeats a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.base import Json
from bot.testing.anthropic_script import Answer, Failure, Frame, Halt, Reply, reply, tool_use
from bot.testing.loopback import Fault
from bot.testing.telegram import refusal
from tests.torture import chaotic, scene
from tests.torture.chaotic import Net, net

STORM = float(os.environ.get("STORM", "180"))
"""Duration of the faults in seconds."""
EVERY = 0.3
"""Seconds between two messages."""
WITHIN = 90.0
"""Timeout in seconds after the last fault, within which everybody gets a message. A silent model is given up after sixty
seconds."""
CHATS = 24

PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "telegram": ("getUpdates", "sendMessage", "sendMessage", "editMessageText", "sendChatAction", "getMe"),
    "slack": (
        "chat.postMessage",
        "chat.postMessage",
        "chat.update",
        "conversations.history",
        "apps.connections.open",
    ),
}


def model_fault(rng: random.Random, whole: Reply) -> Answer:
    """Return a fault of the model in place of an answer."""
    kind = rng.choice(("busy", "limited", "broken", "stalls", "gone", "page"))
    match kind:
        case "busy":
            return Failure(
                529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            )
        case "limited":
            body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
            return Failure(429, body, {"retry-after": str(rng.choice((1, 5, 15, 40)))})
        case "gone" | "page":
            return Failure(
                502 if kind == "gone" else 500, "<html>Bad Gateway</html>", content_type="text/html"
            )
    halt = Halt.CUT if kind == "broken" else Halt.STALL

    def cut(frames: list[Frame]) -> list[Frame]:
        return [*frames[: rng.randrange(1, len(frames))], halt]

    return Reply(whole.blocks, edit=cut)


def platform_fault(rng: random.Random, channel: str) -> Fault:
    method = rng.choice(PLATFORMS[channel])
    times = rng.randint(1, 12)
    kind = rng.choice(("respond", "respond", "limited", "lose", "cut", "hang"))
    if kind == "limited":
        wait = rng.choice((1, 3, 10, 35))
        if channel == "slack":
            return Fault(
                method,
                status=429,
                headers={"Retry-After": str(wait)},
                body={"ok": False, "error": "ratelimited"},
                times=times,
            )
        return Fault(method, times=times, **refusal(429, "Too Many Requests", retry_after=wait))
    if kind != "respond":
        return Fault(method, action=kind, times=1 if kind == "hang" else times)  # type: ignore[arg-type]
    if channel == "telegram" and method == "getUpdates" and rng.random() < 0.5:
        return Fault(method, times=times, **refusal(409, "Conflict: terminated by other getUpdates request"))
    return Fault(method, status=502, body="<html>Bad Gateway</html>", times=times)


def script(body: Json) -> Reply:
    """Return the model's answer to all unanswered messages, every other time by `chat_send`."""
    said = json.dumps([one for one in body["messages"] if one["role"] == "assistant"], ensure_ascii=False)
    asked = [
        block["text"]
        for one in body["messages"]
        if one["role"] == "user" and not isinstance(one["content"], str)
        for block in one["content"]
        if block["type"] == "text" and block["text"].startswith("q")
    ]
    left = [question for question in asked if chaotic.answered(question) not in said]
    if not left:
        return reply("")
    if sum(map(ord, left[-1])) % 2:
        return reply(tool_use("chat_send", {"text": "\n".join(map(chaotic.answered, left))}))
    return reply("\n".join(map(chaotic.answered, left)))


class Storm:
    """Faults of model and platforms during the storm."""

    def __init__(self, world: Net, rng: random.Random, channels: tuple[str, ...]) -> None:
        self.world, self.rng, self.channels = world, rng, channels
        self.blows = True
        self.struck: Counter[str] = Counter()
        world.world.model.script(self.answer)

    @property
    def servers(self) -> dict[str, Any]:
        return {"telegram": self.world.world.telegram, "slack": self.world.world.slack}

    @property
    def bad(self) -> bool:
        """Return True while more than a tenth of all questions have no answer."""
        return len(self.world.silent()) > len(self.world.asked) // 10

    def answer(self, body: Json) -> Answer:
        whole = script(body)
        if not self.blows or self.rng.random() > 0.6:
            return whole
        self.struck["model"] += 1
        return model_fault(self.rng, whole)

    async def blow(self, seconds: float) -> None:
        """Run the storm for these seconds. If it is not bad by then, continue for at most as long again."""
        began = self.world.clock.monotonic()
        while (blown := self.world.clock.monotonic() - began) < seconds or (
            blown < 2 * seconds and not self.bad
        ):
            for channel in self.channels:
                server = self.servers[channel]
                if len(server.faults) < 6:
                    server.faults.append(platform_fault(self.rng, channel))
                    self.struck[channel] += 1
            await self.world.clock.sleep(0.5)
        self.blows = False
        for channel in self.channels:
            self.servers[channel].faults.clear()


def unheard(world: Net, questions: Iterable[str] = ()) -> list[str]:
    """Return the questions that are closed without an answer and without a notice."""
    root = world.world.root
    received = scene.rows(root, "SELECT id, data FROM events WHERE kind = 'received'")
    asked = {json.loads(data)["inbound"]["text"]: name for name, data in received}
    taken = scene.rows(root, "SELECT turn, data FROM events WHERE kind IN ('turn_started', 'joined')")
    turns = {name: turn for turn, data in taken for name in json.loads(data)["members"]}
    ended = scene.rows(root, "SELECT turn, data FROM events WHERE kind = 'row_ended'")
    rows = [(turn, json.loads(data)) for turn, data in ended]
    # The row id of a notice that ends a turn contains the turn's id.
    told = {turn for turn, row in rows if row["state"] == "sent" and row["row"].startswith(f"{turn}/end")}
    return [one for one in world.silent(questions) if turns.get(asked.get(one, "")) not in told]


async def storm(
    root: Path, rng: random.Random, channels: tuple[str, ...], seconds: float, speed: float
) -> None:
    async with net(root, rng, *channels, speed=speed) as world:
        world.world.config["delivery"] = {"limits": True}
        life = await world.start()
        blowing = Storm(world, rng, channels)
        wind = asyncio.create_task(blowing.blow(seconds))
        while not wind.done():
            person = rng.randrange(CHATS)
            await world.ask(channels[person % len(channels)], person)
            await world.clock.sleep(EVERY)
        await wind
        calm, open_then, bad = world.clock.monotonic(), len(world.silent()), blowing.bad
        while scene.unfinished(root) or unheard(world):
            since = world.clock.monotonic() - calm
            assert since < WITHIN, (scene.unfinished(root), unheard(world)[:20])
            await world.clock.sleep(1)
        took, silent = world.clock.monotonic() - calm, len(world.silent())
        repeats = world.repeats()
        scene.tell(
            f"storm SEED={os.environ['SEED']} {'+'.join(channels)}: {seconds:.0f} s, {dict(blowing.struck)} faults, "
            f"{len(world.asked)} messages, {open_then} of them without an answer at its end; {took:.0f} s later "
            f"{silent} told that there is none, all others answered; by number of marked repeats {dict(repeats)}"
        )
        assert bad, "the storm was not that bad"
        await life.end()


@pytest.mark.torture
async def test_after_a_storm_of_faults_everybody_hears_something_within_a_minute(tmp_path: Path) -> None:
    await storm(tmp_path, random.Random(scene.seed()), ("telegram", "slack"), 30, 4.0)


@pytest.mark.torture
@pytest.mark.parametrize("channels", [("telegram",), ("slack",), ("telegram", "slack")])
async def test_after_three_minutes_of_storm_everybody_hears_something_within_a_minute(
    channels: tuple[str, ...], tmp_path: Path
) -> None:
    await storm(tmp_path, random.Random(scene.seed()), channels, STORM, 4.0)


@pytest.mark.torture
async def test_after_minutes_of_refused_sends_what_may_not_have_arrived_is_repeated_within_one(
    tmp_path: Path,
) -> None:
    async with net(tmp_path, random.Random(scene.seed()), "telegram") as world:
        world.world.config["channels"]["telegram"]["streaming"] = {"enabled": False}
        life = await world.start()
        await world.ask("telegram", 4)
        usual = await world.until_answered()
        server = world.world.telegram
        server.fail("sendMessage", status=502, body="<html>Bad Gateway</html>", times=10_000)
        for person in range(4):
            await world.ask("telegram", person)
        await world.clock.sleep(150)
        assert len(world.silent()) == 4
        server.faults.clear()
        took = await world.until_answered()
        assert took < 75 + 10 * usual
        await scene.until_quiet(tmp_path)
        scene.tell(f"sends refused for 150 s: all answered {took:.0f} s later")
        assert world.honest() == {0: 5}
        await life.end()
