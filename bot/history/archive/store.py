"""`ChatStore`: what people and the bot said, one JSON object a line, one file a chat and its archives."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot import errors, system
from bot.batch import Batcher
from bot.contracts.archive import Archive, ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.environment import Clock, Disk, Log, OpenFile
from bot.contracts.identity import ChatKey
from bot.history import file_names, jsonl
from bot.history.archive import rotation
from bot.history.archive.window import LineRange, Revisions, Window, may_revise, read_line, revisions
from bot.history.line_stream import LineStream, Ticket, missing

_SPANS = 10_000  # archive files whose times are remembered
_CHATS = 10_000  # of which is remembered what their archives revise
_AT_ONCE = 1024 * 1024  # bytes of a file that are looked at as one
FILES = "chats"
"""The first part of the names of its files in the journal."""
KEPT_BYTES = 16 * 1024 * 1024
"""Of lines that the disk refused; what comes on top is written at the next start where its row is in the journal, else lost (to the
archive alone: the journal has what was said).
"""
NAME_LINES = 20
"""Lines of a chat that are looked at for names."""
NAMES_SHOWN = 3
"""Names of a chat that are shown."""


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """A chat that has an archive; `last_ts` is the time of its newest readable line. `chat_key` is text: that of the
    chatKey, or the name of the file where nothing tells that.
    """

    chat_key: str
    lines: int
    last_ts: int | None


@dataclass(frozen=True, slots=True)
class _Entry:
    chat_key: ChatKey
    raw: bytes
    ticket: Ticket | None = None


class ChatStore:
    """`contracts.archive.Archive` in a folder of JSONL files. Any number of stores and processes may share the folder.

    Lines of one chat stand in the order of `append`. Windows count in that order too: a line that arrives late
    stands where it arrived, whatever its `ts`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk,
        log: Log,
        archive_after_lines: int = 1000,
        clock: Clock | None = None,
        stream: LineStream | None = None,
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._log = log
        self._stream = stream
        self._limit = max(1, archive_after_lines)
        self._files = jsonl.Files(disk, log=log, clock=clock or system.SystemClock())
        self._archives = rotation.ArchiveFiles(folder, disk)
        self._writer: Batcher[_Entry | None, None] = Batcher("archive", self._write, patient=True)
        # Lines that the disk refused, by chat; touched by the writer's thread alone.
        self.kept: dict[ChatKey, list[_Entry]] = {}
        self._tidy = False
        self.spans: OrderedDict[Path, LineRange] = OrderedDict()
        # Of the archives of a chat: their numbers, the sizes of those that revise anything, and what they say together.
        self._revised: OrderedDict[str, tuple[list[int], dict[Path, int], Revisions]] = OrderedDict()

    async def append(self, line: ArchiveLine, *, hurry: bool = True) -> None:
        """Write one line; returns once it is on disk. Raises `errors.StorageError`; the line is then kept, in memory and in the
        journal, and written before the next one.
        """
        fields = line.model_dump(by_alias=True)
        raw = jsonl.dumps({key: value for key, value in fields.items() if value is not None})
        if self._stream is None:
            await self._writer.put(_Entry(line.chat_key, raw), hurry=hurry)
            return
        name = file_names.encode(line.chat_key)
        ticket = self._stream.put(f"{FILES}/{name}", lambda: raw)
        await self._writer.put(_Entry(line.chat_key, raw, ticket), hurry=hurry)
        await self._stream.lasting([self._archives.main(name)], [ticket])

    async def flush(self) -> None:
        """As `contracts.archive.Archive.flush`."""
        await self._writer.flush()

    async def search(self, chat_key: ChatKey, query: HistoryQuery) -> HistoryPage:
        """The window that `query` asks for, and the exact number of all matches.

        The exact number has a price: every file of the chat is read, but for archives known to lie outside the
        time asked for. A `query` that is not `counted` is free of it. `query.skip` is called on other threads.
        """
        name = file_names.encode(chat_key)
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            window, numbers = await asyncio.to_thread(self._scan_main, name, query)
            for number in reversed(numbers):
                if window.full:
                    window.stop()
                    break
                await asyncio.to_thread(self._scan_archive, self._archives.archive(name, number), window)
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
        """As `contracts.archive.Archive.removals`."""
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            found = await asyncio.to_thread(self._revisions, file_names.encode(chat_key))
        return list(found.removed.values())

    async def chats(
        self,
        known: Mapping[str, tuple[int, int | None]] | None = None,
        named: Sequence[str] | None = None,
    ) -> list[ChatInfo]:
        """Every chat that has an archive, or those `named` by the names of their files, the one last spoken in first. Reads every
        file, but of chats of which is `known`, by name too, how many lines they have and the time of the newest.
        """
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            return await asyncio.to_thread(self._chats, known or {}, named)

    async def close(self) -> None:
        """Write what waits, lines that the disk refused before included."""
        if self.kept:
            await self._writer.put(None)
        await self._writer.close()
        if lost := sum(entry.ticket is None for kept in self.kept.values() for entry in kept):
            self._log.write(
                "storage", f"{lost} lines of the archive could not be written", level="error", lines=lost
            )

    # Reading, on any thread.

    def _scan_main(self, name: str, query: HistoryQuery) -> tuple[Window, list[int]]:
        """Begin a window with the chat's newest file; also the numbers of its archives."""
        main, numbers = self._opened(name)
        with closing(main):
            revised = None if query.everything else self._revisions_in_all(main, name, numbers)
            window = Window(query, revised)
            window.scan(jsonl.lines_backwards(main))
        return window, numbers

    def _opened(self, name: str) -> tuple[OpenFile, list[int]]:
        """A chat's newest file and the numbers of its archives, as they are at one moment: a rotation puts another file in the
        place of the one that is open.
        """
        with jsonl.locked(self._folder, shared=True):
            return self._archives.opened(name)

    def _scan_archive(self, path: Path, window: Window) -> None:
        span = self.spans.get(path)
        if span is not None and window.passes(span):
            return
        with closing(self._disk.open(path)) as file:
            if not file.size:
                return  # taken away by an operator
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
        """Return what a chat's lines say of others of them. An archive file does not change: it is looked at once."""
        found = _revisions_in(main)
        found.join(self._archives_revised(name, numbers))
        return found

    def _archives_revised(self, name: str, numbers: list[int]) -> Revisions:
        seen, sizes, said = self._revised.get(name, ([], {}, Revisions()))
        if seen != numbers[: len(seen)] or any(self._disk.size(path) != size for path, size in sizes.items()):
            seen, sizes, said = [], {}, Revisions()
        if seen != numbers:
            # Made anew rather than changed: others may be reading what was known.
            sizes, said = dict(sizes), Revisions(dict(said.removed), dict(said.edits))
            for number in numbers[len(seen) :]:
                with closing(self._disk.open(self._archives.archive(name, number))) as file:
                    more = _revisions_in(file)
                if more.removed or more.edits:
                    sizes[self._archives.archive(name, number)] = file.size
                    said.join(more)
            self._revised[name] = list(numbers), sizes, said
            self._revised.move_to_end(name)
            if len(self._revised) > _CHATS:
                self._revised.popitem(last=False)
        return said

    def _chats(
        self, known: Mapping[str, tuple[int, int | None]], named: Sequence[str] | None
    ) -> list[ChatInfo]:
        every = self._archives.chats() if named is None else named
        found = [info for name in every if (info := self._info(name, known.get(name)))]
        return sorted(found, key=lambda info: info.last_ts or 0, reverse=True)

    def _info(self, name: str, known: tuple[int, int | None] | None) -> ChatInfo | None:
        """Of a chat without a line: None."""
        newest, numbers = self._opened(name)
        older = [self._archives.archive(name, number) for number in numbers]
        if known is not None:
            newest.close()
            count, last_ts = known
        else:
            count, last_ts = self._counted(newest, None)
            for path in reversed(older):
                some, last_ts = self._counted(self._disk.open(path), last_ts)
                count += some
        key = rotation.chat_key(self._disk, name, [*older[:1], self._archives.main(name)])
        return ChatInfo(name if key is None else key, count, last_ts) if count else None

    @staticmethod
    def _counted(opened: OpenFile, last_ts: int | None) -> tuple[int, int | None]:
        """The lines of a file, and the time of its newest readable one where that is not known yet."""
        count = 0
        with closing(opened) as file:
            for raw in jsonl.lines_backwards(file):
                if raw.strip():
                    count += 1
                    line = read_line(raw) if last_ts is None else None
                    last_ts = last_ts if line is None else line.ts
        return count, last_ts

    # Writing, on the writer's thread.

    def _write(self, batch: list[_Entry | None]) -> Sequence[errors.StorageError | None]:
        entries = [entry for entry in batch if entry is not None]
        chats: dict[ChatKey, list[_Entry]] = {}
        for entry in entries:
            chats.setdefault(entry.chat_key, []).append(entry)
        written: dict[ChatKey, int] = {}
        failures: dict[ChatKey, errors.StorageError] = {}
        try:
            with jsonl.locked(self._folder):
                self._tidy_once()
                for key, some in chats.items():
                    written[key] = self._write_chat(key, some, failures)
                # The disk works (again): write what quiet chats still owe.
                for key in [] if failures else list(self.kept):
                    self._write_chat(key, [], {})
        except OSError as error:
            # Not even the lock can be had.
            for key in chats.keys() - written.keys():
                failures[key] = self._keep(key, chats[key], error)
        results: list[errors.StorageError | None] = []
        for item in batch:
            if item is None:
                results.append(None)
                continue
            written[item.chat_key] = written.get(item.chat_key, 0) - 1
            results.append(failures[item.chat_key] if written[item.chat_key] < 0 else None)
        return results

    def replay(self, name: str, lines: Sequence[bytes]) -> Path:
        """As `line_stream.Replays.replay`."""
        main = self._archives.main(name)
        with jsonl.locked(self._folder):
            self._tidy_once()
            self._archives.recover(name)
            self._files.tail(main)  # repaired
            older = [self._archives.archive(name, number) for number in self._archives.numbers(name)]
            left = missing(lines, map(self._disk.open, [main, *reversed(older)]))
            while left:
                del left[: self._write_some(name, left)]
        return main

    def _write_chat(
        self, key: ChatKey, entries: list[_Entry], failures: dict[ChatKey, errors.StorageError]
    ) -> int:
        """Write lines of one chat after those it owes; returns how many of `entries` are written."""
        owed = self.kept.pop(key, [])
        due = owed + entries
        done = 0
        name = file_names.encode(key)
        try:
            while done < len(due):
                some = self._write_some(name, [entry.raw for entry in due[done:]])
                self._written(name, due[done : done + some])
                done += some
            if self._stream is not None and any(entry.ticket is None for entry in owed):
                # The journal does not have these.
                self._disk.sync(self._archives.main(name))
                self._disk.sync(self._folder)
        except OSError as error:
            failures[key] = self._keep(key, due[done:], error, told=not entries)
        return max(0, done - len(owed))

    def _written(self, name: str, entries: Sequence[_Entry]) -> None:
        tickets = [entry.ticket for entry in entries if entry.ticket is not None]
        if self._stream is not None and tickets:
            self._stream.written([self._archives.main(name)], tickets)

    def _write_some(self, name: str, raws: list[bytes]) -> int:
        """Write as many lines as go into the file before it has to be rotated, and rotate it then."""
        main = self._archives.main(name)
        self._archives.recover(name)
        tail = self._files.tail(main)
        some = raws[: max(1, self._limit + 1 - tail.lines)]
        tail = self._files.append(main, some, sync=self._stream is None, tail=tail)
        if tail.lines > self._limit:
            self._rotate(name)
        return len(some)

    def _rotate(self, name: str) -> None:
        try:
            if self._stream is not None:
                # Whether a rotation was cut off is told by the size that the file has on the disk.
                self._disk.sync(self._archives.main(name))
            self._archives.rotate(name)
        except OSError as error:
            # The lines are safe; the next append tries again.
            self._log.write(
                "storage", f"{name}: the older half cannot be archived: {error}", level="error", file=name
            )
        finally:
            self._files.forget(self._archives.main(name))

    def _keep(
        self, key: ChatKey, entries: list[_Entry], error: OSError, *, told: bool = False
    ) -> errors.StorageError:
        room = KEPT_BYTES - sum(len(entry.raw) for lines in self.kept.values() for entry in lines)
        kept = self.kept.setdefault(key, [])
        lost = 0
        for entry in entries:
            room -= len(entry.raw)
            if room >= 0:
                kept.append(entry)
            else:
                lost += entry.ticket is None
        if not told:
            self._log.write(
                "storage",
                f"the archive cannot be written: {error}; {len(kept)} lines wait in memory",
                level="error",
                chat_key=key,
                waiting=len(kept),
            )
        if lost:
            self._log.write(
                "storage",
                f"{lost} lines of the archive are lost: there is no room for more in memory",
                level="error",
                chat_key=key,
                lost=lost,
            )
        return errors.StorageError(f"the archive cannot be written: {error}")

    def _tidy_once(self) -> None:
        if not self._tidy:
            jsonl.tidy(self._disk, self._folder)
            self._tidy = True


