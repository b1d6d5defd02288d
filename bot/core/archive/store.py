"""`ChatStore`: the archive of all chats. A chat has one main file and its rotated archives, with one JSON
object per line.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot import errors, system
from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.environment import Clock, Disk, Log, OpenFile
from bot.contracts.identity import ChatKey
from bot.core.archive import rotation
from bot.core.archive.lines import SEQ
from bot.core.archive.window import LineRange, Revisions, Window, may_revise, read_line, revisions
from bot.storage import file_names, jsonl

_SPANS = 10_000  # max archive files whose time ranges are cached
_CHATS = 10_000  # max chats whose edits and removals in archives are cached
_AT_ONCE = 1024 * 1024  # max bytes of a file that is checked as a whole
NEWEST = 100
"""Max lines searched backwards for a line whose event is in the log."""
NAME_LINES = 20
"""Max lines per chat that are searched for names."""
NAMES_SHOWN = 3
"""Max names of people shown per chat."""


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """A chat that has an archive. `last_ts` is the time of its newest readable line. `chat_key` is the
    chatKey as text, or the file name if no line contains the chatKey.
    """

    chat_key: str
    lines: int
    last_ts: int | None


class ChatStore:
    """Archive in a folder of JSONL files that any number of stores and processes may share.

    Lines are ordered by position, not by `ts`. `flush` returns once everything said before the call is in the
    files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk,
        log: Log,
        archive_after_lines: int = 1000,
        clock: Clock | None = None,
        flush: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.folder = folder
        self.files = rotation.ArchiveFiles(folder, disk)
        self.disk = disk
        self._log = log
        self._flush = flush
        self._limit = max(1, archive_after_lines)
        self._tails = jsonl.Files(disk, log=log, clock=clock or system.SystemClock())
        self._tidy = False
        self.spans: OrderedDict[Path, LineRange] = OrderedDict()
        # Per chat: archive numbers, sizes of archives with edits or removals, and the merged edits and removals.
        self._revised: OrderedDict[str, tuple[list[int], dict[Path, int], Revisions]] = OrderedDict()

    async def flush(self) -> None:
        """Append the pending lines. Returns after one attempt, whether or not the attempt succeeded."""
        if self._flush is not None:
            await self._flush()

    async def search(self, chat_key: ChatKey, query: HistoryQuery) -> HistoryPage:
        """Return the page of lines that `query` asks for and the exact number of matches.

        Counting reads every file of the chat except archives known to be outside the time range; a query with
        `counted=False` skips the counting. `query.skip` is called on other threads.
        """
        name = file_names.encode(chat_key)
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            window, numbers = await asyncio.to_thread(self._scan_main, name, query)
            for number in reversed(numbers):
                if window.full:
                    window.stop()
                    break
                await asyncio.to_thread(self._scan_archive, self.files.archive(name, number), window)
        page = window.page()
        if page.unreadable:
            self._log.write(
                "storage",
                f"{page.unreadable} lines of the archive cannot be read and were left out",
                level="warn",
                chat_key=chat_key,
                unreadable=page.unreadable,
            )
        return page

    async def removals(self, chat_key: ChatKey) -> list[ArchiveLine]:
        """Return the archive lines that record removals (see `bot.core.archive.window`). `meta.of` lists the
        removed requestIds, `meta.ofRole` says whether a person or the bot wrote the message. Raises
        `errors.StorageError`.
        """
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            found = await asyncio.to_thread(self._revisions, file_names.encode(chat_key))
        return list(found.removed.values())

    async def chats(self) -> list[ChatInfo]:
        """Return every chat that has an archive, latest first. Reads every file."""
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            return await asyncio.to_thread(lambda: self._chats(self.files.chats()))

    # Reading, on any thread.

    def _scan_main(self, name: str, query: HistoryQuery) -> tuple[Window, list[int]]:
        """Scan a chat's main file into a window. Returns the window and the numbers of the chat's rotated archives."""
        main, numbers = self._opened(name)
        with closing(main):
            revised = None if query.everything else self._revisions_in_all(main, name, numbers)
            window = Window(query, revised)
            window.scan(jsonl.lines_backwards(main))
        return window, numbers

    def _opened(self, name: str) -> tuple[OpenFile, list[int]]:
        """Open a chat's main file and list its rotated archives at the same moment, since a rotation may
        replace the open file.
        """
        with jsonl.locked(self.folder, shared=True):
            return self.files.opened(name)

    def _scan_archive(self, path: Path, window: Window) -> None:
        span = self.spans.get(path)
        if span is not None and window.passes(span):
            return
        with closing(self.disk.open(path)) as file:
            if not file.size:
                return  # an operator deleted the file
            span = window.scan(jsonl.lines_backwards(file))
        if span is None:
            return
        self.spans[path] = span
        self.spans.move_to_end(path)
        if len(self.spans) > _SPANS:
            self.spans.popitem(last=False)

    def _revisions(self, name: str) -> Revisions:
        main, numbers = self._opened(name)
        with closing(main):
            return self._revisions_in_all(main, name, numbers)

    def _revisions_in_all(self, main: OpenFile, name: str, numbers: list[int]) -> Revisions:
        """Return the edits and removals of all files of a chat. Rotated archives never change, so each is
        scanned once and cached.
        """
        found = _revisions_in(main)
        found.join(self._archives_revised(name, numbers))
        return found

    def _archives_revised(self, name: str, numbers: list[int]) -> Revisions:
        seen, sizes, said = self._revised.get(name, ([], {}, Revisions()))
        if seen != numbers[: len(seen)] or any(self.disk.size(path) != size for path, size in sizes.items()):
            seen, sizes, said = [], {}, Revisions()
        if seen != numbers:
            # Replace the value instead of changing it, since other threads may be reading it.
            sizes, said = dict(sizes), Revisions(dict(said.removed), dict(said.edits))
            for number in numbers[len(seen) :]:
                with closing(self.disk.open(self.files.archive(name, number))) as file:
                    more = _revisions_in(file)
                if more.removed or more.edits:
                    sizes[self.files.archive(name, number)] = file.size
                    said.join(more)
            self._revised[name] = list(numbers), sizes, said
            self._revised.move_to_end(name)
            if len(self._revised) > _CHATS:
                self._revised.popitem(last=False)
        return said

    def _chats(self, names: Sequence[str]) -> list[ChatInfo]:
        found = [info for name in names if (info := self._info(name))]
        return sorted(found, key=lambda info: info.last_ts or 0, reverse=True)

    def _info(self, name: str) -> ChatInfo | None:
        """Return the description of a chat; None if the chat has no lines."""
        newest, numbers = self._opened(name)
        older = [self.files.archive(name, number) for number in numbers]
        count, last_ts = self._counted(newest, None)
        for path in reversed(older):
            some, last_ts = self._counted(self.disk.open(path), last_ts)
            count += some
        key = rotation.chat_key(self.disk, name, [*older[:1], self.files.main(name)])
        return ChatInfo(name if key is None else key, count, last_ts) if count else None

    @staticmethod
    def _counted(opened: OpenFile, last_ts: int | None) -> tuple[int, int | None]:
        """Count the lines of a file. Returns the time of the file's newest readable line as well, unless
        that time is cached.
        """
        with closing(opened) as file:
            if last_ts is None:
                read = map(read_line, jsonl.lines_backwards(file))
                last_ts = next((line.ts for line in read if line is not None), None)
            return jsonl.count_lines(file, file.size), last_ts

    # Writing, on a writer's thread, under the folder's lock.

    def newest(self, name: str) -> list[tuple[str, int]]:
        """Return the request ids and event numbers of a chat's newest exported lines, newest first."""
        self.files.recover(name)
        found = list[tuple[str, int]]()
        main, numbers = self.files.opened(name)
        for file in (main, *(self.disk.open(self.files.archive(name, number)) for number in numbers[::-1])):
            with closing(file):
                for raw in jsonl.lines_backwards(file):
                    line = read_line(raw) if raw.strip() else None
                    if line is not None and isinstance(seq := (line.meta or {}).get(SEQ), int):
                        found.append((line.request_id, seq))
                        if len(found) == NEWEST:
                            return found
        return found

    def write_some(self, name: str, raws: Sequence[bytes], *, sync: bool) -> int:
        """Write as many lines as fit before the file must rotate, then rotate the file."""
        main = self.files.main(name)
        self.files.recover(name)
        tail = self._tails.tail(main)
        some = raws[: max(1, self._limit + 1 - tail.lines)]
        tail = self._tails.append(main, some, sync=sync, tail=tail)
        if tail.lines > self._limit:
            self._rotate(name, synced=sync)
        return len(some)

    def _rotate(self, name: str, *, synced: bool) -> None:
        try:
            if not synced:
                # After a crash, the file's size on disk shows whether a rotation was interrupted.
                self.disk.sync(self.files.main(name))
            self.files.rotate(name)
        except OSError as error:
            # The lines are safe; the next append retries the rotation.
            self._log.write(
                "storage", f"{name}: the older half cannot be archived: {error}", level="error", file=name
            )
        finally:
            self._tails.forget(self.files.main(name))

    def tidy_once(self) -> None:
        if not self._tidy:
            jsonl.tidy(self.disk, self.folder)
            self._tidy = True


