"""Files of `.ship` in PostgreSQL, for all hosts of a database: a row a file, and its content in pieces that are never changed.

A file that only grows keeps its id and gets a piece more; one that is written anew gets another id. One session writes, and holds
an advisory lock for as long as it lives; whoever takes over ends it, as it does with the journal's. `changed` grows with every
change, so a copy asks for what came after the newest that it has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from bot import errors
from bot.contracts.leadership import Leadership
from bot.journal.connection import Connection, close
from bot.journal.postgres import FILES_LOCK, SESSION, PostgresConnection, held

FOLDERS = ("artifacts", "chats", "memory", "outgoing", "received", "sent", "transcripts")
FILES = ("access.json", "telegram-groups.json")
PIECE = 1 << 20
"""Bytes of a piece at most."""
AT_ONCE = 8 * PIECE
"""Bytes that are read together at most."""
NAMES = ("shared_files", "shared_pieces", "shared_store")
_TABLES = """
    BEGIN;
    SELECT pg_advisory_xact_lock(hashtext('shipmate tables'), hashtext(current_schema()));
    CREATE SEQUENCE IF NOT EXISTS shared_changes;
    CREATE TABLE IF NOT EXISTS shared_files (path TEXT COLLATE "C" PRIMARY KEY, id BIGINT NOT NULL, size BIGINT NOT NULL,
        at BIGINT NOT NULL, changed BIGINT NOT NULL);
    CREATE INDEX IF NOT EXISTS shared_files_changed ON shared_files (changed);
    CREATE TABLE IF NOT EXISTS shared_pieces
        (id BIGINT NOT NULL, begin BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (id, begin));
    CREATE TABLE IF NOT EXISTS shared_store
        (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, erasures BIGINT NOT NULL);
    INSERT INTO shared_store VALUES (1, md5(random()::text || clock_timestamp()::text), 0) ON CONFLICT DO NOTHING;
    COMMIT"""
_NEXT = "nextval('shared_changes')"
_FOUND = "SELECT path, id, size, at, changed FROM shared_files"
_PUT = f"""INSERT INTO shared_files VALUES (?, ?, ?, ?, {_NEXT})
    ON CONFLICT (path) DO UPDATE SET id = excluded.id, size = excluded.size, at = excluded.at, changed = excluded.changed"""
_GROW = f"UPDATE shared_files SET size = ?, at = ?, changed = {_NEXT} WHERE path = ?"
_END = f"UPDATE shared_files SET id = 0, size = 0, changed = {_NEXT} WHERE path = ? AND id <> 0"
_DROP = "DELETE FROM shared_pieces WHERE id = (SELECT id FROM shared_files WHERE path = ?)"


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file as the database has it. `id` is 0 where it has gone; `at` is the time (ns) that its copies have."""

    path: str
    id: int
    size: int
    at: int
    changed: int


@dataclass(frozen=True, slots=True)
class Store:
    """All of them. `erasures` counts how often a person's were erased."""

    name: str
    erasures: int


def connect(url: str) -> PostgresConnection:
    """A session that reads. Raises `sqlite3.Error`."""
    db = PostgresConnection(url)
    try:
        prepare(db)
    except sqlite3.Error:
        close(db)
        raise
    return db


def prepare(db: Connection) -> None:
    """Make the tables in a session, where they are not there."""
    db.execute(SESSION)
    db.execute(_TABLES)


def connect_to_write(url: str, leadership: Leadership | None = None) -> PostgresConnection:
    """The session that writes. Raises `sqlite3.Error`, and `errors.StorageError` where another process leads."""
    db = connect(url)
    try:
        held(db, FILES_LOCK, leadership)
    except (sqlite3.Error, errors.StorageError):
        close(db)
        raise
    return db


def store(db: Connection) -> Store:
    return Store(*db.execute("SELECT name, erasures FROM shared_store").fetchone())


def count_erasure(db: Connection) -> None:
    """Have every copy forget what it has made of the files, such as an index."""
    db.execute("UPDATE shared_store SET erasures = erasures + 1")


def changed_since(db: Connection, changed: int) -> list[SharedFile]:
    """The files that were changed after that, and those that have gone, in order; no row that names what hosts do not share."""
    rows = db.execute(f"{_FOUND} WHERE changed > ? ORDER BY changed", (changed,))
    return [SharedFile(*row) for row in rows if is_name(row[0])]


def is_name(path: str) -> bool:
    """True of the path below `.ship` of a file that all hosts have. What is passing, as locks are, begins with a dot."""
    parts = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts) or parts[-1].startswith("."):
        return False
    return (parts[0] in FOLDERS and len(parts) > 1) or path in FILES


def has_any(db: Connection) -> bool:
    """True where files were brought to the database, be they removed since."""
    return db.execute("SELECT 1 FROM shared_files LIMIT 1").fetchone() is not None


def found(db: Connection, paths: Collection[str]) -> dict[str, SharedFile]:
    """Those of these files that are there, asked for together."""
    rows = db.execute(f"{_FOUND} WHERE path = ANY(?) AND id <> 0", (list(paths),)).fetchall()
    return {row[0]: SharedFile(*row) for row in rows}


def content(db: Connection, file: SharedFile, begin: int = 0) -> Iterator[bytes]:
    """Read what a file has from the begin of a piece on. Of one that is written anew meanwhile something is missing."""
    for at in range(begin, file.size, AT_ONCE):
        rows = db.execute(
            "SELECT data FROM shared_pieces WHERE id = ? AND begin >= ? AND begin < ? ORDER BY begin",
            (file.id, at, min(at + AT_ONCE, file.size)),
        )
        for (data,) in rows.fetchall():
            yield bytes(data)


def whole(db: Connection, files: Collection[SharedFile]) -> dict[int, list[bytes]]:
    """Read what several files have, together; the pieces of each by its id."""
    found: dict[int, list[bytes]] = {file.id: [] for file in files}
    if found:
        rows = db.execute(
            "SELECT id, data FROM shared_pieces WHERE id = ANY(?) ORDER BY id, begin", (list(found),)
        )
        for number, data in rows.fetchall():
            found[number].append(bytes(data))
    return found


def put(db: Connection, path: str, pieces: Iterable[bytes], at: int) -> None:
    """Write a file anew. In a transaction, like all that follows."""
    db.execute(_DROP, (path,))
    (number,) = db.execute(f"SELECT {_NEXT}").fetchone()
    size = _add(db, number, 0, pieces)
    db.execute(_PUT, (path, number, size, at))


def grow(db: Connection, file: SharedFile, pieces: Iterable[bytes], at: int) -> None:
    """Add to the end of a file."""
    size = _add(db, file.id, file.size, pieces)
    db.execute(_GROW, (size, at, file.path))


def remove(db: Connection, path: str) -> None:
    db.execute(_DROP, (path,))
    db.execute(_END, (path,))


def forget_removed(db: Connection) -> None:
    """Forget the names of what has gone, while nobody follows: a copy compares all of its files when it begins."""
    db.execute("DELETE FROM shared_files WHERE id = 0")


def scrub(db: Connection) -> None:
    """Have nothing of what was removed stay in free pages. In no transaction."""
    db.execute("SET statement_timeout = 0")
    for table in NAMES:
        db.execute(f"VACUUM FULL {table}")


def _add(db: Connection, number: int, size: int, pieces: Iterable[bytes]) -> int:
    for data in pieces:
        db.execute("INSERT INTO shared_pieces VALUES (?, ?, ?)", (number, size, data))
        size += len(data)
    return size
