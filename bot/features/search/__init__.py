"""Searches the archive. The search index is a separate file, which is rebuilt if somebody deletes it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bot import errors
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core import events, exports
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.exports import Export, Exporter, ExportLost, LineFold
from bot.core.feature import Feature, Hooks, Runtime
from bot.features.search import index, ranking
from bot.features.search.index import Entry
from bot.tools.context import ChatQuery, ListedChats, Recalled, RecallQuery

WAIT_SECONDS = 20.0  # max seconds for which a search waits until the index is up to date
LIST_SECONDS = 0.2  # max seconds for which a list of conversations waits until the index is up to date
SLICE = 500
"""Number of waiting changes at which they are written at once. Fewer changes are written at the next sync or search."""
T = TypeVar("T")


class Search(Export):
    """Implements `tools.context.Recalls`. The index is an export of the log to the file `path`. All database work
    runs on one separate thread.
    """

    name = "search index"

    def __init__(
        self,
        path: Path,
        event_log: EventLog,
        *,
        clock: Clock,
        log: OperatorLog,
        wait: float | None = WAIT_SECONDS,
    ) -> None:
        self.exporter = Exporter(self, event_log, clock=clock, log=log)
        self._path = path
        self._log = event_log
        self._wait = wait
        self._fold = LineFold(event_log)
        self._due: list[Entry] = []
        self._taken = 0
        self._cursor = 0
        """Last known position in the log up to which lines are indexed. A lower number on disk means that the file is new."""
        self._db: sqlite3.Connection | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._one_at_a_time = asyncio.Lock()

    # ------------------------------------------------------------ queries

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        names = [str(key) for key in chat_keys]
        found, complete = await self._asked(partial(ranking.recall, names=names, query=query))
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
        """Run `work` on the index. Return its result, and True if the index was up to date."""
        complete = await self.caught_up(wait)
        try:
            return await self._run(work), complete
        except ExportLost:
            self.exporter.rewrite()
            complete = await self.caught_up(wait)
            return await self._run(work), complete

    async def rebuild(self) -> tuple[int, int]:
        """Rebuild the index. Return the numbers of indexed chats and lines. Raises `errors.StorageError`."""
        with suppress(ExportLost):
            await self._run(index.make_anew)
        self.exporter.rewrite()
        await self.exporter.flush()
        await self.sync()
        return await self._run(index.counted)

    async def caught_up(self, wait: float | None = None) -> bool:
        """Wait at most `wait` seconds until all appended events are indexed. Return False if events are still missing."""
        try:
            async with asyncio.timeout(wait or self._wait):
                await self.exporter.flush()
            await self.sync()
        except (TimeoutError, errors.StorageError):
            return False
        return True

    # ------------------------------------------------------------ the export

    async def cursor(self) -> int:
        self._fold, self._due = LineFold(self._log), []
        self._cursor = self._taken = await self._run(index.cursor_of)
        return self._cursor

    @property
    def rests_on(self) -> int | None:
        return self._fold.rests_on

    async def take(self, n: int, event: Event) -> None:
        chat, found = str(event.chat), await self._fold.take(n, event)
        if found is not None:
            self._due.append(Entry(chat, event.seq, found[1]))
        match event.data:
            case events.Removed() as gone:
                names = frozenset({*gone.requests, *gone.turns})
                self._due.append(Entry(chat, event.seq, gone=names))
                for one in await self._log.naming(event.chat, {*names, *gone.messages}):
                    said = exports.of_message(one) if one.chat == event.chat else None
                    if said is not None and said.request_id not in names:
                        self._due.append(Entry(chat, one.seq, said, replaces=True))
            case events.Expired(at=at):
                self._due.append(Entry(chat, event.seq, since=int(at * 1000)))
        self._taken = n

    async def write(self) -> None:
        if len(self._due) >= SLICE:
            await self.sync()

    async def sync(self) -> None:
        async with self._one_at_a_time:
            due, self._due = self._due, []
            rests_on = self.rests_on
            cursor = self._taken if rests_on is None else min(self._taken, rests_on - 1)
            if not due and cursor <= self._cursor:
                return
            try:
                cursor = max(cursor, self._cursor)
                await self._run(lambda db: index.write(db, due, self._cursor, cursor))
                self._cursor = cursor
            except errors.StorageError:
                self._due = due + self._due
                raise

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the index's thread. Raises `errors.StorageError`. Deletes a damaged file and raises `ExportLost`."""
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="index")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._guarded, work)

    async def close(self) -> None:
        if self._pool is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._close)
            self._pool.shutdown()

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._db = self._db or index.opened(self._path)
            return work(self._db)
        except (sqlite3.Error, OSError) as error:
            self._close()
            # An `OperationalError`, such as a lock, or an error of the disk leaves the file intact.
            damaged = isinstance(error, sqlite3.DatabaseError)
            if not damaged or isinstance(error, sqlite3.OperationalError):
                raise errors.StorageError(f"the search index cannot be used: {error}") from error
            with errors.as_storage_error("the search index cannot be made anew"):
                for end in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + end).unlink(missing_ok=True)
            raise ExportLost(f"the search index was damaged: {error}") from error

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


def _build(runtime: Runtime) -> Hooks:
    path = runtime.settings.home / index.FILE
    search = Search(path, runtime.event_log, clock=runtime.clock, log=runtime.log)
    return Hooks(ports={"recall": search}, exports=(search.exporter,))


FEATURE = Feature("search", _build)
