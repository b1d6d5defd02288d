from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bot import errors
from bot.journal import SqliteJournal, schema
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import inbound


@pytest.fixture
def db() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def version(db: sqlite3.Connection) -> int:
    (number,) = db.execute("PRAGMA user_version").fetchone()
    assert isinstance(number, int)
    return number


def tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def second(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE chats ADD COLUMN title TEXT")


def third(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE steps (id TEXT PRIMARY KEY)")
    raise sqlite3.OperationalError("the disk is full")


def test_a_fresh_file_gets_every_table(db: sqlite3.Connection) -> None:
    assert schema.migrate(db) == len(schema.MIGRATIONS)
    assert tables(db) == {
        *("chats", "inbox", "keys", "outbox", "dead_letters", "once"),
        *("steps", "jobs", "leases", "closed_targets", "probe"),
    }
    assert version(db) == len(schema.MIGRATIONS)
    assert schema.migrate(db) == 0


def test_only_the_missing_steps_are_done_and_what_is_there_stays(db: sqlite3.Connection) -> None:
    schema.migrate(db, schema.MIGRATIONS[:1])
    db.execute("INSERT INTO chats VALUES ('web:chat:1', 5.0)")
    assert schema.migrate(db, [*schema.MIGRATIONS[:1], second]) == 1
    assert db.execute("SELECT * FROM chats").fetchall() == [("web:chat:1", 5.0, None)]
    assert version(db) == 2


def test_steps_that_fail_are_done_not_at_all(db: sqlite3.Connection) -> None:
    schema.migrate(db, schema.MIGRATIONS[:1])
    before = tables(db)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        schema.migrate(db, [*schema.MIGRATIONS[:1], second, third])
    assert (tables(db), version(db), db.in_transaction) == (before, 1, False)
    assert schema.migrate(db, [*schema.MIGRATIONS[:1], second]) == 1


async def test_a_file_of_a_newer_shipmate_is_refused_in_plain_words_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    newer = sqlite3.connect(path)
    newer.execute("CREATE TABLE future (x)")
    newer.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    newer.close()
    journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
    for _ in range(2):
        with pytest.raises(errors.StorageError, match="written by a newer one"):
            await journal.open()
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound())
    assert "newer" in journal.health()
    await journal.close()
    again = sqlite3.connect(path)
    assert tables(again) == {"future"}
    again.close()
    assert not list(tmp_path.glob("*.corrupt-*"))
