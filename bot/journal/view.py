"""Reads turns from a journal beside the gateway that owns it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bot.contracts.environment import Clock, Log
from bot.journal import file, schema
from bot.journal.database import ReadOnlyFile
from bot.journal.inbox import SqlInbox
from bot.journal.outbox import SqlOutbox
from bot.journal.steps import SqlSteps


class JournalView(SqlInbox, SqlSteps, SqlOutbox):
    """A journal, read-only. A change, or one that cannot be read, raises `errors.StorageError`."""

    async def close(self) -> None:
        await self.base.close()


def in_file(path: Path, *, clock: Clock, log: Log) -> JournalView:
    return JournalView(ReadOnlyFile(path, clock=clock, log=log), clock=clock, log=log)


def mismatch(path: Path) -> str:
    """Say whose journal it is that has another version than ours; "" where it is ours, or cannot be read. Blocking."""
    try:
        with closing(file.open_to_read(path, any_version=True)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error:
        return ""
    return schema.mismatch(version) if version else ""


def damage(path: Path) -> str:
    """Return what is wrong with the file of a journal, which is read as a whole; "" if nothing is. Blocking.

    Raises `errors.StorageError` where its version is not ours.
    """
    try:
        with closing(file.open_to_read(path)) as db:
            (verdict,) = db.execute(f"PRAGMA {file.WHOLE}(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return "" if verdict == "ok" else str(verdict)
