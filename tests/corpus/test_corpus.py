"""Journals that other versions left with work in every state: this one opens them, migrates them and finishes the work.

`journals/VERSION/NAME` holds what `stage` wrote; `expected.json` says what that is and what has to come of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.contracts import Json
from tests.corpus.make import JOURNALS
from tests.corpus.stage import ANN, Stage, staged
from tests.torture import scene
from tests.torture.inside import quick_ends

QUIET = 6
CORPUS = sorted(path.parent for path in JOURNALS.glob("*/*/expected.json"))


@pytest.mark.parametrize("folder", CORPUS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
async def test_unfinished_work_that_another_version_left_is_finished(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    known = json.loads((folder / "platform.json").read_text("utf-8"))
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    async with staged(tmp_path, known["settings"], known["now"] + expected["down"]) as stage:
        stage.take_up(known)
        stage.read(folder)
        await stage.start()
        for payload in known["slack"]["unconfirmed"]:
            await stage.slack.envelope(payload)
        for act in expected["then"]:
            await _done(stage, act)

        async def over() -> bool:
            stage.clock.advance(1.0)
            return not scene.unfinished(tmp_path) and not _wrong(stage, expected["shown"])

        with contextlib.suppress(TimeoutError):  # what is missing is told below
            await scene.eventually_so(over, 4)
        for _ in range(QUIET):  # nothing comes after it
            stage.clock.advance(5.0)
            await asyncio.sleep(0.01)
        await stage.end()
        assert not _wrong(stage, expected["shown"]), expected["story"]
        assert not scene.unfinished(tmp_path), expected["story"]
        assert len(stage.world.model.requests) == expected["model"]
        assert not set(expected["hidden"]) & set(_read(stage)), expected["story"]
        complaints = [line["message"] for line in stage.world.log() if line["level"] == "error"]
        assert complaints == expected["complaints"]
        said = Counter((line["role"], line["text"]) for line in stage.world.archive())
        assert set(said.values()) <= {1}, said


async def _done(stage: Stage, act: Json) -> None:
    """What people do once the gateway runs again."""
    if "thread" in act:
        root = next(iter(stage.slack.world.rooms[act["thread"]].posts.values())).root
        await stage.slack.say(act["say"], channel=act["thread"], user=ANN, thread_ts=root)
    elif "press" in act:
        await stage.telegram.until(lambda: bool(stage.asked(act["chat"])))
        stage.press(act["chat"], stage.asked(act["chat"])[-1], act["by"])
    elif "pass" in act:
        stage.clock.advance(act["pass"])
    elif "say" in act:
        stage.telegram.say(act["say"], chat_id=act["chat"])


def _read(stage: Stage) -> Iterator[str]:
    """What the model was shown of what people said."""
    for body in stage.world.model.bodies:
        for message in body["messages"]:
            blocks = message["content"] if message["role"] == "user" else []
            yield from (block["text"] for block in blocks if block["type"] == "text")


def _wrong(stage: Stage, expected: Json) -> dict[str, list[str]]:
    """The chats in which people see something else of the bot, and what that is."""
    shown = {str(chat): stage.world.texts(chat) for chat in stage.telegram.chats}
    for room in stage.slack.world.rooms:
        shown[room] = [seen.text for seen in stage.slack.replies(room)]
    return {chat: texts for chat, texts in shown.items() if not _as_said(texts, expected.get(chat, []))}


def _as_said(texts: list[str], expected: list[str | dict[str, str]]) -> bool:
    wanted = [
        (one, one, len(one)) if isinstance(one, str) else (one["begins"], one["ends"], len(text))
        for one, text in zip(expected, texts, strict=False)
    ]
    return len(texts) == len(expected) and all(
        text.startswith(begins) and text.endswith(ends) and len(text) == length
        for text, (begins, ends, length) in zip(texts, wanted, strict=True)
    )
