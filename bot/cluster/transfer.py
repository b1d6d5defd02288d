"""Moves the event log and the shared files between SQLite and PostgreSQL. All rows are copied in order. Source and target
are compared before the target is used.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot import errors
from bot.cluster import leadership, shared_disk
from bot.contracts.environment import Log
from bot.core import sqlite_log
from bot.core.event_log import CURSOR
from bot.core.postgres_log import ERRORS, PostgresSession, prepared, values
from bot.storage import jsonl
from bot.system import SystemDisk

TABLES = {
    "events": "SELECT * FROM events ORDER BY n",
    "keys": "SELECT * FROM keys ORDER BY key",
    "chats": "SELECT * FROM chats ORDER BY chat",
    "usage": "SELECT * FROM usage ORDER BY chat, hour, person, model, purpose",
    "counts": "SELECT * FROM counts ORDER BY chat, hour, what, name",
    "facts": f"SELECT * FROM facts WHERE kind <> '{CURSOR}' ORDER BY kind, key",
}
"""Tables of the log, each with a query for its rows in order. Rows of `facts` with the kind `CURSOR` are left out, because
they are the positions of one host's exports.
"""
_AT_ONCE = 1_000
_ERRORS = (*ERRORS, sqlite3.Error)
_Database = PostgresSession | sqlite3.Connection


@dataclass(frozen=True, slots=True)
class TransferredTable:
    """Number and SHA-256 of a table's rows, or of the shared files. After the transfer, source and target have equal values."""

    table: str
    rows: int
    sha256: str


def to_postgres(path: Path, url: str, aside: Path) -> list[TransferredTable]:
    """Move the log file `path` and the shared files beside it to PostgreSQL. Then rename the log file to `aside`.
    Raises `errors.StorageError`.
    """
    home = path.parent
    with errors.as_storage_error("the log cannot be moved", *_ERRORS), _source(url) as target:
        for table in (*TABLES, "files"):
            if target.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
                raise errors.StorageError(f"there is a log already: the table {table} is not empty")
        with closing(_file(path)) as source:
            moved = _copied(source, target)
            cursors = source.execute("SELECT key, value FROM facts WHERE kind = ?", (CURSOR,)).fetchall()
        target.execute("SELECT setval(pg_get_serial_sequence('events', 'n'), max(n)) FROM events")
        for one in shared_disk.files(home):
            data, at = one.read_bytes(), one.stat().st_mtime_ns // 1000 * 1000
            os.utime(one, ns=(at, at))
            target.execute(shared_disk.PUT, (one.relative_to(home).as_posix(), data, len(data), at))
        moved.append(_same_files(target, home))
        (store,) = target.execute(shared_disk.STORE).fetchone() or ("",)
        SystemDisk().replace(home / shared_disk.NOTE, jsonl.dumps({"store": store}))
        SystemDisk().replace(home / "exports.json", jsonl.dumps({key: int(n) for key, n in cursors}))
    path.replace(aside)
    return moved


def to_file(url: str, path: Path, aside: str, log: Log) -> list[TransferredTable]:
    """Move the log from PostgreSQL to the file `path`, and the shared files to the folder of `path`. Then move the
    tables to the PostgreSQL schema `aside`. Raises `errors.StorageError`.
    """
    scratch, home = path.with_name(f"{path.name}.new"), path.parent
    scratch.unlink(missing_ok=True)
    with errors.as_storage_error("the log cannot be moved", *_ERRORS):
        with closing(shared_disk.SharedDisk(SystemDisk(), home, url, log)) as disk:
            disk.begin()
        with _source(url) as source:
            cursors = jsonl.loads(SystemDisk().read(home / "exports.json")) or {}
            with closing(_file(scratch)) as target, target:
                moved = [*_copied(source, target), _same_files(source, home)]
                target.executemany(
                    "INSERT INTO facts VALUES (?, ?, ?)",
                    [(CURSOR, key, str(n)) for key, n in cursors.items()],
                )
            if path.exists():
                raise errors.StorageError(f"{path.name} is there already")
            source.execute(f"CREATE SCHEMA {aside}")
            for table in (*TABLES, "usage_hours", "counts_hours", "files", "cluster_leader", "cluster_hosts"):
                source.execute(f"ALTER TABLE {table} SET SCHEMA {aside}")
            scratch.replace(path)
    for name in (shared_disk.NOTE, "exports.json"):
        (home / name).unlink(missing_ok=True)
    return moved


