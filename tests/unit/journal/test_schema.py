from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bot import errors
from bot.journal import SqliteJournal, approvals, file, inbox, jobs, leases, outbox, schema, sqlite, steps
from bot.journal.connection import Connection
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import inbound, still_open

PARTIAL = {"outbox_untold", "approvals_open", "approvals_given"}
GIVEN = {"named", "item"}
"""Not tables: what the caller gives, and its items."""
"""Indexes that have no more rows than are wanted."""


@pytest.fixture
def db() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def version(db: sqlite3.Connection) -> int:
    (number,) = db.execute("PRAGMA user_version").fetchone()
    assert isinstance(number, int)
    return number


def tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def shape(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def extra(db: Connection) -> None:
    db.execute("ALTER TABLE chats ADD COLUMN title TEXT")


def failing(db: Connection) -> None:
    db.execute("CREATE TABLE more (id TEXT PRIMARY KEY)")
    raise sqlite3.OperationalError("the disk is full")


def test_a_fresh_file_gets_every_table(db: sqlite3.Connection) -> None:
    assert schema.migrate(db) == 0
    assert tables(db) == {
        *("chats", "inbox", "keys", "outbox", "dead_letters", "once"),
        *("steps", "jobs", "leases", "closed_targets", "probe", "approvals", "lost", "turns"),
        *("lines", "locales"),
    }
    assert version(db) == schema.NEWEST
    assert schema.migrate(db) == 0


def test_only_the_missing_steps_are_done_and_what_is_there_stays(db: sqlite3.Connection) -> None:
    schema.migrate(db)
    db.execute("INSERT INTO chats VALUES ('web:chat:1', 5.0, NULL)")
    later = [*schema.LATER, extra]
    assert schema.migrate(db, later) == 1
    assert db.execute("SELECT * FROM chats").fetchall() == [("web:chat:1", 5.0, None, None)]
    assert version(db) == schema.NEWEST + 1
    assert schema.migrate(db, later) == 0
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    assert schema.migrate(fresh, later) == 0, "nothing was there that lacked a step"
    assert shape(db) == shape(fresh)
    fresh.close()


def test_steps_that_fail_are_done_not_at_all(db: sqlite3.Connection) -> None:
    schema.migrate(db)
    before = shape(db)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        schema.migrate(db, [*schema.LATER, extra, failing])
    assert (shape(db), version(db), db.in_transaction) == (before, schema.NEWEST, False)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (schema.NEWEST + 1, "written by a newer one; run that, or put journal.db.version-17 in its place"),
        (schema.BASELINE - 1, "written by an unreleased earlier version; move journal.db away"),
    ],
)
async def test_a_file_of_another_version_is_refused_in_plain_words_and_left_alone(
    number: int, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE inbox (x)")
    other.execute(f"PRAGMA user_version = {number}")
    other.close()
    journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
    for _ in range(2):
        with pytest.raises(errors.StorageError, match=told):
            await journal.open()
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound())
    with pytest.raises(errors.StorageError, match=f"version {number}"):
        await still_open(journal)
    assert told in journal.health()
    await journal.close()
    again = sqlite3.connect(path)
    assert tables(again) == {"inbox"}
    again.close()
    assert not list(tmp_path.glob("*.corrupt-*"))


def statements() -> list[tuple[str, str]]:
    """Every statement that finds rows of a table which grows."""
    found: list[tuple[str, str]] = []
    for module in (inbox, steps, outbox, jobs, leases, approvals, sqlite):
        for name, value in vars(module).items():
            said = value if isinstance(value, tuple) else (value,)
            words = [
                one for one in said if isinstance(one, str) and name.startswith("_") and " WHERE " in one
            ]
            found += [(name, one) for one in words if one.lstrip().startswith(("SELECT", "UPDATE", "DELETE"))]
    return found


def test_the_statements_are_found() -> None:
    assert {"_UNFINISHED", "_STEPS", "_DELIVERIES", "_UNTOLD", "_NEAR", "_HELD", "_SWEEPS"} <= {
        name for name, _ in statements()
    }


@pytest.mark.parametrize(("name", "statement"), statements())
def test_no_statement_looks_through_a_whole_table(db: sqlite3.Connection, name: str, statement: str) -> None:
    schema.migrate(db)
    named = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    plan = [
        row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", named or (1,) * statement.count("?"))
    ]
    scans = [
        line
        for line in plan
        if line.startswith("SCAN") and not {line.split()[1], line.split()[-1]} & (PARTIAL | GIVEN)
    ]
    assert plan, name
    assert not scans, name


def test_a_file_that_is_brought_to_a_newer_version_is_kept_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, older = tmp_path / "journal.db", tmp_path / "journal.db.version-9"
    older.write_bytes(b"of an upgrade before")

    def opened() -> sqlite3.Connection:
        return file.open_to_write(path, lambda _: None)

    with closing(opened()) as db:
        db.execute("INSERT INTO once VALUES ('kept', 1, 2)")
    assert file.copies(path) == [older]
    monkeypatch.setattr(schema, "LATER", (lambda db: db.execute("DROP TABLE once"),))
    monkeypatch.setattr(schema, "NEWEST", schema.BASELINE + 1)
    with closing(opened()) as db:
        assert version(db) == schema.BASELINE + 1
    (copy,) = file.copies(path)
    assert copy.name == f"journal.db.version-{schema.BASELINE}"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as db:
        assert version(db) == schema.BASELINE
        assert db.execute("SELECT key FROM once").fetchall() == [("kept",)]
