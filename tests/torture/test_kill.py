"""The process is killed at random moments, and each message is answered once. `SEED=… make torture` repeats a run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.features import replay
from bot.features.replay import RecordedRequests
from bot.testing.anthropic_script import reply, tool_use
from bot.testing.clock import FakeClock
from bot.testing.slack import SlackServer
from bot.words import say
from tests.blackbox.conftest import ANN, World, eventually
from tests.torture import scene

REPEATED = f"{say('delivery.repeated')}\n\n"
GIVEN_UP = errors.ShipmateError().person

pytestmark = pytest.mark.torture
KILLS = int(os.environ.get("KILLS", "25"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    # Slack repeats events after 3 s, 60 s and 300 s. With its own clock this takes no real time.
    made.slack = SlackServer(clock=FakeClock())
    async with made:
        yield made


def answer(body: Any) -> Any:
    """Return the model's answer: a `chat_send` for each message since the last reply, then the end of the turn."""
    asked: list[str] = []
    for message in body["messages"]:
        words = [block["text"] for block in message["content"] if block["type"] == "text"]
        asked = (
            [] if message["role"] == "assistant" else asked + [w for w in words if w.startswith("message ")]
        )
    return reply(*(tool_use("chat_send", {"text": f"answer to {words}"}) for words in asked))


def plain(text: str) -> str:
    return text.removeprefix(REPEATED)


async def test_killed_at_random_moments_it_answers_every_message_once(world: World) -> None:
    seed = scene.seed()
    rng = random.Random(seed)
    world.model.script(answer)
    await world.start()
    said: list[str] = []
    slack: list[str] = []
    for number in range(KILLS):
        words = f"message {number}"
        if rng.random() < 0.5:
            world.telegram.say(words)
            said.append(words)
        else:
            await world.slack.say(words, channel="D0ANN", user=ANN)
            slack.append(words)
        await asyncio.sleep(rng.random() * 0.12)  # the moment of the kill is random
        await world.process.kill()
        await world.start()
    while world.slack.unacked():
        await world.slack.clock.advance(301)  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
    given_up: set[str] = set()

    def heard() -> bool:
        given_up.update(in_vain(world))
        texts = [*map(plain, world.texts()), *(one.text for one in world.slack.replies("D0ANN"))]
        return {f"answer to {words}" for words in {*said, *slack} - given_up} <= set(texts)

    await eventually(heard)
    await asyncio.sleep(1)  # a wrong second answer would arrive during this pause
    assert not given_up.intersection(said) or GIVEN_UP in map(plain, world.texts()), f"SEED={seed}"
    answers = {f"answer to {words}" for words in said if words not in given_up}
    assert set(map(plain, world.texts())) - {GIVEN_UP} == answers, f"SEED={seed}"
    for words in answers:
        # Several kills may interrupt the same send, and each adds a marked repeat.
        shown = [text for text in world.texts() if plain(text) == words]
        scene.shown_once("telegram", words, shown, deaths=KILLS)
    there = Counter(one.text for one in world.slack.replies("D0ANN") if one.text != GIVEN_UP)
    assert there == Counter(f"answer to {words}" for words in slack if words not in given_up), f"SEED={seed}"
    await world.process.stop()
    lines = [line for line in world.archive() if line["role"] == "user"]
    assert Counter(line["text"] for line in lines) == Counter([*said, *slack])


async def test_killed_at_random_moments_every_record_is_a_request_that_was_sent(world: World) -> None:
    """A kill may lose records that are not written yet, and may leave one record of a request that was not sent."""
    seed = scene.seed()
    rng = random.Random(seed)
    world.only("telegram")
    world.model.script(answer)
    before = 0
    for number in range(KILLS):
        await world.start()
        world.telegram.say(f"message {number}")
        await asyncio.sleep(rng.random() * 0.2)  # the moment of the kill is random
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


def in_vain(world: World) -> set[str]:
    """Return the messages of turns that were started five times without progress. Their people are told that there is no
    answer.
    """
    ends = scene.rows(world.root, "SELECT turn, data FROM events WHERE kind = 'turn_ended'")
    failed = {turn for turn, data in ends if json.loads(data)["end"] == "failed"}
    taken = scene.rows(world.root, "SELECT turn, data FROM events WHERE kind IN ('turn_started', 'joined')")
    names = {name for turn, data in taken if turn in failed for name in json.loads(data)["members"]}
    received = scene.rows(world.root, "SELECT id, data FROM events WHERE kind = 'received'")
    return {json.loads(data)["inbound"]["text"] for name, data in received if name in names}


def recorded(world: World) -> list[tuple[str, str | None]]:
    """Return the bodies of all recorded requests, each with its fault."""
    turns = scene.rows(world.root, "SELECT DISTINCT turn FROM events WHERE turn IS NOT NULL")
    try:
        file = RecordedRequests(world.root / ".ship" / replay.FILE, readonly=True)
        with contextlib.closing(file):
            found = [one for (turn,) in turns for one in file.find(turn)]
    except sqlite3.OperationalError:  # the process was killed before it created the table
        return []
    return [(json.dumps(json.loads(one.body or b"null")), one.wrong) for one in found]
