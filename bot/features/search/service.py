"""Search: the index, the export from the log to the index, and queries."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bot import errors
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.event_log import EventLog
from bot.core.exports import Exporter, ExportLost
from bot.features.search import directory, index
from bot.features.search.finder import Finder
from bot.features.search.index import SearchIndex
from bot.tools.ports import ChatQuery, ListedChats, Recalled, RecallQuery

WAIT_SECONDS = 20.0
"""Timeout in seconds for a search that waits until the index is up to date."""
LIST_SECONDS = 0.2
"""Timeout in seconds for a list of conversations that waits until the index is up to date."""
T = TypeVar("T")


class Search:
    """Implements `tools.ports.Recalls` with the index in the file `path`; None keeps the index in memory."""

    def __init__(
        self,
        path: Path | None,
        event_log: EventLog,
        *,
        clock: Clock,
        log: OperatorLog,
        wait: float | None = WAIT_SECONDS,
    ) -> None:
        self.index = SearchIndex(path, event_log)
        self.exporter = Exporter(self.index, event_log, clock=clock, log=log)
        self._wait = wait
        self._clock = clock
        self._finder: tuple[sqlite3.Connection, Finder] | None = None

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """See `tools.ports.Recalls.recall`."""
        names = [str(key) for key in chat_keys]
        found, complete = await self._asked(partial(self._recalled, names, query))
        return Recalled(found.hits, found.total, complete)

    async def listed(self, query: ChatQuery) -> ListedChats:
        """See `tools.ports.Recalls.listed`."""
        work = partial(directory.listed, query=query, monotonic=self._clock.monotonic)
        found, complete = await self._asked(work, LIST_SECONDS)
        return replace(found, complete=complete)

    async def _asked(
        self, work: Callable[[sqlite3.Connection], T], wait: float | None = None
    ) -> tuple[T, bool]:
        """Return the result of this work, and whether the index is up to date."""
        complete = await self.caught_up(wait)
        try:
            return await self.index.run(work), complete
        except ExportLost:
            self.exporter.rewrite()
            complete = await self.caught_up(wait)
            return await self.index.run(work), complete

    def _recalled(self, names: Sequence[str], query: RecallQuery, db: sqlite3.Connection) -> Recalled:
        if self._finder is None or self._finder[0] is not db:
            self._finder = db, Finder(db)
        return self._finder[1].recall(names, query)

    async def kept(self, channel: str) -> list[ChatKey]:
        """See `tools.ports.Recalls.kept`."""
        await self.caught_up()
        return await self.index.run(partial(index.chats_of, channel=channel))

    async def saying(self, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
        """See `tools.ports.Recalls.saying`."""
        await self.caught_up()
        return await self.index.run(partial(index.chats_saying, chat=chat, words=words))

    async def rebuild(self) -> tuple[int, int]:
        """Rebuild the index; return the numbers of indexed chats and lines. Raises `errors.StorageError`."""
        with suppress(ExportLost):
            await self.index.run(index.make_anew)
        self.exporter.rewrite()
        await self.exporter.flush()
        await self.index.sync()
        return await self.index.run(index.counted)

    async def caught_up(self, wait: float | None = None) -> bool:
        """Wait until everything appended so far is indexed, at most `wait` seconds. Returns False after the timeout or if the disk fails."""
        try:
            async with asyncio.timeout(wait or self._wait):
                await self.exporter.flush()
            await self.index.sync()
        except (TimeoutError, errors.StorageError):
            return False
        return True
