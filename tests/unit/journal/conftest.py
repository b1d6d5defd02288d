"""Journals in a folder of their own, and a connection that can be told to fail."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bot.journal import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog

Make = Callable[..., SqliteJournal]


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "journal.db"


@pytest.fixture
async def make(path: Path, log: MemoryLog) -> AsyncIterator[Make]:
    made: list[SqliteJournal] = []

    def make(**how: Any) -> SqliteJournal:
        made.append(SqliteJournal(path, clock=FakeClock(), log=log, **how))
        return made[-1]

    yield make
    for journal in made:
        await journal.close()


def connection(journal: SqliteJournal) -> sqlite3.Connection:
    db = journal.base._db
    assert isinstance(db, sqlite3.Connection)
    return db


class Failing(sqlite3.Connection):
    """A connection whose next COMMITs reach the disk, or do not, and say that the disk failed."""

    reaches = True
    failures = 0
    code = sqlite3.SQLITE_IOERR_FSYNC
    no_room_for = ""
    opened = 0
    commits = 0
    checks: ClassVar[list[str]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The first of a process is followed by what the schema is compared with.
        Failing.opened += args[0] != ":memory:"

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        Failing.commits += sql == "COMMIT"
        Failing.checks += [sql] if "_check(" in sql else []
        if Failing.no_room_for and sql.startswith(Failing.no_room_for):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        if sql == "COMMIT" and Failing.failures:
            Failing.failures -= 1
            if Failing.reaches:
                super().execute(sql)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = Failing.code
            raise error
        return super().execute(sql, *args)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    connect = sqlite3.connect
    monkeypatch.setattr(
        "bot.journal.file.sqlite3.connect", lambda *args, **how: connect(*args, factory=Failing, **how)
    )
    fresh = {
        "opened": 0,
        "failures": 0,
        "commits": 0,
        "checks": [],
        "reaches": True,
        "no_room_for": "",
        "code": sqlite3.SQLITE_IOERR_FSYNC,
    }
    for name, value in fresh.items():
        monkeypatch.setattr(Failing, name, value)
    return Failing
