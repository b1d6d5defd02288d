"""The log in SQLite and in PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from bot import errors
from bot.core import event_log, events, sqlite_log
from bot.core.event_log import Entry, EventLog
from bot.core.events import Damaged
from bot.core.sqlite_log import FILE, SqliteLog
from bot.core.usage import By, UsageSums
from bot.system import SystemClock, SystemDisk
from bot.telemetry.usage import UsageTotals
from bot.testing.log import MemoryLog as Lines
from tests import postgres
from tests.contracts.event_log import ONE, OTHER, EventLogContract, entry, received


@asynccontextmanager
async def opened(folder: Path, lines: Lines | None = None) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(folder / "shipmate.db", clock=SystemClock(), log=lines or Lines())
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


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
class TestPostgresLog(EventLogContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Any:
        return tmp_path, postgres.shared().schema("event_log")

    @asynccontextmanager
    async def opened(self, place: Any) -> AsyncIterator[EventLog]:
        from bot.core.postgres_log import PostgresLog

        folder, url = place
        log = PostgresLog(
            url, folder / "cursors.json", epoch=0, disk=SystemDisk(), clock=SystemClock(), log=Lines()
        )
        try:
            yield log
        finally:
            await log.close()


async def test_a_disk_that_refuses_confirms_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines()
    monkeypatch.setattr(sqlite_log, "PRAGMAS", "PRAGMA journal_mode = wal; PRAGMA busy_timeout = 0;")
    monkeypatch.setattr(event_log, "RETRY_SECONDS", 0.01)
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


CUT_OFF = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.executescript("PRAGMA cache_size = 1; BEGIN; CREATE TABLE events (n)")
db.executemany("INSERT INTO events VALUES (?)", [["words " * 99]] * 999)
os._exit(1)
"""
"""Program that dies inside a transaction, part of which is already in the file."""


