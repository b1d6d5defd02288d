"""The log in memory and in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bot import errors
from bot.core import events, sqlite_log
from bot.core.event_log import EventLog, MemoryLog
from bot.core.events import Codec, Damaged
from bot.core.sqlite_log import SqliteLog
from bot.system import SystemClock
from bot.testing.log import MemoryLog as Lines
from tests.contracts.event_log import ONE, OTHER, EventLogContract, entry, received


class TestMemoryLog(EventLogContract):
    @pytest.fixture
    def place(self) -> Any:
        return MemoryLog()

    @asynccontextmanager
    async def opened(self, place: Any) -> AsyncIterator[EventLog]:
        yield place


@asynccontextmanager
async def opened(folder: Path, lines: Lines | None = None) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(folder / "shipmate.db", Codec(), clock=SystemClock(), log=lines or Lines())
    async with closing_log(log):
        yield log


@asynccontextmanager
async def closing_log(log: SqliteLog) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await log.close()


class TestSqliteLog(EventLogContract):
    def opened(self, place: Any) -> Any:
        return opened(place)


async def test_a_disk_that_refuses_confirms_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines()
    monkeypatch.setattr(sqlite_log, "PRAGMAS", ("journal_mode = wal", "busy_timeout = 0"))
    monkeypatch.setattr(sqlite_log, "RETRY_SECONDS", 0.01)
    async with opened(tmp_path, lines) as log:
        log.append([entry(1, received())])
        await log.committed()
        other = sqlite3.connect(tmp_path / "shipmate.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        log.append([entry(2, received("k2"))])
        with pytest.raises(errors.StorageError):
            await log.committed(patient=False)
        patient = asyncio.ensure_future(log.committed())
        with pytest.raises(errors.StorageError):
            await log.committed(patient=False)
        assert not patient.done()
        assert log.trouble
        other.close()
        await patient
        assert not log.trouble
        assert [one.seq for one in await log.read(ONE)] == [1, 2]
    assert [one.level for one in lines.of("storage")] == ["error", "info"]


async def test_a_chat_that_another_process_has_written_stops_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append([entry(1, received())])
        await log.committed()
        log.append([entry(1, events.Closed("x"), name="another"), entry(1, events.Closed("y"), OTHER)])
        await log.committed()
        assert [one.id for one in await log.read(OTHER)] == [f"{OTHER}-1"]


async def test_what_no_database_takes_is_lost_alone_and_operators_are_told(tmp_path: Path) -> None:
    lines, told = Lines(), list[str]()
    log = SqliteLog(
        tmp_path / "shipmate.db",
        Codec(),
        clock=SystemClock(),
        log=lines,
        alert=lambda subject, words: told.append(f"{subject}: {words}"),
    )
    async with closing_log(log):
        bad: Any = events.FactSet("kind", "key", cast("Any", object()))
        fact = entry(2, events.FactSet("kind", "key", {}))
        log.append([entry(1, received())])
        log.append([replace(fact, event=replace(fact.event, data=bad))])
        log.append([entry(3, events.Closed("r-k1"))])
        log.append([entry(1, events.Closed("x"), OTHER)])
        await asyncio.wait_for(log.committed(), 60)
        assert [one.seq for one in await log.read(ONE)] == [1, 3]
        assert [one.seq for one in await log.read(OTHER)] == [1]
    assert [one.chat_key for one in lines.of("storage")] == [ONE]
    assert [str(ONE) in one for one in told] == [True]


async def test_an_event_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append([entry(1, received()), entry(2, events.Closed("r-k1")), entry(3, events.Closed("r-k2"))])
        await log.committed()
    with closing(sqlite3.connect(tmp_path / "shipmate.db")) as db:
        db.execute("UPDATE events SET kind = 'of the future' WHERE seq = 1")
        db.execute("UPDATE events SET data = '{' WHERE seq = 2")
        db.commit()
    async with opened(tmp_path) as log:
        found = [one.data for one in await log.read(ONE)]
    assert found == [Damaged("of the future"), Damaged("closed"), events.Closed("r-k2")]


async def test_what_nobody_waits_for_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "LINGER", 0.0)
    written = asyncio.Event()
    async with opened(tmp_path) as log:
        log.watch(lambda _: written.set())
        log.append([entry(1, received())])
        await asyncio.wait_for(written.wait(), 60)
