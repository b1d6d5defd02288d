"""Searches the archive. The search index is a separate file, which is rebuilt if somebody deletes it."""

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
from bot.core.conversation_list import ChatQuery, ListedChats
from bot.core.event_log import EventLog
from bot.core.exports import Exporter, ExportLost
from bot.core.feature import Feature, Hooks, Runtime
from bot.features.search import index
from bot.features.search.ranking import Finder
from bot.tools.context import Recalled, RecallQuery

WAIT_SECONDS = 20.0  # timeout in seconds for a search to wait until the index is up to date
LIST_SECONDS = 0.2  # timeout in seconds for a list of conversations to wait until the index is up to date
T = TypeVar("T")


class Search:
    """Implements `tools.context.Recalls` with the search index in the file `path`."""

    def __init__(
        self,
        path: Path,
        event_log: EventLog,
        *,
        clock: Clock,
        log: OperatorLog,
        wait: float | None = WAIT_SECONDS,
    ) -> None:
        self.index = index.SearchIndex(path, event_log)
        self.exporter = Exporter(self.index, event_log, clock=clock, log=log)
        self._wait = wait

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        names = [str(key) for key in chat_keys]
        found, complete = await self._asked(lambda db: Finder(db).recall(names, query))
        return replace(found, complete=complete)

    async def listed(self, query: ChatQuery) -> ListedChats:
        found, complete = await self._asked(partial(index.listed, query=query), LIST_SECONDS)
        return replace(found, complete=complete)

    async def kept(self, channel: str) -> list[ChatKey]:
        return (await self._asked(partial(index.chats_of, channel=channel)))[0]

    async def saying(self, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
        return (await self._asked(partial(index.chats_saying, chat=chat, words=words)))[0]

    async def _asked(
        self, work: Callable[[sqlite3.Connection], T], wait: float | None = None
    ) -> tuple[T, bool]:
        """Return the result of `work` on the index, and True if the index was up to date."""
        complete = await self.caught_up(wait)
        try:
            return await self.index.run(work), complete
        except ExportLost:
            self.exporter.rewrite()
            complete = await self.caught_up(wait)
            return await self.index.run(work), complete

    async def rebuild(self) -> tuple[int, int]:
        """Rebuild the index. Return the numbers of indexed chats and lines. Raises `errors.StorageError`."""
        with suppress(ExportLost):
            await self.index.run(index.make_anew)
        self.exporter.rewrite()
        await self.exporter.flush()
        await self.index.sync()
        return await self.index.run(index.counted)

    async def caught_up(self, wait: float | None = None) -> bool:
        """Wait at most `wait` seconds until all appended events are indexed. Return False if events are still missing."""
        try:
            async with asyncio.timeout(wait or self._wait):
                await self.exporter.flush()
            await self.index.sync()
        except (TimeoutError, errors.StorageError):
            return False
        return True


def _build(runtime: Runtime) -> Hooks:
    path = runtime.settings.home / index.FILE
    search = Search(path, runtime.event_log, clock=runtime.clock, log=runtime.log)
    return Hooks(ports={"recall": search}, exports=(search.exporter,))


FEATURE = Feature("search", _build)
