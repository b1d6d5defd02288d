"""A journal moves to PostgreSQL and back with every row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.journal import ANSWERED
from bot.journal import SqliteJournal, schema
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests import postgres
from tests.contracts.journal_rig import inbound, outbound, step, still_open
from tests.contracts.journal_shared import job

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    import psycopg
    from bot.journal.postgres import PostgresJournal

    from bot.journal import transfer


@pytest.fixture
def url() -> Iterator[str]:
    server = postgres.shared()
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("CREATE SCHEMA moving")
        yield server.url("moving")
        db.execute("DROP SCHEMA moving CASCADE")


async def fill(journal: SqliteJournal) -> None:
    for number in range(1, 40):
        assert await journal.receive(inbound(number, text=f"消息 \0 {number}"))
    await journal.begin_turn(inbound(1).request_id, ChatKey.parse("telegram:chat:5"), [inbound(1).request_id])
    await journal.begin_step(step(1))
    await journal.put_outbox([outbound(1, text="a\0b"), outbound(2)])
    await journal.finish(inbound(2).request_id, ANSWERED)
    await journal.put_job(job(1))
    await journal.keep_dead_letter("telegram", "k", "raw", "reason")
    await journal.once("k", 1.0, 1.0)
    await journal.post.put_lines([(7, "chats/web", lambda: b"\x00\xff\n")])
    await journal.close()


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as db:
        return {
            name: [
                tuple(one.replace("\0", "\ufffd") if isinstance(one, str) else one for one in row)
                for row in db.execute(f"SELECT * FROM {name} ORDER BY {', '.join(table.order)}")
            ]
            for name, table in schema.tables().items()
        }


async def test_every_row_moves_and_comes_back(tmp_path: Path, url: str) -> None:
    path, aside, clock, log = tmp_path / "journal.db", tmp_path / "old", FakeClock(), MemoryLog()
    await fill(SqliteJournal(path, clock=clock, log=log))
    before, chat = rows(path), tmp_path / "chats/x.jsonl"
    chat.parent.mkdir()
    chat.write_bytes(b"said before\n")
    moved = transfer.to_postgres(path, url, aside)
    counts = {table: len(found) for table, found in before.items()}
    assert {one.table: one.rows for one in moved} == {**counts, "files": 1}
    assert (path.exists(), rows(aside)) == (False, before)
    there = PostgresJournal(url, clock=clock, log=log)
    assert [one.text for one in await still_open(there)][:2] == ["消息 \0 1", "消息 \0 3"]
    assert not await there.receive(inbound(5))  # what was seen stays seen
    await there.close()
    chat.unlink()
    back = transfer.to_file(url, path, "moved_1")
    assert chat.read_bytes() == b"said before\n"
    assert [one.sha256 for one in back] == [one.sha256 for one in moved]
    assert rows(path) == before
    transfer.to_postgres(path, url, tmp_path / "again")  # the schema is empty once more


async def test_a_journal_is_not_moved_onto_another_one(tmp_path: Path, url: str) -> None:
    path, clock, log = tmp_path / "journal.db", FakeClock(), MemoryLog()
    await fill(SqliteJournal(path, clock=clock, log=log))
    there = PostgresJournal(url, clock=clock, log=log)
    assert await there.receive(inbound(1))
    with pytest.raises(errors.StorageError, match="another process has the journal"):
        transfer.to_postgres(path, url, tmp_path / "old")
    await there.close()
    with pytest.raises(errors.StorageError, match="there is a journal already"):
        transfer.to_postgres(path, url, tmp_path / "old")
    assert path.exists()
