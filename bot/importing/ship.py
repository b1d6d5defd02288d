"""Imports the journal and archive of version 0.1 into a new `shipmate.db`, at the first start in such a
`.ship`.

The database is written under a temporary name and renamed once it is complete. Only then are the old files
moved to `before-0.2`. If the process is killed, either everything has been imported or nothing. Ids are
hashes of the imported data.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core.chat import Chat
from bot.core.event_log import RESTORED
from bot.core.events import Event, encode, fact_of, keys_of
from bot.core.sql_log import APPEND, FACT, KEY, POSITION
from bot.core.sqlite_log import SCHEMA
from bot.importing.events_of import Found, Source, events_of

LOG, NEW, JOURNAL = "shipmate.db", "shipmate.db.importing", "journal.db"
BACKUP = "before-0.2"
"""Folder in `.ship` to which the files of version 0.1 are moved."""
CLEAN = "clean"
"""Name of a file in the backup folder. The file exists once a process has used the imported data and exited cleanly."""
MOVED = ("chats", "transcripts", "index.db", "usage.db", "cache", JOURNAL)
"""Names of obsolete files of version 0.1. The journal is moved last, because its existence shows that there
are still files to move.
"""
SUFFIXES = ("", "-wal", "-shm")


def import_ship(
    home: Path,
    make: Callable[[ChatKey], Chat],
    *,
    needs_turn: Callable[[Inbound], bool],
    is_operator: Callable[[Inbound], bool],
    prefix: Callable[[Inbound], str],
) -> int | None:
    """Import the folder `home`. Return the number of events; None if there are no files of version 0.1.
    Raises OSError and `sqlite3.Error`.
    """
    journal, log = home / JOURNAL, home / LOG
    if not journal.exists():
        return None
    count = None
    if not log.exists():
        for suffix in ("", "-journal", *SUFFIXES[1:]):
            (home / (NEW + suffix)).unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(journal)) as old:
            found = events_of(Source(old, home, needs_turn, is_operator, prefix))
        count = _write(home / NEW, found, make, restored=(home / RESTORED).exists())
        (home / NEW).replace(log)
        _sync(home)
    _move_away(home)
    (home / RESTORED).unlink(missing_ok=True)
    return count


def end_cleanly(home: Path) -> None:
    """Record that a process has exited cleanly, so that the next start removes the backup. Raises OSError."""
    if (backup := home / BACKUP).exists():
        (backup / CLEAN).touch()


def remove_backup(home: Path) -> bool:
    """Remove the backup if a process has exited cleanly since the import. Return True if the backup was
    removed. Errors are ignored.
    """
    clean = (home / BACKUP / CLEAN).exists()
    if clean:
        shutil.rmtree(home / BACKUP, ignore_errors=True)
    return clean


def _write(path: Path, found: Found, make: Callable[[ChatKey], Chat], *, restored: bool) -> int:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = full")
        db.executescript(SCHEMA)
        db.execute("BEGIN")
        for chat, events in found.chats.items():
            _write_chat(db, make(chat), events)
        db.executemany(KEY, found.keys)
        if restored:
            db.execute(FACT, (RESTORED, RESTORED, "{}"))
        db.execute("COMMIT")
    return sum(map(len, found.chats.values()))


def _write_chat(db: sqlite3.Connection, chat: Chat, events: list[Event]) -> None:
    for event in events:
        chat.apply(event)
        row = (str(event.chat), event.seq, event.id, event.turn, event.person, event.kind, event.at)
        db.execute(APPEND, (*row, encode(event.data)))
        db.executemany(KEY, [(key, str(event.chat), event.seq) for key in keys_of(event.data)])
        if (fact := fact_of(event.data)) is not None:
            kind, key, value = fact
            db.execute(FACT, (kind, key, json.dumps(value, ensure_ascii=False)))
    at = chat.position
    db.execute(POSITION, (str(chat.key), at.base, at.open))


def _move_away(home: Path) -> None:
    """Move the files of version 0.1 into the backup. A file that a killed import has already moved is kept."""
    backup = home / BACKUP
    backup.mkdir(exist_ok=True)
    for name in MOVED:
        for suffix in reversed(SUFFIXES):
            old, kept = home / (name + suffix), backup / (name + suffix)
            if old.exists() and not kept.exists():
                old.replace(kept)
    _sync(backup)
    _sync(home)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
