"""Lines that are on disk with a commit of the journal: their files follow without a flush of their own.

    1. a row with the lines is posted to the journal, in order with all else that is posted: what stands behind it there is on
       disk only with it, also where the disk refuses both for a while
    2. they are appended to their file, later where many come at once: who reads in this process asks for that first
    3. a moment later the file is brought to the disk, with all that came to it meanwhile
    4. the row goes

A kill or a power failure in between leaves rows. Before anything is read, the next start appends the lines of rows that their
files lack. A line that its file refuses is its caller's, to write it again, and its row stays as long.
"""

from __future__ import annotations

import asyncio
import re
import threading
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bot import errors
from bot.batch import LINGER
from bot.contracts.environment import Clock, Disk, Log, OpenFile
from bot.contracts.journal import Journal, LineRow
from bot.core import jsonl

_NAMED = 10_000  # files whose names are known to be on the disk
_FILE = re.compile(r"[a-z]+/[A-Za-z0-9_%~-]+(?:/[0-9A-Z]{26}\.jsonl)?")
SETTLE_SECONDS = 10.0
"""Seconds for which lines stay in the journal, so that a file is flushed once for all that comes to it meanwhile."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A row of lines in the journal. `left` is how many of them are in no file yet; `kept` gives True once the row is on disk, and
    is None before it was posted.
    """

    number: int
    left: int
    kept: Future[bool | None] | None = None


class Replays(Protocol):
    """A store whose files follow the journal."""

    def replay(self, name: str, lines: Sequence[bytes]) -> Path:
        """Append those lines that the files of a name lack; gives the file. Blocking. Raises OSError."""
        ...


