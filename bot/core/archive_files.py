"""The archive: one JSONL file per chat, which people and operators can read. Its lines are made from the event log.

Files are append-only. An edit is a new line with `meta.edited` and the message id and role of the original line. A removal
is a `system` line with `meta.deleted` and the removed message's id. The reader applies edits and removals, whatever the
order of the lines.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from bot import errors
from bot.contracts.environment import Disk, Log
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, HistoryPage, HistoryQuery
from bot.storage import jsonl
from bot.storage.jsonl import on_disk

SEQ = "seq"  # Key of the event number in an archive line's `meta` object
NEWEST = 100  # Max archive lines that `newest` returns for a chat
NAME_LINES = 20  # Max lines per chat that are searched for names of people. The newest lines are searched.
NAMES_SHOWN = 3  # Max names of people that are shown for a chat
MAIN = ".jsonl"
_ROTATED = re.compile(r"[^.]*\.archive-([1-9][0-9]{0,8})\.jsonl")
_REVISED_FILES = 10_000  # max rotated files for which edits and removals are cached
_MARKS = (b'"edited":', b'"deleted":')
_R = TypeVar("_R")
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999  # epoch ms of the years 1 to 9999

# ------------------------------------------------------------ lines


def read_line(raw: bytes) -> ArchiveLine | None:
    """Return the parsed archive line; None if it is malformed or its time is outside the years 1 to 9999."""
    try:
        line = ArchiveLine.model_validate_json(raw)
    except ValidationError:
        return None
    return line if is_dated(line) else None


def is_dated(line: ArchiveLine) -> bool:
    return _FIRST <= line.ts <= _LAST


def is_removal(line: ArchiveLine) -> bool:
    return line.role == "system" and (line.meta or {}).get("deleted") is True


def is_edit(line: ArchiveLine) -> bool:
    return (line.meta or {}).get("edited") is True


def moment_of(line: ArchiveLine) -> tuple[int, str]:
    """Return the sort key that orders the edits of a message: the time, then the request id. Later arrivals have larger ids."""
    return line.ts, line.request_id


@dataclass(slots=True)
class Revisions:
    """`removed` maps message ids to removal lines. `edits` maps (message id, role) to the sort key of the newest edit."""

    removed: dict[str, ArchiveLine] = field(default_factory=dict)
    edits: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[ArchiveLine | None]) -> Revisions:
        found = cls()
        for line in lines:
            if line is None or line.message_id is None:
                continue
            if is_removal(line):
                found.removed.setdefault(line.message_id, line)
            elif is_edit(line):
                found.join(Revisions({}, {(line.message_id, line.role): moment_of(line)}))
        return found

    def join(self, other: Revisions) -> None:
        self.removed = other.removed | self.removed
        for key, moment in other.edits.items():
            self.edits[key] = max(self.edits.get(key, (0, "")), moment)

    def shows(self, line: ArchiveLine) -> bool:
        if line.message_id is None:
            return True
        newest = self.edits.get((line.message_id, line.role))
        edited = newest is not None and not (is_edit(line) and moment_of(line) == newest)
        return line.message_id not in self.removed and not edited


def _revisions_in(data: bytes) -> Revisions:
    """Return the edits and removals in the bytes of one file. Skip other lines without parsing them."""
    if not any(mark in data for mark in _MARKS):
        return Revisions()
    return Revisions.of(read_line(raw) for raw in data.split(b"\n") if any(mark in raw for mark in _MARKS))


# ------------------------------------------------------------ files


@dataclass(eq=False)
class ArchiveFiles:
    """Archive files of all chats in one folder. A chat's lines go to `<name>.jsonl`. If that file exceeds the line
    limit, its older half moves to `<name>.archive-<N>.jsonl` (a rotation).
    """

    folder: Path
    disk: Disk
    _known: dict[str, set[int]] | None = None
    """Numbers of rotated files, keyed by chat name. The folder, which may contain 100,000 files, is listed only
        once. Later files are found by trying the next number.
        """
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def main(self, name: str) -> Path:
        return self.folder / f"{name}{MAIN}"

    def of(self, name: str) -> list[Path]:
        """Return a chat's files, oldest first. The last path is the main file, which may not exist."""
        return [*(self._rotated(name, number) for number in self._numbers(name)), self.main(name)]

    def chats(self) -> list[str]:
        listed = ((one.partition(".")[0], one) for one in self.disk.names(self.folder))
        return sorted({name for name, one in listed if one == f"{name}{MAIN}" or _ROTATED.fullmatch(one)})

    def _rotated(self, name: str, number: int) -> Path:
        return self.folder / f"{name}.archive-{number}{MAIN}"

    def _numbers(self, name: str) -> list[int]:
        with self._guard:
            if self._known is None:
                self._known = {}
                for found in filter(None, map(_ROTATED.fullmatch, self.disk.names(self.folder))):
                    self._known.setdefault(found[0].partition(".")[0], set()).add(int(found[1]))
            numbers = self._known.get(name, set())
            while self.disk.size(self._rotated(name, latest := max(numbers, default=0) + 1)):
                self._known[name] = numbers = numbers | {latest}
        return sorted(number for number in numbers if self.disk.size(self._rotated(name, number)))

    def rotate(self, name: str) -> None:
        main, newest = self.main(name), max(self._numbers(name), default=0)
        # `recover` compares both files, so the main file must be on disk before its older half is copied.
        self.disk.sync(main)
        lines = self.disk.read(main).split(b"\n")
        cut = (len(lines) - 1) // 2
        older, newer = (b"\n".join(some) for some in ([*lines[:cut], b""], lines[cut:]))
        self.disk.replace(self._rotated(name, newest + 1), older)
        self.disk.replace(main, newer)

    def recover(self, name: str) -> None:
        """Undo an interrupted rotation: delete the newest rotated file if the main file still begins with that file's
        lines. This needs no free disk space.
        """
        *rotated, main = self.of(name)
        if rotated and self.disk.read(main).startswith(self.disk.read(rotated[-1])):
            self.disk.remove(rotated[-1])

    def chat_key(self, name: str) -> str | None:
        """Return the chatKey for a file name. For a hashed name, search the chat's lines for the key; None if it is missing."""
        if (plain := jsonl.text_of(name)) is not None:
            return plain
        raws = (raw for path in self.of(name) for raw in self.disk.read(path).split(b"\n"))
        keys = (str((jsonl.loads(raw) or {}).get("chatKey")) for raw in raws)
        return next((key for key in keys if jsonl.file_name(key) == name), None)


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """A chat in the archive. `last_ts` is the time of its newest readable line in epoch ms. `chat_key` is the file name if no
    line has the chatKey.
    """

    chat_key: str
    lines: int
    last_ts: int | None


