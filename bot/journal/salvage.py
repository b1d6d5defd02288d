"""Carries the readable rows of a journal that was set aside over into its replacement."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bot.journal import schema

_FARTHEST = 1 << 20
"""Rows that are looked for where neither the table nor an index says how many there are."""
_REFUSALS = 1 << 15
"""Ranges of a table that may turn out unreadable before no more of it is tried: about a fifth of a second."""


def carry_over(source: Path, db: sqlite3.Connection) -> dict[str, int]:
    """Copy every row that can be read; how many of each table there are then. The source is only read.

    Of a version before the baseline nothing is copied.
    """
    try:
        with contextlib.closing(_opened(source)) as old:
            (version,) = old.execute("PRAGMA user_version").fetchone()
            if version < schema.BASELINE and not schema.damage(old):
                return {}
            return _copy(old, db)
    except sqlite3.Error:
        # It describes itself in a place that cannot be read.
        if db.in_transaction:
            db.execute("ROLLBACK")
        return {}


def _copy(old: sqlite3.Connection, db: sqlite3.Connection) -> dict[str, int]:
    there, carried = _tables(old), dict[str, int]()
    db.execute("BEGIN IMMEDIATE")
    for table, columns in _tables(db).items():
        common = [name for name in columns if name in there.get(table, ())]
        if common and table != "lost":
            carried[table] = _carried(old, db, table, common)
    db.execute("COMMIT")
    return carried


def _opened(source: Path) -> sqlite3.Connection:
    # Without a log beside it nothing is made beside it either.
    alone = not source.with_name(f"{source.name}-wal").exists()
    how = "?mode=ro&immutable=1" if alone else "?mode=ro"
    db = sqlite3.connect(f"{source.absolute().as_uri()}{how}", uri=True, isolation_level=None)
    db.text_factory = lambda raw: raw.decode(errors="replace")
    # Else SQLite reads nothing of a file that was cut short, or of whose description a part is wrong.
    db.execute("PRAGMA writable_schema = ON")
    return db


def _tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}


def _carried(old: sqlite3.Connection, db: sqlite3.Connection, table: str, columns: list[str]) -> int:
    named = ", ".join(columns)
    # Rows that do not fit (a state that is none) are damaged too.
    insert = f"INSERT OR IGNORE INTO {table} ({named}) VALUES ({', '.join('?' * len(columns))})"
    for row in _rows(old, table, named):
        db.execute(insert, row)
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _rows(old: sqlite3.Connection, table: str, named: str) -> Iterator[tuple[Any, ...]]:
    select = f"SELECT {named} FROM {table}"
    try:
        old.execute(f"SELECT rowid FROM {table} LIMIT 0")
    except sqlite3.OperationalError:
        yield from _from_both_ends(old, select)
        return
    # The widest range is tried first: what is readable is found before the tries are used up. Where the end is not known, most
    # ranges are behind it, so the lowest is.
    highest = _last(old, table)
    ranges, refused = deque([(1, highest or _FARTHEST)]), 0
    following = ranges.pop if highest is None else ranges.popleft
    while ranges and refused < _REFUSALS:
        first, last = following()
        try:
            found = old.execute(f"{select} NOT INDEXED WHERE rowid BETWEEN ? AND ?", (first, last)).fetchall()
        except sqlite3.DatabaseError:
            refused += 1
            if first < last:
                middle = (first + last) // 2
                ranges += [(middle + 1, last), (first, middle)]
        else:
            yield from found


def _last(old: sqlite3.Connection, table: str) -> int | None:
    """The highest row number, by the table or by an index of it; None where neither can be read."""
    for highest in (f"max(rowid) FROM {table} NOT INDEXED", f"max(+rowid) FROM {table}"):
        with contextlib.suppress(sqlite3.DatabaseError):
            return int(old.execute(f"SELECT {highest}").fetchone()[0] or 0)
    return None


def _from_both_ends(old: sqlite3.Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """Of a table without row numbers: up to the first damage, and from behind down to the last."""
    for order in ("ASC", "DESC"):
        try:
            yield from old.execute(f"{select} ORDER BY 1 {order}")
        except sqlite3.DatabaseError:
            continue
        return
