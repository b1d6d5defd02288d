"""Killed at any moment, the recorded requests are those that were sent. `SEED=… make torture` repeats a run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
from collections import Counter
from typing import Any

import pytest

from bot.core import recorded_requests
from bot.core.recorded_requests import RecordedRequests
from bot.testing.anthropic_script import reply, tool_use
from bot.words import say
from tests.blackbox.conftest import World, eventually
from tests.torture import scene

REPEATED = f"{say('delivery.repeated')}\n\n"

pytestmark = pytest.mark.torture
KILLS = int(os.environ.get("KILLS", "25"))


def answer(body: Any) -> Any:
    """An answer through `chat_send` to each message since the last reply, then the end of the turn."""
    asked: list[str] = []
    for message in body["messages"]:
        words = [block["text"] for block in message["content"] if block["type"] == "text"]
        asked = (
            [] if message["role"] == "assistant" else asked + [w for w in words if w.startswith("message ")]
        )
    return reply(*(tool_use("chat_send", {"text": f"answer to {words}"}) for words in asked))


def plain(text: str) -> str:
    return text.removeprefix(REPEATED)


async def test_killed_at_random_moments_every_record_is_a_request_that_was_sent(world: World) -> None:
    """A kill costs the records that waited, nothing that was written before, and may leave one of what was about to be sent."""
    seed = scene.seed()
    rng = random.Random(seed)
    world.model.script(answer)
    before = 0
    for number in range(KILLS):
        await world.start("telegram")
        world.telegram.say(f"message {number}")
        await asyncio.sleep(rng.random() * 0.2)  # the moment of death is what is varied here
        await world.process.kill()
        found = recorded(world)
        assert {wrong for _, wrong in found} <= {None}, f"SEED={seed}"
        assert before <= len(found), f"SEED={seed}"
        before = len(found)
    await world.start()
    await eventually(
        lambda: {f"answer to message {n}" for n in range(KILLS)} == set(map(plain, world.texts()))
    )
    await world.process.stop()
    made = Counter(body for body, _ in recorded(world))
    sent = Counter(json.dumps(seen.body) for seen in world.model.requests)
    assert (made - sent).total() <= KILLS, f"SEED={seed}"
    assert made.total() >= sent.total() - KILLS, f"SEED={seed}"


def recorded(world: World) -> list[tuple[str, str | None]]:
    """The bodies of all requests on file, and what is wrong with each."""
    turns = scene.rows(world.root, "SELECT DISTINCT turn FROM events WHERE turn IS NOT NULL")
    try:
        file = RecordedRequests(world.root / ".ship" / recorded_requests.FILE, readonly=True)
        with contextlib.closing(file):
            found = [one for (turn,) in turns for one in file.find(turn)]
    except sqlite3.OperationalError:  # killed before it was made
        return []
    return [(json.dumps(json.loads(one.body or b"null")), one.wrong) for one in found]
