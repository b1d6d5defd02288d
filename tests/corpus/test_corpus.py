"""A new process imports folders in which a process of version 0.1 left unfinished work, and finishes that work. Each
folder `journals/VERSION/NAME` has an `expected.json`, which describes the folder and the expected outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.contracts.base import Json
from bot.core.chat import Chat
from bot.core.events import Remembered, decode
from bot.importing import import_ship
from tests.blackbox.conftest import eventually
from tests.corpus.stage import ANN, Stage, staged
from tests.torture import scene
from tests.torture.inside import quick_ends

LONGEST = 90.0
"""Timeout in real seconds for unfinished work. The work takes less than one second."""
TICK = 0.3
"""Seconds by which the clock moves between two checks. On a slow machine, larger steps would make a platform look
silent."""
QUIET = 6
STEP = 15.0
"""Max seconds between two polls. The value is longer than a poll, and a third of the silence that Shipmate reports."""
JOURNALS = Path(__file__).parent / "journals"
CORPUS = sorted(path.parent for path in JOURNALS.glob("*/*/journal.sql"))


@pytest.mark.parametrize("folder", CORPUS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
async def test_unfinished_work_that_was_left_is_finished(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    await finished(folder, tmp_path)
    assert (tmp_path / ".ship" / "before-0.2" / "journal.db").exists()


def unfinished(root: Path) -> list[str]:
    """Return the chats with unfinished work."""
    with contextlib.closing(sqlite3.connect(root / ".ship" / "shipmate.db", timeout=5)) as db:
        return [chat for (chat,) in db.execute("SELECT chat FROM chats WHERE open IS NOT NULL")]


async def finished(folder: Path, root: Path) -> None:
    """Start on the restored folder, and check the outcome."""
    known = json.loads((folder / "platform.json").read_text("utf-8"))
    after = json.loads((folder / "expected.json").read_text("utf-8"))
    async with staged(root, known["settings"], known["now"] + after["down"]) as stage:
        stage.take_up(known)
        stage.read(folder)
        await stage.start()
        for payload in known["slack"]["unconfirmed"]:
            await stage.slack.envelope(payload)
        for act in after["then"]:
            await _done(stage, act)

        async def over() -> bool:
            stage.clock.advance(TICK)
            return not unfinished(root) and not _wrong(stage, after["shown"])

        with contextlib.suppress(TimeoutError):  # missing messages are reported below
            await scene.eventually_so(over, LONGEST)
        await _quiet(stage)  # check that no further message arrives
        await stage.end()
        assert not _wrong(stage, after["shown"]), after["story"]
        assert not unfinished(root), after["story"]
        assert len(stage.world.model.requests) == after["model"]
        assert not set(after["hidden"]) & set(_read(stage)), after["story"]
        complaints = [line["message"] for line in stage.world.log() if line["level"] == "error"]
        assert not complaints
        lines = [(line["role"], line["text"], line.get("meta") or {}) for line in stage.world.archive()]
        said = Counter((role, text, meta.get("requestId"), meta.get("ofRole")) for role, text, meta in lines)
        assert set(said.values()) <= {1}, said


async def _done(stage: Stage, act: Json) -> None:
    """Perform the actions of people after the start."""
    if "thread" in act:
        root = next(iter(stage.slack.world.rooms[act["thread"]].posts.values())).root
        await stage.slack.say(act["say"], channel=act["thread"], user=ANN, thread_ts=root)
    elif "press" in act:
        await stage.telegram.until(lambda: bool(stage.asked(act["chat"])))
        stage.press(act["chat"], stage.asked(act["chat"])[-1], act["by"])
    elif "still" in act:
        await _quiet(stage)
        assert not _wrong(stage, act["still"])
    elif "pass" in act:
        await _pass(stage, act["pass"])
    elif "say" in act:
        stage.telegram.say(act["say"], chat_id=act["chat"])


async def _pass(stage: Stage, seconds: float) -> None:
    """Move the clock in steps. Telegram is polled in each step, because its silence would be reported. More than ten
    minutes pass in one step, as on a suspended machine.
    """
    left = min(seconds, 600.0)
    stage.clock.jump(seconds - left)
    while left > 0:
        await eventually(lambda: bool(stage.telegram.polls))
        before = _polls(stage)
        stage.clock.advance(min(left, STEP))
        left -= STEP
        await eventually(lambda before=before: _polls(stage) > before)  # type: ignore[misc]


def _polls(stage: Stage) -> int:
    return sum(call.method == "getUpdates" for call in stage.telegram.calls)


async def _quiet(stage: Stage) -> None:
    """Move the clock by half a minute."""
    for _ in range(QUIET):
        stage.clock.advance(5.0)
        await asyncio.sleep(0.01)


def _read(stage: Stage) -> Iterator[str]:
    """Yield the people's texts that the model received."""
    for body in stage.world.model.bodies:
        for message in body["messages"]:
            blocks = message["content"] if message["role"] == "user" else []
            yield from (block["text"] for block in blocks if block["type"] == "text")