class LineStream:
    """The lines of one journal on their way to their files. Nothing goes ahead to the journal before `replay`."""

    def __init__(self, journal: Journal, *, disk: Disk, clock: Clock, log: Log) -> None:
        self._journal = journal
        self._disk = disk
        self._clock = clock
        self._log = log
        self._next: int | None = None
        self._well = True
        self._waiting: list[tuple[Ticket, str, Callable[[], bytes]]] = []
        self._guard = threading.Lock()
        # In their files, which are not on the disk yet: what is to be done next.
        self._files: set[Path] = set()
        self._numbers: list[int] = []
        self._named: set[Path] = set()
        self._settling: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._closed = False
        self._trouble = ""

    def put(self, file: str, lines: Callable[[], bytes], count: int = 1) -> Ticket | None:
        """Post lines to the journal, a moment later or by `send`; None before `replay`. Each of them is to be told of once more, by
        `written` or `given_up`.
        """
        if self._next is None:
            return None
        ticket = Ticket(self._next, count)
        self._next += 1
        if not self._waiting:
            asyncio.get_running_loop().call_later(LINGER, self.send)
        self._waiting.append((ticket, file, lines))
        return ticket

    def send(self) -> bool:
        """Post what waits now: it is on disk with whatever is posted next. False where the disk has refused the newest lines whose
        fate is known.
        """
        waiting, self._waiting = self._waiting, []
        if waiting:
            rows = [(ticket.number, file, lines) for ticket, file, lines in waiting]
            kept = self._journal.post.put_lines(rows)
            kept.add_done_callback(self._heard)
            for ticket, *_ in waiting:
                ticket.kept = kept
        return self._well

    def _heard(self, kept: Future[bool | None]) -> None:
        self._well = _on_disk(kept)

    def written(self, files: Iterable[Path], tickets: Iterable[Ticket]) -> None:
        """A line of each ticket is in its file, which is one of these. On any thread."""
        with self._guard:
            self._files.update(files)
            self._end(tickets)

    def given_up(self, tickets: Iterable[Ticket]) -> None:
        """A line of each ticket will not be written. On any thread."""
        with self._guard:
            self._end(tickets)

    def _end(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            ticket.left -= 1
            if not ticket.left:
                self._numbers.append(ticket.number)

    async def lasting(self, files: Collection[Path], tickets: Sequence[Ticket | None]) -> None:
        """Return once lines that are in their files are on disk: with their rows, or by a flush where the journal has none of
        one. Raises `errors.StorageError`.
        """
        self._begin()
        if await self.kept(tickets):
            return
        with errors.as_storage_error("lines cannot be brought to the disk"):
            await asyncio.to_thread(self._sync, files)

    async def kept(self, tickets: Iterable[Ticket | None]) -> bool:
        """Return once the rows of these tickets are on disk, in the journal; False where the disk has refused one, or there is none."""
        self.send()
        return all([ticket is not None and await _is_kept(ticket) for ticket in tickets])

    async def replay(self, stores: Mapping[str, Replays]) -> None:
        """Append what the files lack of the rows that another process left, then let lines go ahead. `stores` are named by the
        first part of the names of their files. Raises `errors.StorageError` where the journal cannot be read.
        """
        rows = await self._journal.kept_lines()
        files, failed = await asyncio.to_thread(replay, rows, stores)
        for file, error in failed.items():
            self._tell(f"lines of {file} stay in the journal: {error}")
        with self._guard:
            self._files |= files
            self._numbers += [row.number for row in rows if row.file not in failed]
        await self.flush()
        self._next = rows[-1].number + 1 if rows else 1

    async def flush(self) -> None:
        """Bring the files to the disk, and let the rows of their lines go. Raises nothing: what fails stays."""
        async with self._one_at_a_time:
            await self._flush()

    async def _flush(self) -> None:
        self.send()  # what is to be dropped may not be there yet
        with self._guard:
            files, self._files = self._files, set()
            numbers, self._numbers = self._numbers, []
        if not numbers:
            return
        try:
            await asyncio.to_thread(self._sync, files)
        except OSError as error:
            # A second flush could succeed although the disk has lost what the first one refused: the rows stay until the next
            # start has compared.
            self._tell(f"lines stay in the journal, since their files cannot be brought to the disk: {error}")
            return
        self._trouble = ""
        if not self._closed:  # it took too long
            await self._journal.post.drop_lines(numbers)

    async def close(self) -> None:
        """Bring to the disk what is left. Whoever is to write does so no more."""
        if self._settling is not None:
            self._settling.cancel()
        try:
            await self.flush()
        finally:
            self._closed = True

    def _begin(self) -> None:
        if self._numbers and (self._settling is None or self._settling.done()):
            # In no turn's context, which it would keep and have in the log.
            self._settling = asyncio.get_running_loop().create_task(
                self._flush_later(), name="lines", context=Context()
            )

    async def _flush_later(self) -> None:
        while self._numbers:
            await self._clock.sleep(SETTLE_SECONDS)
            await asyncio.shield(self.flush())

    def _sync(self, files: Collection[Path]) -> None:
        for file in sorted(files):
            self._disk.sync(file)
        # Names of files, and of folders that were made for them.
        fresh = set(files) - self._named
        for folder in sorted({folder for file in fresh for folder in file.parents[:3]}):
            self._disk.sync(folder)
        if len(self._named) > _NAMED:
            self._named.clear()
        self._named |= fresh

    def _tell(self, words: str) -> None:
        if words != self._trouble:
            self._trouble = words
            self._log.write("storage", words, level="error")


def replay(rows: Sequence[LineRow], stores: Mapping[str, Replays]) -> tuple[set[Path], dict[str, OSError]]:
    """Append what the files of `stores` lack of these rows; gives the files, and of rows for which that failed the error by the
    name of their file. Blocking.
    """
    files: dict[str, list[bytes]] = {}
    for row in rows:
        # A journal may be damaged, and SQLite keeps values of any type.
        if (type(row.file), type(row.lines)) == (str, bytes) and _FILE.fullmatch(row.file):
            files.setdefault(row.file, []).extend(row.lines.splitlines(keepends=True))
    written, failed = set[Path](), dict[str, OSError]()
    for file, lines in files.items():
        store, _, name = file.partition("/")
        try:
            if store in stores:
                written.add(stores[store].replay(name, lines))
        except OSError as error:
            failed[file] = error
    return written, failed


async def _is_kept(ticket: Ticket) -> bool:
    """True once the row of a ticket is on disk, False where the disk has refused it."""
    kept = ticket.kept
    if kept is not None and not kept.done():
        await asyncio.wait([kept])  # not cancelled with its caller
    return kept is not None and _on_disk(kept)


def _on_disk(kept: Future[bool | None]) -> bool:
    return not kept.cancelled() and kept.exception() is None and kept.result() is True


def missing(
    lines: Sequence[bytes], files: Iterable[OpenFile], key: Callable[[bytes], object] = bytes
) -> list[bytes]:
    """The lines, in order, that none of these files has, which are read from their ends on until all are found. `key` gives what
    makes a line the same.
    """
    keys = [key(line.rstrip(b"\n")) for line in lines]
    wanted, count = Counter(keys), len(keys)
    for file in files:
        with closing(file):
            for raw in jsonl.lines_backwards(file):
                if wanted.get(found := key(raw), 0) > 0:
                    wanted[found] -= 1
                    count -= 1
                    if not count:
                        return []
    left = []
    # The newest are those that are missing.
    for line, name in zip(reversed(lines), reversed(keys), strict=True):
        if wanted[name] > 0:
            wanted[name] -= 1
            left.append(line)
    return left[::-1]
