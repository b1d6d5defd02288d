"""Reads turns from a journal beside the gateway that owns it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bot.contracts.environment import Clock, Log
from bot.journal import file
from bot.journal.database import ReadOnlyDatabase
from bot.journal.inbox import SqliteInbox
from bot.journal.outbox import SqliteOutbox
from bot.journal.steps import SqliteSteps


class JournalView(SqliteInbox, SqliteSteps, SqliteOutbox):
    """The journal in `path`, read-only. A change, or a file that cannot be read, raises `errors.StorageError`."""

    def __init__(self, path: Path, *, clock: Clock, log: Log) -> None:
        super().__init__(ReadOnlyDatabase(path, clock=clock, log=log), clock=clock, log=log)

    async def close(self) -> None:
        await self._base.close()


def damage(path: Path) -> str:
    """Return what is wrong with the file of a journal, which is read as a whole; "" if nothing is. Blocking.

    Raises `errors.StorageError` where its version is not ours.
    """
    try:
        with closing(file.open_to_read(path, 5.0)) as db:
            (verdict,) = db.execute(f"PRAGMA {file.WHOLE}(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return "" if verdict == "ok" else str(verdict)
