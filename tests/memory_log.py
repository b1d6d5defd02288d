"""An event log in memory, for tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bot.core.event_log import Entry
from bot.core.events import encode
from bot.core.sqlite_log import SCHEMA, SqliteLog
from bot.system import SystemClock
from bot.testing.log import MemoryLog as Lines

_R = TypeVar("_R")


class MemoryLog(SqliteLog):
    """A `SqliteLog` whose database is in memory. It may be used outside of an event loop; then `write` writes the events."""

    def __init__(self) -> None:
        super().__init__(Path("memory"), clock=SystemClock(), log=Lines())
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.executescript(SCHEMA)

    def _reading(self, work: Callable[[Any], _R]) -> _R:
        return work(self._db)

    def append(self, entries: Sequence[Entry]) -> None:
        self._pending.append([replace(one, raw=one.raw or encode(one.event.data)) for one in entries])

    def write(self) -> None:
        batch, self._pending = self._pending, []
        self._transaction([entry for some in batch for entry in some])
        self._well({entry.event.chat: entry.event.seq for some in batch for entry in some})

    async def committed(self, *, patient: bool = True) -> None:
        self.write()

    @property
    def text(self) -> str:
        return str(self._db.execute("SELECT * FROM events").fetchall())
