"""Moves a journal from a file to PostgreSQL and back: every row, in its order, compared before anything counts."""

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
from bot.journal import file, leadership, postgres, schema
from bot.journal.connection import Connection

_AT_ONCE = 1_000
_BEFORE = frozenset({"lost", "probe"})
"""Tables in which a new journal may have something."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The rows of a table, counted and hashed in order, on both sides."""

    table: str
    rows: int
    sha256: str


def to_postgres(path: Path, url: str, aside: Path) -> list[Moved]:
    """Move the journal in a file, which is renamed to `aside` then. Raises `errors.StorageError`."""
    try:
        with closing(file.open_to_write(path, 5.0, _refuse)) as source, closing(_target(url)) as target:
            moved = _copied(source, target)
        path.replace(aside)
    except (sqlite3.Error, OSError) as error:
        raise errors.StorageError(f"the journal cannot be moved: {error}") from error
    return moved


def to_file(url: str, path: Path, aside: str) -> list[Moved]:
    """Move the journal in PostgreSQL, whose tables go to the schema `aside` then. Raises `errors.StorageError`."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    try:
        with closing(_source(url)) as source:
            with closing(file.open_to_write(scratch, 5.0, _refuse)) as target:
                moved = _copied(source, target)
            if path.exists():
                raise errors.StorageError(f"{path.name} is there already")
            scratch.replace(path)
            source.execute("BEGIN")
            source.execute(f"CREATE SCHEMA {aside}")
            for table in (*schema.tables(), "journal_version"):
                source.execute(f"ALTER TABLE {table} SET SCHEMA {aside}")
            source.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        raise errors.StorageError(f"the journal cannot be moved: {error}") from error
    return moved


def _target(url: str) -> Connection:
    db = _source(url)
    tables = [table for table in schema.tables() if table not in _BEFORE]
    full = [table for table in tables if db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()]
    if full:
        db.close()
        raise errors.StorageError(f"there is a journal already: the table {full[0]} is not empty")
    return db


def _source(url: str) -> Connection:
    """The session that may write, while no process stands by to have it."""
    db = postgres.connect(url)
    try:
        must_be_stopped(url)
    except errors.StorageError:
        db.close()
        raise
    return db


def must_be_stopped(url: str) -> None:
    """Raise `errors.StorageError` where a process is on a database."""
    if running := leadership.hosts(url):
        raise errors.StorageError(
            f"{running[0].holder} is running; stop all processes on that database first"
        )


def _copied(source: Connection, target: Connection) -> list[Moved]:
    """Copy every table and compare what is on both sides, in one transaction of the target."""
    moved = []
    target.execute("BEGIN IMMEDIATE")
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
    target.execute("COMMIT")
    return moved


def _rows(db: Connection, table: str) -> Iterator[tuple[Any, ...]]:
    named = schema.tables()[table]
    words = f"SELECT {', '.join(named.columns)} FROM {table} ORDER BY {', '.join(named.order)}"
    for row in db.execute(words):
        yield tuple(postgres.value(one) for one in row)


def _summed(db: Connection, table: str) -> Moved:
    count, digest = 0, hashlib.sha256()
    for row in _rows(db, table):
        count += 1
        digest.update(f"{row!r}\n".encode())
    return Moved(table, count, digest.hexdigest())


def _refuse(found: str) -> None:
    raise errors.StorageError(
        f"the journal is damaged: {found}; a start of Shipmate mends what can be mended"
    )