async def test_a_start_goes_on_after_a_kill_within_the_first_transaction(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", CUT_OFF, tmp_path / FILE)
    await program.wait()
    assert (tmp_path / f"{FILE}-journal").stat().st_size
    log = SqliteLog(tmp_path / FILE, clock=SystemClock(), log=Lines(), mend=True)
    assert await log.newest() == ""
    await log.close()
    assert not [*tmp_path.glob("*corrupt*")]


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
    monkeypatch.setattr(event_log, "LINGER", 0.0)
    written = asyncio.Event()
    async with opened(tmp_path) as log:
        log.watch(lambda _: written.set())
        log.append([entry(1, received())])
        await asyncio.wait_for(written.wait(), 60)


@pytest.mark.parametrize(
    "contract",
    [
        TestSqliteLog(),
        pytest.param(
            TestPostgresLog(), marks=pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
        ),
    ],
    ids=["sqlite", "postgresql"],
)
async def test_sums_of_usage_are_the_same_in_each_database(tmp_path: Path, contract: Any) -> None:
    def at(one: Entry, hours: int, turn: str = "") -> Entry:
        return replace(one, event=replace(one.event, at=one.event.at + 3_600 * hours, turn=turn or None))

    url = postgres.shared().schema("event_log") if isinstance(contract, TestPostgresLog) else None
    sums = UsageSums(tmp_path, url)
    assert sums.total() == UsageTotals()
    tokens = {"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 1}
    used = events.Used("one", "turn", "telegram:7", tokens, 0.25)
    said = [entry(1, received("k1")), entry(2, received("k2")), entry(3, received("k3"))]
    written = [
        *said,
        at(entry(4, used), 0),
        at(entry(5, replace(used, model="two", cost_usd=None)), 24),
        at(entry(6, events.Used("two", "turn", error="Over\0loaded")), 24),
        at(entry(7, events.TurnEnded("answered", "\0", "one")), 0, said[0].event.id),
        at(entry(8, events.TurnEnded("failed")), 24, said[1].event.id),
        at(entry(9, events.TurnEnded("handled")), 24, said[2].event.id),
        at(entry(10, events.TurnEnded("answered")), 24, "no message"),
        at(entry(11, events.Rated("good")), 24),
        at(entry(1, replace(used, purpose="memory"), OTHER), 25),
        at(entry(12, events.Used("two", "turn", "telegram:9", error="Overloaded")), 25),
        at(entry(2, events.Used("two", "turn", "telegram:9", error="Overloaded"), OTHER), 25),
        at(entry(13, events.Waited(1_234, 1_200, {"queue": 34, "model": 1_000})), 0, said[0].event.id),
        at(entry(14, events.Waited(12, 12)), 24, said[1].event.id),
    ]
    async with contract.opened((tmp_path, url) if url else tmp_path) as log:
        for _ in range(2):
            log.append(written)
            await log.committed()
    total = sums.total()
    assert (total.turns, total.failed, total.calls, total.unpriced, total.cost) == (2, 1, 3, 1, 0.5)
    assert total.tokens == {name: 3 * count for name, count in tokens.items()}
    assert (total.models, total.waits) == ({"one": 2, "two": 1}, {1_200: 1, 12: 1})
    assert total.spent == {"": 1_246, "model": 1_000}
    assert (total.errors["Overloaded"], total.errors.total(), total.ratings) == (2, 3, {"good": 1})
    start = said[0].event.at
    since = sums.total(chat=str(ONE), since=start + 3_600)
    assert (since.turns, since.calls, since.cost) == (1, 1, 0.0)

    def calls(by: By) -> list[tuple[str, int, int]]:
        return [(name, one.turns, one.calls) for name, one in sums.by(by)]

    assert calls("day") == [("2023-11-14", 1, 1), ("2023-11-15", 1, 2)]
    assert calls("person") == [("telegram:7", 2, 3), ("", 0, 0), ("telegram:9", 0, 0)]
    assert calls("chat") == [(str(ONE), 2, 2), (str(OTHER), 0, 1)]
    assert calls("model") == [("one", 1, 2), ("two", 0, 1)]
    newest = {"telegram:7": str(OTHER), "telegram:9": str(OTHER)}
    assert sums.last_chats(["telegram:7", "telegram:8", "telegram:9"]) == newest
    assert sums.last_chats([]) == {}
    assert sums.failed(start) == {str(ONE)}
    assert sums.failed(start + 3_600 * 25) == frozenset()
    assert [sums.total(channel=one).calls for one in ("telegram", ONE.channel, "tele")] == [
        sum(count for key, _, count in calls("chat") if key.startswith(f"{one}:"))
        for one in ("telegram", ONE.channel, "tele")
    ]
    assert [group for group, _ in sums.spent(start + 3_600 * 25)] == [
        (str(OTHER), "telegram:7", "one"),
        (str(OTHER), "telegram:9", "two"),
        (str(ONE), "telegram:9", "two"),
    ]


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
async def test_a_process_that_does_not_lead_any_more_writes_nothing(tmp_path: Path) -> None:
    contract = TestPostgresLog()
    place = tmp_path, postgres.shared().schema("event_log")
    async with contract.opened(place) as log:
        log.append([entry(1, received())])
        await log.committed()
        with psycopg.connect(place[1], autocommit=True) as db:
            db.execute("UPDATE cluster_leader SET epoch = epoch + 1")
        log.append([entry(2, received("k2"))])
        with pytest.raises(errors.StorageError, match="another process leads"):
            await log.committed(patient=False)
    async with contract.opened(place) as log:
        assert [one.seq for one in await log.read(ONE)] == [1]


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
async def test_sessions_that_the_server_ends_lose_nothing(tmp_path: Path) -> None:
    contract = TestPostgresLog()
    place = tmp_path, postgres.shared().schema("event_log")
    async with contract.opened(place) as log:
        for number in (1, 2):
            log.append([entry(number, received(f"k{number}"))])
            await log.committed(patient=False)
            assert [one.seq for one in await log.read(ONE)] == list(range(1, number + 1))
            with psycopg.connect(postgres.shared().url(), autocommit=True) as db:
                db.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shipmate'"
                )
        # The server refuses a character that no text may contain. The other events are written.
        log.append([entry(1, events.Closed("x"), name="another"), entry(1, events.Closed("a\0b"), OTHER)])
        await log.committed()
        assert len(await log.read(OTHER)) == 1


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
async def test_postgresql_tells_events_that_it_never_takes_from_a_server_that_is_gone(tmp_path: Path) -> None:
    contract = TestPostgresLog()
    place = tmp_path, postgres.shared().schema("event_log")
    async with contract.opened(place) as log:
        log.append([entry(1, received(words="long " * 1_000_000))])
        await log.committed(patient=False)
        log.append([entry(1, events.Closed("x"), name="another"), entry(1, events.Closed("y"), OTHER)])
        await log.committed(patient=False)
        assert [len(await log.read(chat)) for chat in (ONE, OTHER)] == [1, 1]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_sums_of_a_channel_follow_those_of_its_chats(tmp_path: Path, engine: str) -> None:
    if engine == "postgresql" and postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    url = postgres.shared().schema("event_log") if engine == "postgresql" else None
    contract: Any = TestPostgresLog() if url else TestSqliteLog()
    sums = UsageSums(tmp_path, url)

    def change(*statements: str) -> None:
        if url:
            with psycopg.connect(url, autocommit=True) as db:
                for one in statements:
                    db.execute(one.encode())
            return
        with closing(sqlite3.connect(tmp_path / FILE)) as db:
            for one in statements:
                db.execute(one)
            db.commit()

    used = events.Used("one", "turn", "telegram:7", {"inputTokens": 5}, 0.25)
    waited = events.Waited(120, 120, {"model": 100})
    async with contract.opened((tmp_path, url) if url else tmp_path) as log:
        log.append([entry(1, used), entry(2, used), entry(3, waited), entry(1, used, OTHER)])
        await log.committed()
    total = sums.total()
    assert (total.calls, total.cost, total.waits, total.spent["model"]) == (3, 0.75, {120: 1}, 100)
    assert [sums.total(channel=one.channel).calls for one in (ONE, OTHER)] == [2, 1]
    assert sums.total(channel="none") == UsageTotals()
    for table in ("usage", "counts"):
        change(f"DELETE FROM {table} WHERE chat = '{ONE}'")
    left = sums.total()
    assert (left.calls, left.cost, left.tokens["inputTokens"]) == (1, 0.25, 5)
    assert (left.waits.total(), left.spent.total()) == (0, 0)
    # If a log lacks the usage sums, they are computed when the log is opened.
    change("DROP TABLE usage_hours", "DROP TABLE counts_hours")
    async with contract.opened((tmp_path, url) if url else tmp_path) as log:
        log.append([entry(2, used, OTHER)])
        await log.committed()
    assert (sums.total().calls, sums.by("model")[0][1].cost) == (2, 0.5)
