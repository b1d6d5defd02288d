"""One chat's files as one stream of bytes: its archives, oldest first, and its main file.

A place in the stream stays where it is when a rotation moves lines from one file to another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.environment import Disk, OpenFile
from bot.core import jsonl
from bot.core.archive.rotation import ArchiveFiles
from bot.core.jsonl import PIECE

_OPEN = 32  # archives of a stream that stay open between two looks into them
_KEPT = 4  # streams that stay open between two looks into them


@dataclass(frozen=True, slots=True)
class _Part:
    begin: int
    size: int
    path: Path


class Stream:
    """The files of a chat as they were when they were opened. Blocking."""

    def __init__(self, disk: Disk, archives: list[_Part], main: OpenFile) -> None:
        self._disk = disk
        self._archives = archives
        self._main = main
        self._begins = [part.begin for part in archives]
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._begin = archives[-1].begin + archives[-1].size if archives else 0
        self.size = self._begin + main.size
        """Bytes in all."""

    def read(self, at: int, count: int) -> bytes:
        """Read the bytes at a position, which must not cross the end of a file."""
        if at >= self._begin:
            return self._main.read(at - self._begin, count)
        number = bisect_right(self._begins, at) - 1
        file = self._open.get(number)
        if file is None:
            if len(self._open) >= _OPEN:
                self._open.popitem(last=False)[1].close()
            file = self._open[number] = self._disk.open(self._archives[number].path)
        return file.read(at - self._begins[number], count)

    def close(self) -> None:
        for file in (*self._open.values(), self._main):
            file.close()
        self._open.clear()

    def lines(self, at: int) -> Iterator[tuple[int, bytes]]:
        """Every whole line from a place on, with its newline, and where it stands."""
        for part in self._archives:
            if part.begin + part.size > at:
                file = self._disk.open(part.path)
                try:
                    yield from _lines(file, part.begin, max(0, at - part.begin))
                finally:
                    file.close()
        yield from _lines(self._main, self._begin, max(0, at - self._begin))


def _lines(file: OpenFile, begin: int, at: int) -> Iterator[tuple[int, bytes]]:
    rest = b""
    while piece := file.read(at + len(rest), PIECE):
        *whole, rest_ = (rest + piece).split(b"\n")
        for line in whole:
            yield begin + at, line + b"\n"
            at += len(line) + 1
        rest = rest_


class Streams:
    """The streams of all chats of a folder. Archives change by a removal alone (`forget`): their sizes are asked for once."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self._disk = disk
        self._archives = ArchiveFiles(folder, disk)
        self._parts: dict[str, tuple[list[int], list[_Part]]] = {}
        self._kept: tuple[ExitStack, dict[str, Stream]] | None = None

    def forget(self, name: str) -> None:
        """Ask again for the sizes of a chat's archives: lines of them were removed."""
        self._parts.pop(name, None)

    def names(self) -> list[str]:
        """The names of all chats that have a file."""
        return self._archives.chats()

    @contextmanager
    def open(self, name: str) -> Iterator[Stream]:
        """Raises OSError."""
        with ExitStack() as until:
            if self._kept is None:
                yield self._entered(name, until)
                return
            kept, known = self._kept
            if name not in known:
                if len(known) >= _KEPT:
                    yield self._entered(name, until)
                    return
                known[name] = self._entered(name, kept)
            yield known[name]

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Within the block a chat that was opened stays open, and is as it was then."""
        if self._kept is not None:
            yield
            return
        with ExitStack() as kept:
            self._kept = kept, {}
            try:
                yield
            finally:
                self._kept = None

    def _entered(self, name: str, until: ExitStack) -> Stream:
        main, numbers = self._opened(name)
        until.enter_context(closing(main))
        return until.enter_context(closing(Stream(self._disk, self._unchanged_parts(name, numbers), main)))

    def _opened(self, name: str) -> tuple[OpenFile, list[int]]:
        """The main file and the archives that belong to it. A writer is stood in the way of only where one rotates."""
        marker = self._archives.marker(name)
        if not self._disk.size(marker):
            before = self._archives.numbers(name)
            with ExitStack() as otherwise:
                file, numbers = self._archives.opened(name)
                otherwise.enter_context(closing(file))
                if not self._disk.size(marker) and numbers == before:
                    otherwise.pop_all()
                    return file, numbers
        with jsonl.locked(self.folder, shared=True):
            return self._archives.opened(name)

    def _unchanged_parts(self, name: str, numbers: list[int]) -> list[_Part]:
        known = self._parts.get(name)
        if known is None or known[0] != numbers[: len(known[0])]:
            known = ([], [])
        seen, parts = known
        for number in numbers[len(seen) :]:
            path = self._archives.archive(name, number)
            begin = parts[-1].begin + parts[-1].size if parts else 0
            parts.append(_Part(begin, self._disk.size(path), path))
            seen.append(number)
        if parts:  # most chats have but one file: nothing is kept of those
            self._parts[name] = known
        return list(parts)
