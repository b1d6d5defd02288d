"""Finds the rows of one person in a journal, gives them out, and erases them for good while nobody has it open."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import LineRow
from bot.contracts.outbound import OPEN_OUTBOX
from bot.journal import file, schema
from bot.journal.connection import Connection
from bot.journal.table import loads, states

Journal = Path | str
"""A file, or the address of a database."""
_OF_REQUEST = "request_id IN (SELECT name FROM requests)"
_OF_CHAT = "chat_key IN (SELECT name FROM chats_of)"
_OF_TURN = "id IN (SELECT name FROM requests)"
_TURNS_OF_CHATS = "SELECT id FROM turns JOIN chats_of ON chat_key = name"
_TABLES = {
    "inbox": f"{_OF_REQUEST} OR {_OF_CHAT}",
    "outbox": f"{_OF_REQUEST} OR {_OF_CHAT}",
    "turns": f"{_OF_TURN} OR {_OF_CHAT}",
    "steps": f"{_OF_REQUEST} OR request_id IN ({_TURNS_OF_CHATS})",
    "approvals": f"{_OF_REQUEST} OR {_OF_CHAT}",
    "jobs": f"{_OF_CHAT} OR id IN (SELECT name FROM planned)",
    "locales": "channel = :channel AND user_id = :user_id",
    "chats": _OF_CHAT,
    "dead_letters": "channel = :channel AND instr(raw, :user_id) > 0",
    "once": "key = :greeting",
}
"""The rows of a person, by table. Keys of events stay until they are swept: they are ids, and keep old messages from being
answered once more.
"""
_ERASED_IN_ORDER = ("steps", *(table for table in _TABLES if table != "steps"))


def of_person(journal: Journal, person: UserRef) -> tuple[set[str], dict[str, bool]]:
    """The requestIds of what a person sent, and the chats in which they wrote or somebody quoted them, each True if nobody else
    wrote there. Raises `errors.StorageError`.
    """
    chats: dict[str, set[str]] = {}
    theirs, requests = set[str](), set[str]()
    with _opened(journal, write=False) as db:
        found = db.execute("SELECT request_id, chat_key, user_id, payload FROM inbox")
        for request_id, chat_key, user_id, payload in found:
            if ChatKey.parse(chat_key).channel != person.channel:
                continue
            chats.setdefault(chat_key, set()).add(user_id)
            if user_id == person.user_id:
                requests.add(request_id)
                theirs.add(chat_key)
            elif person.user_id in payload and _unquoted(payload, person.user_id) is not None:
                theirs.add(chat_key)
    return requests, {key: chats[key] == {person.user_id} for key in theirs}


def rows(
    journal: Journal, person: UserRef, requests: Collection[str], chats: Collection[str]
) -> Iterator[tuple[str, Json]]:
    """The rows of a person, each with the name of its table; `chats` are those of theirs alone. Raises `errors.StorageError`."""
    with _opened(journal, write=False) as db:
        facts = _named(db, person, requests, chats)
        for table, condition in _TABLES.items():
            names = schema.tables()[table].columns
            found = db.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {condition}", facts)
            for row in found.fetchall():
                yield table, dict(zip(names, row, strict=True))


def take_lines(journal: Journal, to_files: Callable[[Sequence[LineRow]], None]) -> None:
    """Hand the lines of files that a journal has to whoever brings them there, and drop them. Raises `errors.StorageError`."""
    with _opened(journal, write=True) as db:
        rows = db.execute("SELECT number, file, lines FROM lines ORDER BY number").fetchall()
        to_files([LineRow(*row) for row in rows])
        db.execute("DELETE FROM lines")


def erase(
    journal: Journal,
    person: UserRef,
    requests: Collection[str],
    chats: Collection[str],
    quoted: Collection[str],
) -> int:
    """Erase the rows of a person; how many they were. What others quoted of them (`quoted` are the chats where that may be)
    loses its words. Raises `errors.StorageError`.
    """
    with _opened(journal, write=True) as db:
        facts = _named(db, person, requests, chats)
        db.execute("BEGIN IMMEDIATE")
        count = sum(
            db.execute(f"DELETE FROM {table} WHERE {_TABLES[table]}", facts).rowcount
            for table in _ERASED_IN_ORDER
        )
        db.execute("UPDATE approvals SET decided_name = NULL WHERE decided_by = ?", (str(person),))
        db.executemany(
            "DELETE FROM closed_targets WHERE channel = ? AND chat_id = ?",
            [(key.channel, key.chat_id) for key in map(ChatKey.parse, chats)],
        )
        for chat_key in quoted:
            found = db.execute("SELECT rowid, payload FROM inbox WHERE chat_key = ?", (chat_key,)).fetchall()
            for rowid, payload in found:
                if (left := _unquoted(payload, person.user_id)) is not None:
                    db.execute("UPDATE inbox SET payload = ? WHERE rowid = ?", (left, rowid))
        db.execute("COMMIT")
        if isinstance(journal, Path):
            file.newest(journal).unlink(missing_ok=True)
        _scrub(db, journal)
    return count


def outgoing_files(journal: Journal) -> set[str]:
    """The SHA-256 of each file that a row which has not ended is of. Raises `errors.StorageError`."""
    with _opened(journal, write=False) as db:
        found = db.execute(
            f"SELECT file FROM outbox WHERE state IN ({states(*OPEN_OUTBOX)}) AND file IS NOT NULL"
        ).fetchall()
    return {str(_read(row[0]).get("sha256")) for row in found}


def _read(raw: str) -> Json:
    """A JSON object; {} where it is none."""
    found = loads(raw)
    return found if isinstance(found, dict) else {}


def _scrub(db: Connection, journal: Journal) -> None:
    """Have nothing of what was deleted stay in free pages."""
    if isinstance(journal, str):
        db.execute("SET statement_timeout = 0")
        for table in schema.tables():
            db.execute(f"VACUUM FULL {table}")
        return
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _unquoted(payload: str, user_id: str) -> str | None:
    """An inbound without what it quotes of a person; None where that is nothing."""
    try:
        told = json.loads(payload)
        theirs = [one for one in told.get("quoted", ()) if one.get("userId") == user_id]
    except (ValueError, AttributeError, RecursionError):
        return None
    for one in theirs:
        one |= {"userId": None, "text": "", "userName": None, "part": None, "files": []}
    return json.dumps(told, ensure_ascii=False) if theirs else None


@contextlib.contextmanager
def _opened(journal: Journal, *, write: bool) -> Iterator[Connection]:
    """A connection for the block. Raises `errors.StorageError`."""
    with (
        errors.as_storage_error("the journal cannot be used", sqlite3.Error),
        closing(_connected(journal, write=write)) as db,
    ):
        yield db


def _connected(journal: Journal, *, write: bool) -> Connection:
    if not write:
        return file.open_to_read(Path(journal))
    db = file.open_to_write(Path(journal), lambda _: None)
    db.execute("PRAGMA secure_delete = ON")
    return db


def _named(
    db: Connection, person: UserRef, requests: Collection[str], chats: Collection[str]
) -> dict[str, Any]:
    """Put names where the conditions look for them; the other values that they need."""
    planned = [
        name
        for name, spec in db.execute("SELECT id, spec FROM jobs").fetchall()
        if (job := _read(spec)).get("userId") == person.user_id and job.get("channel") == person.channel
    ]
    for table, names in (("requests", requests), ("chats_of", chats), ("planned", planned)):
        db.execute(f"CREATE TEMP TABLE {table} (name TEXT PRIMARY KEY) WITHOUT ROWID")
        db.executemany(f"INSERT INTO {table} VALUES (?)", [(name,) for name in sorted(set(names))])
    return {
        "channel": person.channel,
        "user_id": person.user_id,
        "greeting": f"stranger:{person}",
    }
