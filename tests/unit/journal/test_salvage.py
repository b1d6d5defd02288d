"""What can be read of a damaged journal is carried over, wherever the damage lies."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bot.journal import salvage, schema

ROWS = 200
PAGE = 4096


def journal(path: Path) -> bytes:
    """Rows of half a page each, in a table with an index over its rows and in one without."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        schema.migrate(db)
        for number in range(ROWS):
            db.execute(
                """INSERT INTO inbox (request_id, chat_key, user_id, received_at, changed_at, state, payload)
                VALUES (?, 'web:chat:1', '1', 0, 0, 'queued', ?)""",
                (str(number), f"<inbox {number}>".ljust(PAGE // 2 - 200)),
            )
            lines = f"<lines {number}>".ljust(PAGE // 2 - 200)
            db.execute("INSERT INTO lines (file, lines) VALUES ('chats/1', ?)", (lines.encode(),))
    return path.read_bytes()


@pytest.mark.parametrize("damaged", [0, ROWS // 2, ROWS - 1])
@pytest.mark.parametrize("table", ["inbox", "lines"])
def test_a_page_that_is_lost_costs_its_own_rows(tmp_path: Path, table: str, damaged: int) -> None:
    path = tmp_path / "journal.db"
    at = journal(path).index(f"<{table} {damaged}>".encode())
    with path.open("r+b") as file:
        file.seek(at // PAGE * PAGE)
        file.write(b"\xa5" * PAGE)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        schema.migrate(db)
        carried = salvage.carry_over(path, db)
    other = {"inbox": "lines", "lines": "inbox"}[table]
    assert carried[other] == ROWS
    assert ROWS - 3 <= carried[table] < ROWS


def test_of_a_version_before_the_baseline_nothing_is_carried_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("DROP INDEX inbox_open")
        old.execute(f"PRAGMA user_version = {schema.BASELINE - 1}")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        schema.migrate(db)
        assert salvage.carry_over(path, db) == {}
