"""Moves a journal from a file to PostgreSQL and back, with the files that hosts share: every row, in its order, compared before
anything counts.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot import errors
from bot.journal import file, leadership, postgres, schema, shared_disk, shared_files
from bot.journal.connection import Connection
from bot.journal.shared_disk import NOTE, Copies
from bot.system import SystemDisk

_AT_ONCE = 1_000
_BEFORE = frozenset({"lost", "probe"})
"""Tables in which a new journal may have something."""


@dataclass(frozen=True, slots=True)
class TransferredTable:
    """The rows of a table, counted and hashed in order, on both sides."""

    table: str
    rows: int
    sha256: str


def to_postgres(path: Path, url: str, aside: Path) -> list[TransferredTable]:
    """Move the journal in a file, which is renamed to `aside` then, and bring the files beside it that all hosts have. Raises
    `errors.StorageError`.
    """
    home = path.parent
    with errors.as_storage_error("the journal cannot be moved", sqlite3.Error, OSError):
        with closing(file.open_to_write(path, _refuse)) as source, closing(_target(url)) as target:
            target.execute("BEGIN")
            moved = _copied(source, target)
            Copies(home, SystemDisk(), _Silent()).import_all(target)
            moved.append(_same_files(target, home))
            target.execute("COMMIT")
        path.replace(aside)
        file.newest(path).unlink(missing_ok=True)
    return moved


def to_file(url: str, path: Path, aside: str) -> list[TransferredTable]:
    """Move the journal in PostgreSQL, whose tables go to the schema `aside` then, with the files. Raises `errors.StorageError`."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    home = path.parent
    with (
        errors.as_storage_error("the journal cannot be moved", sqlite3.Error, OSError),
        closing(_source(url)) as source,
    ):
        moved = _fetched(source, scratch, home)
        if path.exists():
            raise errors.StorageError(f"{path.name} is there already")
        scratch.replace(path)
        source.execute("BEGIN")
        source.execute(f"CREATE SCHEMA {aside}")
        for table in (*schema.tables(), "journal_version", *shared_files.NAMES):
            source.execute(f"ALTER TABLE {table} SET SCHEMA {aside}")
        source.execute("COMMIT")
        (home / NOTE).unlink(missing_ok=True)
    return moved


def copy_out(url: str, folder: Path) -> None:
    """Write the journal and the files that all hosts have to an empty folder, as they are at one moment. Whoever writes them goes
    on meanwhile. Raises `errors.StorageError`.
    """
    with (
        errors.as_storage_error("the journal cannot be copied", sqlite3.Error, OSError),
        closing(shared_files.connect(url)) as source,
    ):
        source.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        _fetched(source, folder / "journal.db", folder)
        source.execute("COMMIT")
        (folder / NOTE).unlink(missing_ok=True)


def _fetched(source: Connection, path: Path, home: Path) -> list[TransferredTable]:
    """Copy the journal to a new file, and the files to a `.ship`."""
    with closing(file.open_to_write(path, _refuse)) as target:
        target.execute("BEGIN IMMEDIATE")
        moved = _copied(source, target)
        target.execute("COMMIT")
    if shared_files.changed_since(source, 0):
        Copies(home, SystemDisk(), _Silent()).compare(source)
        moved.append(_same_files(source, home))
    return moved


def was_moved(url: str, *homes: Path) -> bool:
    """True where a database has what was moved from one of these folders. Raises `errors.StorageError`."""
    with errors.as_storage_error("the database cannot be used", sqlite3.Error), closing(_source(url)) as db:
        name = shared_files.store(db).name
        return bool(_full(db)) and any(shared_disk.copies_of(home) == name for home in homes)


def _full(db: Connection) -> str:
    """A table that is not empty; "" where none is."""
    tables = (*(table for table in schema.tables() if table not in _BEFORE), "shared_files")
    return next((one for one in tables if db.execute(f"SELECT 1 FROM {one} LIMIT 1").fetchone()), "")


def _target(url: str) -> Connection:
    db = _source(url)
    if full := _full(db):
        db.close()
        raise errors.StorageError(f"there is a journal already: the table {full} is not empty")
    return db


def _source(url: str) -> Connection:
    """The session that may write, while no process stands by to have it."""
    db = postgres.connect(url)
    try:
        must_be_stopped(url)
        shared_files.prepare(db)
        postgres.held(db, postgres.FILES_LOCK, None)
    except (sqlite3.Error, errors.StorageError):
        db.close()
        raise
    return db


def is_running(url: str) -> bool:
    """True where a process is on a database. Raises `errors.StorageError`."""
    return bool(leadership.hosts(url))


def must_be_stopped(url: str) -> None:
    """Raise `errors.StorageError` where a process is on a database."""
    if running := leadership.hosts(url):
        raise errors.StorageError(
            f"{running[0].holder} is running; stop all processes on that database first"
        )


def _copied(source: Connection, target: Connection) -> list[TransferredTable]:
    """Copy every table and compare what is on both sides. In a transaction of the target."""
    moved = []
    for table in schema.tables():
        if table in _BEFORE:
            target.execute(f"DELETE FROM {table}")
        columns = schema.tables()[table].columns
        put = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        rows = _rows(source, table)
        while some := list(itertools.islice(rows, _AT_ONCE)):
            target.executemany(put, some)
        here, there = _summed(source, table), _summed(target, table)
        if here != there:
            raise errors.StorageError(f"the table {table} is not the same on both sides; nothing was moved")
        moved.append(here)
    return moved


def _same_files(db: Connection, home: Path) -> TransferredTable:
    """The files, counted and hashed in order, which are the same on both sides."""
    here, there = hashlib.sha256(), hashlib.sha256()
    paths = sorted(path.relative_to(home).as_posix() for path in shared_disk.files(home))
    rows = sorted((row for row in shared_files.changed_since(db, 0) if row.id), key=lambda row: row.path)
    for name in paths:
        here.update(f"{name}\n".encode())
        with (home / name).open("rb") as opened:
            while data := opened.read(shared_files.PIECE):
                here.update(data)
    for row in rows:
        there.update(f"{row.path}\n".encode())
        for data in shared_files.content(db, row):
            there.update(data)
    if here.digest() != there.digest():
        raise errors.StorageError("the files are not the same on both sides; nothing was moved")
    return TransferredTable("files", len(paths), here.hexdigest())


def _rows(db: Connection, table: str) -> Iterator[tuple[Any, ...]]:
    named = schema.tables()[table]
    words = f"SELECT {', '.join(named.columns)} FROM {table} ORDER BY {', '.join(named.order)}"
    for row in db.execute(words):
        yield tuple(postgres.value(one) for one in row)


def _summed(db: Connection, table: str) -> TransferredTable:
    count, digest = 0, hashlib.sha256()
    for row in _rows(db, table):
        count += 1
        digest.update(f"{row!r}\n".encode())
    return TransferredTable(table, count, digest.hexdigest())


class _Silent:
    """Nothing is told that the command does not say."""

    def write(self, kind: str, message: str, **details: Any) -> None:
        pass


def _refuse(found: str) -> None:
    raise errors.StorageError(
        f"the journal is damaged: {found}; a start of Shipmate mends what can be mended"
    )
