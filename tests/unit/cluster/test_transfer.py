"""A log moves to PostgreSQL and back with every row and file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from bot import errors
from bot.core import events
from bot.core.event_log import Position
from bot.core.sqlite_log import SqliteLog
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog
from tests import postgres
from tests.contracts.event_log import ONE, OTHER, entry, received

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    from bot.cluster import transfer
    from bot.core.postgres_log import PostgresLog, prepared


@pytest.fixture
def url() -> str:
    return postgres.shared().schema("moving")


async def fill(path: Path) -> None:
    log = SqliteLog(path, clock=SystemClock(), log=MemoryLog())
    for number in range(1, 40):
        log.append([entry(number, received(f"k{number}"))])
    used = events.Used("one", "turn", "telegram:1", {"inputTokens": 5, "outputTokens": 2}, 0.1)
    waited = events.Waited(900, 900, {"model": 800})
    log.append(
        [entry(40, used), entry(41, waited), entry(42, events.FactSet("locale", "a", {"language": "zh"}))]
    )
    log.append([entry(1, events.Closed("x"), OTHER, position=Position(1, None))])
    await log.committed()
    await log.move_cursor("archive", 7)
    await log.close()


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as db:
        names = [one for (one,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall()) for name in names}


async def test_every_row_moves_and_comes_back(tmp_path: Path, url: str) -> None:
    path, aside, note = tmp_path / "shipmate.db", tmp_path / "old", tmp_path / "memory/x/files/a.md"
    await fill(path)
    before = rows(path)
    note.parent.mkdir(parents=True)
    note.write_bytes(b"said before\n")
    moved = transfer.to_postgres(path, url, aside)
    assert {one.table: one.rows for one in moved} == {
        "events": 43,
        "keys": 39,
        "chats": 2,
        "usage": 1,
        "counts": 3,
        "facts": 1,
        "files": 1,
    }
    assert (path.exists(), rows(aside)) == (False, before)
    there = PostgresLog(
        url,
        tmp_path / "exports.json",
        epoch=None,
        disk=SystemDisk(),
        clock=SystemClock(),
        log=MemoryLog(),
    )
    assert await there.known(("k5",))  # known keys stay known
    assert await there.cursor("archive") == 7
    assert (await there.usage(ONE)).cost == 0.1
    there.append([entry(43, events.Closed("r-k1"))])
    await there.committed()
    assert [(n, one.seq) for n, one in await there.after(43, 5)] == [(44, 43)]
    await there.close()
    note.unlink()
    transfer.to_file(url, path, "moved_1", MemoryLog())
    assert note.read_bytes() == b"said before\n"
    after = rows(path)
    assert len(after["events"]) == 44
    assert {**after, "events": [], "chats": []} == {**before, "events": [], "chats": []}
    transfer.to_postgres(path, url, tmp_path / "again")  # the schema is empty again


async def test_a_log_is_not_moved_onto_another_one(tmp_path: Path, url: str) -> None:
    path = tmp_path / "shipmate.db"
    await fill(path)
    with closing(prepared(url)) as db:
        db.execute("INSERT INTO cluster_hosts VALUES ('a', clock_timestamp())")
        with pytest.raises(errors.StorageError, match="a is running"):
            transfer.to_postgres(path, url, tmp_path / "old")
        db.execute("DELETE FROM cluster_hosts; INSERT INTO keys VALUES ('k', 'c', 1)")
    with pytest.raises(errors.StorageError, match="there is a log already"):
        transfer.to_postgres(path, url, tmp_path / "old")
    assert path.exists()
    with psycopg.connect(url) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (0,)