class ChatStore:
    """Reads and writes the archive in a folder that several processes may share. Lines are ordered by their position in the
    files, not by `ts`. The argument `flush` is a function that writes all pending messages to the files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk,
        log: Log,
        archive_after_lines: int = 1000,
        flush: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.folder = folder
        self.files = ArchiveFiles(folder, disk)
        self._disk = disk
        self._log = log
        self._flush = flush
        self._limit = max(1, archive_after_lines)
        self._tails: dict[str, tuple[int, int]] = {}
        """Size in bytes and number of lines of each main file that this process has written."""
        self._dirty: set[str] = set()  # Names of chats with lines that are not fsynced
        # The size is part of the cache's key, because retention or an erasure may rewrite a rotated file.
        self._revisions_of = lru_cache(_REVISED_FILES)(lambda path, _size: _revisions_in(disk.read(path)))

    async def flush(self) -> None:
        """Try once to write the pending lines. Return even if the attempt failed."""
        if self._flush is not None:
            await self._flush()

    async def _read(self, work: Callable[..., _R], *arguments: Any) -> _R:
        await self.flush()
        with errors.as_storage_error("the archive cannot be read"):
            return await asyncio.to_thread(work, *arguments)

    async def search(self, chat_key: ChatKey, query: HistoryQuery) -> HistoryPage:
        """Return the page of lines that `query` selects. `query.skip` is called on another thread."""
        page = await self._read(self._search, jsonl.file_name(chat_key), query)
        if page.unreadable:
            words = f"{page.unreadable} lines of the archive cannot be read and were left out"
            self._log.write("storage", words, level="warn", chat_key=chat_key, unreadable=page.unreadable)
        return page

    async def removals(self, chat_key: ChatKey) -> list[ArchiveLine]:
        """Return the lines that record removals. `meta.of` lists removed request ids, `meta.ofRole` the author's role."""
        name = jsonl.file_name(chat_key)
        found = await self._read(lambda: self._revised(*self._opened(name)))
        return list(found.removed.values())

    async def chats(self) -> list[ChatInfo]:
        infos = await self._read(lambda: [self._info(name) for name in self.files.chats()])
        return sorted((one for one in infos if one.lines), key=lambda one: one.last_ts or 0, reverse=True)

    # ------------------------------------------------------------ reading, on any thread

    def _opened(self, name: str) -> tuple[bytes, list[Path]]:
        """Read a chat's main file and list its rotated files, newest first, under one lock. Return the bytes and the paths."""
        with jsonl.locked(self.folder, shared=True):
            *archives, main = self.files.of(name)
            return self._disk.read(main), archives[::-1]

    def _revised(self, main: bytes, archives: Sequence[Path]) -> Revisions:
        found = _revisions_in(main)
        for path in archives:
            found.join(self._revisions_of(path, self._disk.size(path)))
        return found

    def _search(self, name: str, query: HistoryQuery) -> HistoryPage:
        main, archives = self._opened(name)
        revised = None if query.everything else self._revised(main, archives)
        keyword = (query.keyword or "").casefold()
        # JSON escapes some characters. If the keyword contains such a character, search parsed lines.
        literal = keyword if keyword.isprintable() and not {'"', "\\"} & {*keyword} else ""
        lines, total, unreadable, last = list[ArchiveLine](), 0, 0, query.offset + query.limit
        for data in chain([main], map(self._disk.read, archives)):
            if data is not main and data and main.startswith(data):
                continue  # this line is a copy that an interrupted rotation left
            for raw in reversed(data.split(b"\n")):
                if total >= last:
                    return HistoryPage(lines[::-1], total, unreadable, counted=False)
                if not raw.strip():
                    continue
                # A line without JSON escapes contains the keyword literally, so it need not be parsed.
                if literal and b"\\u" not in raw and literal not in raw.decode(errors="replace").casefold():
                    continue
                line = read_line(raw)
                if line is None:
                    unreadable += 1
                elif _matches(query, keyword, line) and (revised is None or revised.shows(line)):
                    if query.offset <= total < last:
                        lines.append(line)
                    total += 1
        return HistoryPage(lines[::-1], total, unreadable)

    def _info(self, name: str) -> ChatInfo:
        count, last_ts = 0, None
        for path in reversed(self.files.of(name)):
            raws = [raw for raw in self._disk.read(path).split(b"\n") if raw]
            count += len(raws)
            if last_ts is None:
                last_ts = next((line.ts for line in map(read_line, reversed(raws)) if line is not None), None)
        return ChatInfo(self.files.chat_key(name) or name, count, last_ts)

    # ------------------------------------------------------------ writing

    @on_disk("the archive cannot be read", alone=True)
    def newest(self, name: str) -> list[tuple[str, int]]:
        """Repair files that a killed process left incomplete. Then return the request ids and event numbers of a chat's
        newest exported lines, newest first, at most `NEWEST`.
        """
        jsonl.tidy(self._disk, self.folder)
        self._tail(name)
        raws = (raw for path in self.files.of(name)[::-1] for raw in self._disk.read(path).split(b"\n")[::-1])
        lines = (line for line in map(read_line, raws) if line is not None)
        found = ((one.request_id, (one.meta or {}).get(SEQ)) for one in lines)
        return list(islice(((name, seq) for name, seq in found if isinstance(seq, int)), NEWEST))

    @on_disk("the archive cannot be written", alone=True)
    def append_lines(self, name: str, raws: Sequence[bytes]) -> None:
        """Append whole lines. Rotate the file if it exceeds the line limit. The lines are durable only after `sync`."""
        main = self.files.main(name)
        self._dirty.add(name)
        while raws:
            size, count = self._tail(name)
            some = raws[: max(1, self._limit + 1 - count)]
            raws = raws[len(some) :]
            self._disk.append(main, b"".join(some))
            self._tails[name] = size + sum(map(len, some)), count + len(some)
            if self._tails[name][1] <= self._limit:
                continue
            try:
                self.files.rotate(name)
            except OSError as error:
                # No line is lost, because the next append retries the rotation.
                words = f"{name}: the older half cannot be archived: {error}"
                self._log.write("storage", words, level="error", file=name)
            del self._tails[name]

    @on_disk("the archive cannot be written")
    def sync(self) -> None:
        for name in self._dirty:
            self._disk.sync(self.files.main(name))
        self._disk.sync(self.folder)
        self._dirty = set()

    def _tail(self, name: str) -> tuple[int, int]:
        """Return the size in bytes and the number of lines of a chat's main file, to which lines are appended. If another
        process changed the file, cut off its unreadable end.
        """
        main = self.files.main(name)
        known = self._tails.get(name)
        if known is not None and known[0] == self._disk.size(main):
            return known
        self.files.recover(name)
        data = self._disk.read(main)
        lines = data.split(b"\n")
        while lines and jsonl.loads(lines[-1]) is None:
            lines.pop()
        whole = b"".join(line + b"\n" for line in lines)
        if len(whole) > len(data):
            self._disk.append(main, b"\n")
        elif len(whole) < len(data):
            self._log.write("storage", f"{main.name}: a torn end is cut off", level="warn", file=main.name)
            self._disk.truncate(main, len(whole))
        self._tails[name] = len(whole), sum(map(bool, lines))
        return self._tails[name]