def _revisions_in(file: OpenFile) -> Revisions:
    """Return the edits and removals of one file. A file without edits and removals is recognised without parsing."""
    if file.size <= _AT_ONCE and not may_revise(file.read(0, file.size)):
        return Revisions()
    return revisions(read_line(raw) for raw in jsonl.lines(file) if may_revise(raw))


async def people_of(archive: ChatStore, chat_keys: Iterable[str]) -> dict[str, str]:
    """Return the names of the people who wrote last in each chat. Raises `errors.StorageError`."""
    names = {}
    for chat_key in chat_keys:
        said = [name for _, name in await _speakers(archive, chat_key)]
        if found := list(dict.fromkeys(name.replace(",", "") for name in said)):
            names[chat_key] = ", ".join(found[:NAMES_SHOWN])
    return names


async def names_of(archive: ChatStore, chats: Mapping[str, str]) -> dict[str, str]:
    """Return the display names of people (`channel:id`). `chats` gives for each person the chat whose newest
    lines are searched. Raises `errors.StorageError`.
    """
    names = dict[str, str]()
    for person, chat_key in chats.items():
        # If a person has several names, the newest name is used.
        names |= {who: name for who, name in reversed(await _speakers(archive, chat_key)) if who == person}
    return names


async def _speakers(archive: ChatStore, chat_key: str) -> list[tuple[str, str]]:
    """Return people (`channel:id`) and their names from a chat's newest lines, newest first."""
    try:
        key = ChatKey.parse(chat_key)
    except errors.IdentityInvalid:
        return []
    page = await archive.search(key, HistoryQuery(limit=NAME_LINES, counted=False))
    said = ((line, (line.meta or {}).get("username")) for line in reversed(page.lines))
    return [(f"{line.channel}:{line.user_id}", str(name)) for line, name in said if name]
