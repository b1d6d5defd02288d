"""Files of SQLite that can be made anew at any time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

BUSY_SECONDS = 5.0


def connect(path: Path | None, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection for one thread at a time; None is an index in memory. Raises `sqlite3.Error` where the file cannot be
    used.
    """
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    db = sqlite3.connect(
        ":memory:" if path is None else path,
        isolation_level=None,
        timeout=busy_seconds,
        check_same_thread=False,
    )
    try:
        db.execute("PRAGMA journal_mode=WAL")
        # What a power cut takes with it is read from the archive again.
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("PRAGMA cache_size=-16384")
    except sqlite3.Error:
        db.close()
        raise
    return db


def damaged(error: sqlite3.Error) -> bool:
    """True if the file itself is at fault, rather than a lock or the disk."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Everything of the block or nothing. Raises `sqlite3.Error`."""
    db.execute("BEGIN IMMEDIATE")
    done = False
    try:
        yield
        db.execute("COMMIT")
        done = True
    finally:
        if not done and db.in_transaction:
            db.execute("ROLLBACK")


def remove(path: Path) -> None:
    """Take the file away. It can be made anew."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