def _matches(query: HistoryQuery, keyword: str, line: ArchiveLine) -> bool:
    return (
        line.role in ({query.role} if query.role else {"user", "assistant"})
        and (query.before is None or line.ts < query.before)
        and (query.after is None or line.ts >= query.after)
        and keyword in line.text.casefold()
        and not (query.skip is not None and query.skip(line))
    )


# ------------------------------------------------------------ names of people


async def people_of(archive: ChatStore, chat_keys: Iterable[str]) -> dict[str, str]:
    """Return for each chat the names of the people who wrote last, at most `NAMES_SHOWN`. Raises `errors.StorageError`."""
    names = {}
    for chat_key in chat_keys:
        said = [name for _, name in await _speakers(archive, chat_key)]
        if found := list(dict.fromkeys(name.replace(",", "") for name in said)):
            names[chat_key] = ", ".join(found[:NAMES_SHOWN])
    return names


async def names_of(archive: ChatStore, chats: Mapping[str, str]) -> dict[str, str]:
    """Return the newest display name of each person (`channel:id`). `chats` maps a person to the chat whose newest
    lines are searched. Raises `errors.StorageError`.
    """
    names = dict[str, str]()
    for person, chat_key in chats.items():
        names |= {who: name for who, name in reversed(await _speakers(archive, chat_key)) if who == person}
    return names


async def _speakers(archive: ChatStore, chat_key: str) -> list[tuple[str, str]]:
    try:
        key = ChatKey.parse(chat_key)
    except errors.IdentityInvalid:
        return []
    page = await archive.search(key, HistoryQuery(limit=NAME_LINES))
    said = ((line, (line.meta or {}).get("username")) for line in reversed(page.lines))
    return [(f"{line.channel}:{line.user_id}", str(name)) for line, name in said if name]
