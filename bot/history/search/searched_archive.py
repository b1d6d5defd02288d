"""The archive with its index beside it: what is written is indexed on a thread of its own, and searched there."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.environment import Disk, Log
from bot.contracts.identity import ChatKey
from bot.contracts.recall import Hit, Recalled, RecallQuery
from bot.core import file_names
from bot.core.archive import rotation
from bot.core.archive.store import ChatInfo
from bot.history.archive.store import ChatStore
from bot.history.search import index_file, matching
from bot.history.search.finder import SearchQuery, parse_query
from bot.history.search.index import Index
from bot.history.search.recall import Recall

LINGER = 1.0
"""Seconds after a line is written before it is indexed: its answer comes meanwhile as a rule. A search that comes first indexes it."""
SLICE = 200
"""Lines that are indexed at once while the gateway runs."""
TOGETHER = 50
"""Chats whose lines are indexed at once: many that spoke in the same moment, with a line or two each."""
WAIT_BYTES = 1_000_000
"""Bytes of a chat that a search indexes before it looks. Where more is missing, only as much of the newest is looked at."""
NEAR = 1
"""Lines that come with a hit, on each side."""

T = TypeVar("T")


class SearchedArchive:
    """`contracts.archive.Archive` and `contracts.recall.Recalls`: a `ChatStore` and its index in `path`, which can be lost without harm.

    An append never waits for the index. `tend` finds what a crash, another process or a lost index left behind.
    """

    def __init__(
        self,
        store: ChatStore,
        path: Path,
        *,
        folder: Path,
        disk: Disk,
        log: Log,
        wait_bytes: int = WAIT_BYTES,
    ) -> None:
        self._store = store
        self._path = path
        self._folder = folder
        self._disk = disk
        self._log = log
        self._wait_bytes = wait_bytes
        self._recall: Recall | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._dirty: dict[str, None] = {}
        self._keys: dict[str, ChatKey] = {}
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._whole = False
        self._trouble = ""
        self._closed = False

    # The archive

    async def append(self, line: ArchiveLine, *, hurry: bool = True) -> None:
        await self._store.append(line, hurry=hurry)
        self._touch(file_names.encode(line.chat_key))

    async def flush(self) -> None:
        await self._store.flush()

    async def search(self, chat_key: ChatKey, query: HistoryQuery) -> HistoryPage:
        """As `contracts.archive.Archive.search`: literal text by the index, where that narrows it down."""
        if query.keyword and not query.everything:
            await self.flush()
            try:
                page = await self._on_thread(lambda: self._matching(file_names.encode(chat_key), query))
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
                page = None
            if page is not None:
                return page
        return await self._store.search(chat_key, query)

    def replay(self, name: str, lines: Sequence[bytes]) -> Path:
        """As `line_stream.Replays.replay`; the index finds them by itself."""
        return self._store.replay(name, lines)

    async def removals(self, chat_key: ChatKey) -> list[ArchiveLine]:
        return await self._store.removals(chat_key)

    async def chats(self, named: Sequence[str] | None = None) -> list[ChatInfo]:
        """As `ChatStore.chats`; what the index tells of a chat is not counted again."""
        await self.flush()
        try:
            known = await self._on_thread(lambda: self._counted(named))
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            known = {}
        return await self._store.chats(known, named)

    def changed(self, name: str) -> None:
        """Lines of a chat were removed from its files: the index is to follow."""
        # Not awaited: what comes next on that thread comes after it.
        self._thread().submit(self._forget_sizes, name)
        self._touch(name)

    async def recent(self, offset: int, limit: int) -> tuple[list[ChatInfo], int]:
        """A part of the chats, the ones last spoken in first, and how many there are in all. Files of that part alone are read.
        Raises `errors.StorageError`.
        """
        with errors.as_storage_error("the archive cannot be read"):
            names = await self._newest_first()
        return await self.chats(names[offset : offset + limit]), len(names)

    async def close(self) -> None:
        """Write what waits. What is not indexed then is at the next start."""
        self._closed = True
        self._cancel_timer()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._pool is not None:
            await self._on_thread(self._forget)
            self._pool.shutdown(wait=False)
            self._pool = None
        await self._store.close()

    # Searching

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """As `contracts.recall.Recalls.recall`."""
        if not any(_says_something(phrasing, query.now) for phrasing in query.queries):
            return await self._literally(chat_keys, query)
        await self.flush()
        try:
            return await self._on_thread(lambda: self._recalled(chat_keys, query))
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
        # The index may be at fault; the archive is not: a passing one over its newest lines does as well.
        with errors.as_storage_error("the archive cannot be searched", sqlite3.Error, OSError):
            return await asyncio.to_thread(self._looked_through, chat_keys, query)

    async def kept(self, channel: str) -> list[ChatKey]:
        """As `contracts.recall.Recalls.kept`, the ones last spoken in first as far as that is known."""
        found = await self._newest_first()
        keys = await asyncio.to_thread(lambda: [self._key(name) for name in found])
        return [key for key in keys if key is not None and key.channel == channel]

    async def _newest_first(self) -> list[str]:
        """The names of all chats, the ones last spoken in first as far as that is known."""
        await self.flush()
        found = await asyncio.to_thread(self._names)
        try:
            times = await self._on_thread(self._times)
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            times = {}
        # What is not indexed yet was written just now.
        found.sort(key=lambda name: times.get(name, 1 << 62), reverse=True)
        return found

    def _key(self, name: str) -> ChatKey | None:
        """The key of a chat; where it is too long to be the name of a file, its lines tell it."""
        if name not in self._keys:
            archives = rotation.ArchiveFiles(self._folder, self._disk)
            told = rotation.chat_key(self._disk, name, [archives.archive(name, 1), archives.main(name)])
            if told is None:
                return None  # nothing that tells it was written yet
            try:
                self._keys[name] = ChatKey.parse(told)
            except errors.IdentityInvalid:
                return None  # a file that is no chat's
        return self._keys[name]

    async def _literally(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """Look for a question as it stands, in its first phrasing, if nothing in it can be ranked (`who are you`)."""
        asked = next(iter(query.queries), "").strip()
        found: list[ArchiveLine] = []
        total = 0
        window = HistoryQuery(
            limit=query.limit + query.offset,
            keyword=query.keyword or asked[:200],
            role=query.role,
            before=query.before,
            after=query.after,
            skip=query.skip,
        )
        for key in chat_keys if asked else ():
            page = await self._store.search(key, window)
            found += page.lines
            total += page.total
        found.sort(key=lambda line: line.ts, reverse=True)
        return Recalled([Hit(line, 0.0) for line in found[query.offset :][: query.limit]], total)

    # Keeping up

    async def tend(self) -> None:
        """Catch up with chats that nobody has spoken in since the start; where the index was lost, with all of them."""
        if not self._whole:
            self._whole = True
            for name in await asyncio.to_thread(self._names):
                self._touch(name)

    async def caught_up(self) -> None:
        """Wait until what was written before is indexed."""
        while (task := self._begin() if self._timer is not None else self._task) and not task.done():
            await asyncio.wait([task])

    def _names(self) -> list[str]:
        listed = self._disk.names(self._folder)
        return sorted({name.split(".", 1)[0] for name in listed if name.endswith(".jsonl")})

    def _touch(self, name: str) -> None:
        self._dirty[name] = None
        if self._timer is None and (self._task is None or self._task.done()):
            self._wait()

    def _wait(self) -> None:
        if not self._closed:
            # In no turn's context, which it would keep.
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._begin, context=Context())

    def _begin(self) -> asyncio.Task[None]:
        self._cancel_timer()
        self._task = asyncio.get_running_loop().create_task(self._keep_up(), name="index")
        return self._task

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        together = TOGETHER
        while self._dirty:
            names = list(islice(self._dirty, together))
            for name in names:
                del self._dirty[name]
            began = loop.time()
            try:
                more = await self._on_thread(partial(self._take_in, names))
            except (sqlite3.Error, OSError) as error:
                if len(names) == 1:
                    self._failed(error)
                    return
                # One of them must not keep the others out.
                together = 1
                more = names
            else:
                self._trouble = ""
            self._dirty |= dict.fromkeys(more)
            if not more and len(self._dirty) < TOGETHER:
                break
            # Half of the time is for those who wait for the interpreter.
            await asyncio.sleep(loop.time() - began)
        if self._dirty:
            self._wait()

    def _failed(self, error: Exception) -> None:
        """Told once. The next line that is written, or the next look, tries again, from a new index if need be."""
        self._whole = False
        words = f"the search index cannot be used: {error}"
        if words != self._trouble:
            self._trouble = words
            self._log.write("storage", words, level="warn", file=self._path.name)
        damaged = isinstance(error, sqlite3.Error) and index_file.damaged(error)
        # Not awaited: what comes next on that thread comes after it.
        self._thread().submit(self._forget, damaged=damaged)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread(), work)

    def _thread(self) -> ThreadPoolExecutor:
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="index")
        return self._pool

    # On the index's thread

    def _opened(self) -> Recall:
        if self._recall is None:
            self._recall = Recall.opened(self._path, self._folder, self._disk)
        return self._recall

    def _take_in(self, names: Sequence[str]) -> Sequence[str]:
        return self._opened().index.catch_up_together(names, SLICE)

    def _counted(self, named: Sequence[str] | None) -> dict[str, tuple[int, int | None]]:
        """Of the chats that are indexed to their ends, how many lines they have, and the time of the last one."""
        index = self._opened().index
        told = index.newest_lines()
        return {name: told[name] for name in named or told if name in told and not index.behind(name)}

    def _times(self) -> dict[str, int]:
        return self._opened().index.last_times()

    def _forget_sizes(self, name: str) -> None:
        if self._recall is not None:
            self._recall.index.streams.forget(name)

    def _forget(self, *, damaged: bool = False) -> None:
        recall, self._recall = self._recall, None
        if recall is not None:
            with contextlib.suppress(sqlite3.Error):
                recall.close()
        if damaged:
            with contextlib.suppress(OSError):
                index_file.remove(self._path)

    def _matching(self, name: str, query: HistoryQuery) -> HistoryPage | None:
        index = self._opened().index
        return matching.page(index, name, query) if self._caught_up(index, name) else None

    def _caught_up(self, index: Index, name: str) -> bool:
        """Take in what is missing of a chat; False where that is too much to wait for."""
        behind = index.behind(name)
        if behind > self._wait_bytes:
            return False
        while behind and index.catch_up(name):
            pass
        return True

    def _recalled(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        recall = self._opened()
        with recall.index.streams.keeping():
            if all(self._caught_up(recall.index, file_names.encode(key)) for key in chat_keys):
                return _hits(recall, chat_keys, query)
        return self._looked_through(chat_keys, query)

    def _looked_through(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """The newest lines of each chat, by an index that is made for this question."""
        passing = Recall.opened(None, self._folder, self._disk)
        try:
            for key in chat_keys:
                name = file_names.encode(key)
                passing.index.begin_near_the_end(name, self._wait_bytes)
                while passing.index.catch_up(name):
                    pass
            found = _hits(passing, chat_keys, query)
        finally:
            passing.close()
        return Recalled(found.hits, found.total, complete=False)


def _hits(recall: Recall, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
    keyword = query.keyword.casefold() if query.keyword else ""

    def keep(line: ArchiveLine) -> bool:
        return (not keyword or keyword in line.text.casefold()) and not (query.skip and query.skip(line))

    search = SearchQuery(query.queries, query.now, role=query.role, before=query.before, after=query.after)
    hits, total = recall.hits(
        chat_keys, search, limit=query.limit, offset=query.offset, keep=keep, reach=NEAR
    )
    return Recalled(hits, total)


def _says_something(phrasing: str, now: int) -> bool:
    times, terms = parse_query(phrasing, now)
    return bool(times.ranges) or bool(terms)
