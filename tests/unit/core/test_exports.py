"""The archive is an export of the log. After kills, deletion, torn files or refused writes, it has each line once."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Command, HistoryQuery, Inbound
from bot.core import events, exports
from bot.core.archive_files import ChatStore
from bot.core.event_log import Entry, Position
from bot.core.events import Event, EventData
from bot.core.exports import ArchiveExport, Export, Exporter
from bot.storage.jsonl import file_name
from bot.system import SystemClock, SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog as Lines
from tests.contracts.event_log import ONE, OTHER, received
from tests.memory_log import MemoryLog

KEEP = 4
"""Max lines of an archive file. If there are more, the older half moves to another file."""


class Chats:
    """Appends the events of invented conversations in two chats to a log."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.seqs = dict[ChatKey, int]()
        self.number = 0
        self.open = list[tuple[ChatKey, str]]()

    def append(self, *data: EventData, chat: ChatKey = ONE, turn: str = "r1") -> None:
        entries = list[Entry]()
        for one in data:
            seq = self.seqs[chat] = self.seqs.get(chat, 0) + 1
            entries.append(Entry(Event(f"{chat}-{seq}", chat, 1.5, one, turn, "7", seq), Position(0)))
        self.log.append(entries)
        self.log.write()

    def ask(self, chat: ChatKey = ONE) -> None:
        """Append a message and its answer of two parts. `send` delivers the answer."""
        self.number += 1
        turn, first = f"r{self.number}", f"r{self.number}/a/0"
        self.append(received(f"k{self.number}", f"question {self.number}"), chat=chat, turn=turn)
        self.append(
            events.Queued(first, {}, "answer"),
            events.Queued(f"{turn}/a/1", {}, "its rest", part_of=first),
            events.Queued(f"{turn}/n", {}, "a notice", "notice"),
            chat=chat,
            turn=turn,
        )
        self.open.append((chat, turn))

    def send(self) -> None:
        """Record the delivery of the oldest answer."""
        chat, turn = self.open.pop(0)
        for row in ("n", "a/0", "a/1"):
            self.append(events.RowEnded(f"{turn}/{row}", "sent", f"id-{row}"), chat=chat, turn=turn)


def texts(folder: Path) -> list[str]:
    """Return the texts in the archive's files. The texts of each chat are in order."""

    def order(path: Path) -> tuple[str, float]:
        name, _, number = path.stem.partition(".archive-")
        return name, float(number or "inf")

    files = sorted((folder / "chats").glob("*.jsonl"), key=order)
    return [json.loads(line)["text"] for file in files for line in file.read_text().splitlines()]


@asynccontextmanager
async def exporting(
    folder: Path, log: MemoryLog, disk: Any = None, lines: Lines | None = None
) -> AsyncIterator[ChatStore]:
    lines = lines or Lines()
    store = ChatStore(
        folder / "chats",
        disk=disk or SystemDisk(),
        log=lines,
        archive_after_lines=KEEP,
        flush=lambda: exporter.flush(),  # noqa: PLW0108 - it is made below
    )
    exporter = Exporter(ArchiveExport(store, log), log, clock=SystemClock(), log=lines)
    exporter.start()
    try:
        await exporter.flush()
        yield store
    finally:
        await exporter.close()


async def test_lines_are_words_of_people_and_delivered_answers(tmp_path: Path) -> None:
    log = MemoryLog()
    chats = Chats(log)
    chats.ask()
    async with exporting(tmp_path, log) as store:
        assert texts(tmp_path) == ["question 1"]
        chats.send()
        await store.flush()
        assert texts(tmp_path) == ["question 1", "answer\nits rest"]


async def test_killed_at_any_write_and_deleted_it_has_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(exports, "SYNC_SECONDS", 0.0)
    rng, log = random.Random(1), MemoryLog()
    chats = Chats(log)
    for life in range(120):
        disk, at = FaultyDisk(SystemDisk()), rng.randint(1, 20)
        disk.fail(Failure("write", at, when=rng.choice(["before", "torn", "after"])))
        disk.fail(Failure("write", at, times=None))  # this process cannot write any more
        async with exporting(tmp_path, log, disk):
            if rng.random() < 0.5:
                chats.ask(rng.choice([ONE, OTHER]))
            elif chats.open:
                chats.send()
        if life == 10:
            shutil.rmtree(tmp_path / "chats")
        elif life == 20:
            for file in (tmp_path / "chats").glob(f"{file_name(ONE)}.*"):
                file.unlink()
    async with exporting(tmp_path, log):
        pass
    async with exporting(tmp_path / "anew", log):
        pass
    assert texts(tmp_path) == texts(tmp_path / "anew")
    assert len(texts(tmp_path)) == 2 * chats.number - len(chats.open)


class Forgetful(Export):
    """An export whose output is lost during its first write."""

    name = "forgetful"

    def __init__(self, log: MemoryLog) -> None:
        self.exporter = Exporter(self, log, clock=SystemClock(), log=Lines())
        self.output = list[str]()
        self.lost = False

    async def cursor(self) -> int:
        return len(self.output)

    async def take(self, n: int, event: Event) -> None:
        del n
        self.output.append(event.id)

    async def write(self) -> None:
        if not self.lost:
            self.lost = True
            self.output.clear()
            self.exporter.rewrite()


async def test_output_that_is_lost_while_it_is_written_is_written_again() -> None:
    log = MemoryLog()
    Chats(log).ask()
    export = Forgetful(log)
    export.exporter.start()
    await export.exporter.flush()
    await export.exporter.close()
    assert export.output == [f"{ONE}-{seq}" for seq in range(1, 5)]


async def test_edits_replace_and_deletions_hide_what_was_said(tmp_path: Path) -> None:
    log = MemoryLog()
    chats = Chats(log)
    first = said("a1", "one")
    gone = said("m2", "never mind")
    chats.append(
        events.Received(first), events.Received(gone), events.TurnStarted(("r-m2",), "b"), turn="r-m2"
    )
    chats.append(events.Edited(said("a1", "deux", kind="edit", request_id="e1")))
    chats.append(events.Deleted(said("m2", "", kind="delete", request_id="d1")))
    chats.append(events.Deleted(said("m3", "", kind="delete", request_id="d2")))
    chats.append(events.Received(said("m3", "came late")))
    chats.append(events.Received(said("m4", "/new", command=Command(name="new"))))
    async with exporting(tmp_path, log) as store:
        page = await store.search(ONE, HistoryQuery())
        assert [line.text for line in page.lines] == ["deux"]
        (removal, late) = await store.removals(ONE)
    assert (removal.message_id, removal.meta) == (
        "m2",
        {"deleted": True, "requestId": "d1", "of": ["r-m2"], "ofRole": "user", "turns": ["r-m2"], "seq": 5},
    )
    assert late.message_id == "m3"


def said(name: str, words: str, **facts: Any) -> Inbound:
    update = {"message_id": name, "text": words, "keys": (name,), "request_id": f"r-{name}"} | facts
    return received().inbound.model_copy(update=update)