def _revisions_in(file: OpenFile) -> Revisions:
    """Those of a whole file. Most files are small and have none: that is seen at once."""
    if file.size <= _AT_ONCE and not may_revise(file.read(0, file.size)):
        return Revisions()
    return revisions(read_line(raw) for raw in jsonl.lines(file) if may_revise(raw))


async def people_of(archive: Archive, chat_keys: Iterable[str]) -> dict[str, str]:
    """The names of those who spoke last in each chat. Raises `errors.StorageError`."""
    names = {}
    for chat_key in chat_keys:
        said = [name for _, name in await _speakers(archive, chat_key)]
        if found := list(dict.fromkeys(name.replace(",", "") for name in said)):
            names[chat_key] = ", ".join(found[:NAMES_SHOWN])
    return names


async def names_of(archive: Archive, chats: Mapping[str, str]) -> dict[str, str]:
    """The names of people (`channel:id`), as the newest lines of the chat that is given for each have them. Raises
    `errors.StorageError`.
    """
    names = dict[str, str]()
    for person, chat_key in chats.items():
        # Of several names the newest counts.
        names |= {who: name for who, name in reversed(await _speakers(archive, chat_key)) if who == person}
    return names


async def _speakers(archive: Archive, chat_key: str) -> list[tuple[str, str]]:
    """People (`channel:id`) with their names, as the newest lines of a chat have them, the newest first."""
    try:
        key = ChatKey.parse(chat_key)
    except errors.IdentityInvalid:
        return []
    page = await archive.search(key, HistoryQuery(limit=NAME_LINES, counted=False))
    said = ((line, (line.meta or {}).get("username")) for line in reversed(page.lines))
    return [(f"{line.channel}:{line.user_id}", str(name)) for line, name in said if name]
