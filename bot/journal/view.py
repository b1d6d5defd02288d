"""Reads turns from a journal beside the gateway that owns it."""

from __future__ import annotations

from pathlib import Path

from bot.contracts.environment import Clock, Log
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
