"""The file of the index: its tables, its versions, and how it is opened. It can be made anew at any time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from bot.history.search import analysis

VERSION = f"3.{analysis.VERSION}"
BUSY_SECONDS = 5.0

# The index holds tokens, places of lines and the words of each chat, no text: that is read from the archive, which stays
# the truth. Tokens begin with the number of their chat, so that no question reaches into another one.
_TABLES = """
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL DEFAULT 0,
    last_at INTEGER NOT NULL DEFAULT 0, last_hash BLOB NOT NULL DEFAULT x'', lines INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0, session INTEGER NOT NULL DEFAULT 0, place INTEGER NOT NULL DEFAULT 0,
    last_ts INTEGER, mark TEXT, count INTEGER NOT NULL DEFAULT 0, newest INTEGER
);
CREATE TABLE sessions (id INTEGER PRIMARY KEY, first_ts INTEGER NOT NULL, last_ts INTEGER NOT NULL);
CREATE TABLE lines (
    line INTEGER PRIMARY KEY, at INTEGER NOT NULL, size INTEGER NOT NULL, ts INTEGER NOT NULL, role INTEGER NOT NULL
);
CREATE TABLE runs (
    chat INTEGER NOT NULL, run TEXT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (chat, run, token)
) WITHOUT ROWID;
CREATE TABLE revised (key TEXT PRIMARY KEY, ts INTEGER NOT NULL, request TEXT NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE tokens USING fts5(
    t, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '._-+#@:/=~&'"
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab(tokens, row);
INSERT INTO tokens(tokens, rank) VALUES ('hashsize', 16777216);
"""


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


def current(path: Path | None) -> sqlite3.Connection:
    """A connection to tables of this version, which are made where they are not there."""
    db = connect(path)
    try:
        if not is_current(db):
            make_anew(db, unless_current=True)
    except sqlite3.Error:
        db.close()
        raise
    return db


def verdict(path: Path) -> str:
    """Return why the file of an index is of no use as it stands; "" if it is of use. Blocking; changes nothing."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        ) as db:
            if not is_current(db):
                return "it is of another version"
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return "" if found == "ok" else str(found)


def damaged(error: sqlite3.Error) -> bool:
    """True if the file itself is at fault, rather than a lock or the disk."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)


def is_current(db: sqlite3.Connection) -> bool:
    """True if the tables are there, and of this version."""
    rows = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'version'").fetchall()
    return bool(rows) and db.execute("SELECT name FROM version").fetchall() == [(VERSION,)]


def make_anew(db: sqlite3.Connection, *, unless_current: bool = False) -> None:
    """Forget everything; where another process may have done so meanwhile, only if it has not."""
    # What was there may have to be gone for good: freed pages are written over.
    db.execute("PRAGMA secure_delete=ON")
    with transaction(db):
        if not (unless_current and is_current(db)):
            _clear(db)
    db.execute("PRAGMA secure_delete=FAST")


def _clear(db: sqlite3.Connection) -> None:
    kept = db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
        "AND name NOT GLOB 'tokens_*' ORDER BY name DESC"
    ).fetchall()
    for (name,) in kept:
        quoted = name.replace('"', '""')
        db.execute(f'DROP TABLE "{quoted}"')
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            db.execute(statement)
    db.execute("CREATE TABLE version (name TEXT NOT NULL)")
    db.execute("INSERT INTO version VALUES (?)", (VERSION,))


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


@contextlib.contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """The block sees one state of the file, whoever makes it anew meanwhile: numbers of chats are then given again."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("COMMIT")


def remove(path: Path) -> None:
    """Take the file away. It can be made anew."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