def _wrong(stage: Stage, expected: Json) -> dict[str, list[str]]:
    """Return the chats in which people see other messages of the bot than expected, and these messages."""
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


async def test_what_0_1_has_left_is_kept_until_a_process_has_ended_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    backup = tmp_path / ".ship" / "before-0.2"
    async with staged(tmp_path, {}) as stage:
        stage.read(JOURNALS / "17" / "inbound-answered-not-closed")
        with monkeypatch.context() as patch:  # the first start fails after the import
            patch.setattr("bot.lifecycle.connect_all", None)
            with pytest.raises(TypeError):
                await stage.start()
        for kept in (True, False):
            assert (backup / "journal.db").exists()
            await stage.start()
            assert backup.exists() == kept
            await stage.end()
        assert [line["message"] for line in stage.world.log() if "before-0.2" in line["message"]] == [
            "the .ship of 0.1 is imported, and kept in before-0.2",
            "before-0.2, the .ship of 0.1, is removed",
        ]


@pytest.mark.parametrize("name", ["approval-waits", "inbound-merged", "job-planned-abroad"])
async def test_an_import_that_is_cut_off_anywhere_is_made_again_with_the_same_events(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, results = Path.replace, list[list[tuple[str, ...]]]()
    for dies_at in range(100):
        left, root = [dies_at], tmp_path / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()

        def replace(source: Path, target: Path, left: list[int] = left) -> Path:
            left[0] -= 1
            if left[0] == 0:
                raise OSError("killed")
            return rename(source, target)

        async with staged(root, {}) as stage:
            stage.read(JOURNALS / "17" / name)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            with contextlib.suppress(OSError):
                _import(root / ".ship")
        _import(root / ".ship")
        with contextlib.closing(sqlite3.connect(root / ".ship" / "shipmate.db")) as db:
            tables = ("events", "keys", "facts", "chats")
            results.append([row for one in tables for row in db.execute(f"SELECT * FROM {one}")])
        assert (root / ".ship" / "before-0.2" / "journal.db").exists()
        if left[0] > 0:
            break
    assert len(results) > 4
    assert all(one == results[0] for one in results)


async def test_what_was_remembered_of_a_chat_is_remembered(tmp_path: Path) -> None:
    async with staged(tmp_path, {}) as stage:
        stage.read(JOURNALS / "17" / "inbound-asked")
    home, words = tmp_path / ".ship", "## Facts\n- allergic to 落花生\n"
    folder = home / "memory" / "telegram%3Achat%3A3001"
    folder.mkdir(parents=True)
    (folder / "session.md").write_text(words, encoding="utf-8")
    (folder / "covers.json").write_text(json.dumps({"covers": "u", "origin": ["3001"]}), encoding="utf-8")
    _import(home)
    with contextlib.closing(sqlite3.connect(home / "shipmate.db")) as db:
        ((raw,),) = db.execute("SELECT data FROM events WHERE kind = 'remembered'")
    assert decode("remembered", raw) == Remembered(words, None, ["3001"])


def _import(home: Path) -> None:
    import_ship(
        home,
        Chat,
        needs_turn=lambda one: one.kind == "message",
        is_operator=lambda _: False,
    )