def copy_out(url: str, folder: Path) -> None:
    """Copy the log and the shared files from PostgreSQL to an empty folder, without blocking writers. Raises
    `errors.StorageError`.
    """
    with (
        errors.as_storage_error("the log cannot be copied", *_ERRORS),
        closing(_session(url)) as source,
        source.db.transaction(),
    ):
        source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with closing(_file(folder / sqlite_log.FILE)) as target, target:
            _copied(source, target)
        for name, data in _files(source):
            SystemDisk().replace(folder / name, data)


def must_be_stopped(url: str) -> None:
    """Raise `errors.StorageError` if a process uses the database."""
    if running := leadership.hosts(url):
        raise errors.StorageError(f"{running[0][0]} is running; stop all processes on that database first")


@contextmanager
def _source(url: str) -> Iterator[PostgresSession]:
    """Open a transaction on a database. Raises `errors.StorageError` if a process uses the database."""
    with closing(_session(url)) as db, db.db.transaction():
        db.execute(
            "UPDATE cluster_leader SET epoch = epoch + 1"
        )  # UPDATE locks the row of the lease, so that no process can take over
        must_be_stopped(url)
        yield db


def _session(url: str) -> PostgresSession:
    db = prepared(url)
    db.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
    return db


def _file(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.executescript(sqlite_log.SCHEMA)
    return db


def _copied(source: _Database, target: _Database) -> list[TransferredTable]:
    """Copy every table, and compare source and target. Call this during a transaction of the target."""
    moved = []
    for table, statement in TABLES.items():
        target.execute(f"DELETE FROM {table}")  # removes sums that triggers computed from the copied events
        columns = [one[0] for one in source.execute(f"SELECT * FROM {table} LIMIT 0").description or ()]
        put = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        select = statement.replace("*", ", ".join(columns))
        rows = _rows(source, select)
        while some := list(itertools.islice(rows, _AT_ONCE)):
            target.executemany(put, some)
        moved.append(_same(table, _rows(source, select), _rows(target, select)))
    return moved


def _same(table: str, *sides: Iterable[Sequence[Any]]) -> TransferredTable:
    """Compare the rows of source and target, and return their number and hash. Raises `errors.StorageError`."""
    found = set[TransferredTable]()
    for rows in sides:
        count, digest = 0, hashlib.sha256()
        for row in rows:
            count += 1
            for value in row:
                digest.update(value if isinstance(value, bytes) else f"{value!r}\n".encode())
        found.add(TransferredTable(table, count, digest.hexdigest()))
    if len(found) > 1:
        raise errors.StorageError(f"{table} are not the same on both sides; nothing was moved")
    return found.pop()


def _rows(db: _Database, statement: str) -> Iterator[Sequence[Any]]:
    if isinstance(db, PostgresSession):
        with db.db.cursor("rows") as cursor:  # a server-side cursor, because the rows may not fit into memory
            yield from cursor.execute(statement.encode())
    else:
        for row in db.execute(statement):
            yield tuple(values(row) or ())


def _files(db: PostgresSession) -> Iterator[tuple[str, bytes]]:
    """Yield the shared files as (path, content), in order of their paths."""
    for name, data in _rows(db, "SELECT path, data FROM files WHERE data IS NOT NULL ORDER BY path"):
        if shared_disk.is_name(name):
            yield name, data


def _same_files(db: PostgresSession, home: Path) -> TransferredTable:
    """Compare the shared files in the database and in the folder `home`."""
    paths = sorted((one.relative_to(home).as_posix(), one) for one in shared_disk.files(home))
    return _same("files", ((name, path.read_bytes()) for name, path in paths), _files(db))
