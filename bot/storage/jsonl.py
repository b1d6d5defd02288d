"""Durable JSONL files: an append either completes or is undone, torn ends of files are repaired, and lines
of any length are read piecewise.

All functions in this module block. The functions run on a writer's thread under the folder's lock.
"""

from __future__ import annotations

import asyncio
import codecs
import collections
import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bot import text
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk, Log, OpenFile

_R = TypeVar("_R")


async def uninterrupted(work: Awaitable[_R]) -> _R:
    """Await work that cannot be cancelled because it runs in a thread. If the caller is cancelled, the
    cancellation is raised only after the work has ended, so that later writes cannot overtake this work.
    """
    going_on = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(going_on)
    except asyncio.CancelledError:
        while not going_on.done():
            with contextlib.suppress(asyncio.CancelledError):  # the first cancellation is raised below
                await asyncio.wait([going_on])
        raise


LOCK = ".lock"
_LOCK_SECONDS, _LOCK_TRIES, _LOCK_PAUSE = 10.0, 5_000, 0.002
_SCRATCH = re.compile(r"\.[^.]+\.tmp")
_FILES = 4_000  # max files with cached facts
_FOLDERS = 256  # max folders with a cached real path


_GUARD = threading.Lock()
_QUEUES: weakref.WeakValueDictionary[str, _Queue] = weakref.WeakValueDictionary()
"""Queues of waiting threads by folder; an entry disappears when nobody uses the queue."""


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock the folder against other stores and processes; with `shared`, only against writers.

    Within a process the lock is fair. File locks have no queue, so a thread that asks again at once would
    starve other threads. A reader without write permission reads without the lock. Raises OSError on a
    timeout, e.g. if a frozen process holds the lock.
    """
    with _GUARD:
        queue = _QUEUES.setdefault(_real(folder), _Queue())
    with queue.turn(shared=shared):
        handle = _lock_file(folder, shared=shared)
        try:
            if handle is not None:
                _lock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            if handle is not None:
                os.close(handle)


@functools.lru_cache(_FOLDERS)
def _real(folder: Path) -> str:
    """Return the folder's path without symlinks. If a symlink changes later, there are two queues for one
    folder; the file lock still excludes other writers.
    """
    return os.path.realpath(folder)


class _Queue:
    """A queue of the threads of this process that wait for a folder."""

    def __init__(self) -> None:
        self._waiting: collections.deque[object] = collections.deque()
        self._readers, self._written = 0, False
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, *, shared: bool) -> Iterator[None]:
        """Wait for the lock and keep it during the block. Raises TimeoutError."""
        self._enter(shared=shared)
        try:
            yield
        finally:
            with self._changed:
                self._readers, self._written = self._readers - shared, False
                self._changed.notify_all()

    def _enter(self, *, shared: bool) -> None:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                if not self._changed.wait_for(lambda: self._may(ticket, shared=shared), _LOCK_SECONDS):
                    raise TimeoutError(errno.ETIMEDOUT, "the folder is used by other threads")
                self._readers, self._written = self._readers + shared, not shared
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _may(self, ticket: object, *, shared: bool) -> bool:
        return self._waiting[0] is ticket and not self._written and (shared or not self._readers)


def _lock(handle: int, kind: int) -> None:
    pause = threading.Event()
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            pause.wait(_LOCK_PAUSE)
        else:
            return
    raise TimeoutError(errno.ETIMEDOUT, "the folder is locked by another process")


def _lock_file(folder: Path, *, shared: bool) -> int | None:
    how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(folder / LOCK, how, 0o600)
    except OSError as error:
        if shared and error.errno in {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS}:
            return None
        if not isinstance(error, FileNotFoundError):
            raise
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(folder / LOCK, how, 0o600)


def dumps(value: Json) -> bytes:
    """Serialise a value as one line with a newline. Keys stay in order; lone surrogates are replaced."""
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.one_line(text.clean(dumped)).encode() + b"\n"


def loads(raw: bytes) -> Json | None:
    """Parse one line; None if it is not a JSON object."""
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tidy(disk: Disk, folder: Path) -> None:
    """Delete temporary files that a killed `replace` left behind. Call this only under the lock."""
    for name in disk.names(folder):
        if _SCRATCH.fullmatch(name):
            disk.remove(folder / name)


@dataclass(slots=True)
class Tail:
    """Cached facts about a file. `ended` is False if the file lacks its last newline."""

    size: int
    lines: int
    ended: bool


class Files:
    """The JSONL files of one folder, read piecewise."""

    def __init__(self, disk: Disk, *, log: Log, clock: Clock) -> None:
        self._disk = disk
        self._log = log
        self._clock = clock
        self._tails: OrderedDict[Path, Tail] = OrderedDict()
        # Size and appended bytes of files in which a failed append could not be undone.
        self._doubts: dict[Path, tuple[int, bytes]] = {}

    def tail(self, path: Path) -> Tail:
        """Return the facts about a file after repairing a torn end. The facts are cached until another
        process changes the file.
        """
        tail = self._tails.get(path)
        if tail is not None and tail.size == self._disk.size(path):
            self._tails.move_to_end(path)
            return tail
        self.forget(path)
        self._undoubted(path)
        with closing(self._disk.open(path)) as file:
            size = self._repaired(path, file)
            ended = not size or file.read(size - 1, 1) == b"\n"
            return self._remember(path, Tail(size, count_lines(file, size), ended))

    def _remember(self, path: Path, tail: Tail) -> Tail:
        self._tails[path] = tail
        if len(self._tails) > _FILES:
            self._tails.popitem(last=False)
        return tail

    def forget(self, path: Path) -> None:
        """Drop the cached facts about a file; needed after any change other than `append`."""
        self._tails.pop(path, None)

    def begun(self, path: Path) -> bool:
        """Return True if a file is known to have lines."""
        return path in self._tails and bool(self._tails[path].size)

    def append(
        self,
        path: Path,
        lines: Sequence[bytes],
        *,
        sync: bool = True,
        tail: Tail | None = None,
    ) -> Tail:
        """Append whole lines. With `sync`, return once the lines are on disk; without, once they are in the
        page cache. If OSError is raised, no line was added. Passing a fresh `tail` saves a stat call.
        """
        tail = tail if tail is not None else self.tail(path)
        blob = (b"" if tail.ended else b"\n") + b"".join(lines)
        self._tails.pop(path)
        try:
            if tail.size or not sync:
                self._disk.append(path, blob, sync=sync)
            else:
                # A new file is durable only once its directory entry is on disk; `replace` syncs both.
                self._disk.replace(path, blob)
        except OSError:
            self._doubts[path] = (tail.size, blob)
            self._take_back(path)
            raise
        tail.size += len(blob)
        tail.lines += len(lines)
        tail.ended = True
        return self._remember(path, tail)

    def _take_back(self, path: Path) -> None:
        try:
            self._undoubted(path)
        except OSError:
            return  # the next append tries to undo this one again

    def _undoubted(self, path: Path) -> None:
        """Truncate the remains of a failed append, unless another process has appended since."""
        if path in self._doubts:
            size, blob = self._doubts[path]
            with closing(self._disk.open(path)) as file:
                left = file.read(size, len(blob) + 1)
            if left and blob.startswith(left):
                self._disk.truncate(path, size)
            del self._doubts[path]

    def _repaired(self, path: Path, file: OpenFile) -> int:
        """Move everything after the last readable line into another file; return the size of the rest."""
        cut = end = file.size
        for raw in lines_backwards(file):
            line = raw.strip()
            if line and loads(line) is not None:
                break
            start = end - len(raw)
            if line:
                cut = start
            end = start - 1  # the newline of the line before
        if cut < file.size:
            self._quarantine(path, file.read(cut, file.size - cut), cut)
        return cut

    def _quarantine(self, path: Path, rest: bytes, offset: int) -> None:
        ts = int(self._clock.now() * 1000)
        while self._disk.size(target := path.with_name(f"{path.name}.corrupt-{ts}")):
            ts += 1
        self._disk.replace(target, rest)
        self._disk.truncate(path, offset)
        self._log.write(
            "storage",
            f"{path.name}: {len(rest)} bytes from offset {offset} cannot be read; set aside in {target.name}",
            level="warn",
            file=path.name,
            offset=offset,
            size=len(rest),
            quarantine=target.name,
        )


PIECE = 64 * 1024
"""Number of bytes read at once; longer lines are joined from several reads."""


def lines(file: OpenFile, start: int = 0) -> Iterator[bytes]:
    """Yield the lines after the first `start` bytes without newlines. An unterminated last line is included."""
    line: list[bytes] = []
    for piece in _pieces(file, file.size, start):
        first, *others = piece.split(b"\n")
        line.append(first)
        if others:
            yield b"".join(line)
            yield from others[:-1]
            line = [others[-1]]
    if any(line):
        yield b"".join(line)


def lines_backwards(file: OpenFile, size: int | None = None) -> Iterator[bytes]:
    """Yield the lines within the first `size` bytes (None: the whole file) from last to first. If the file
    ends with a newline, the first yielded line is empty.
    """
    at = file.size if size is None else size
    line: list[bytes] = []  # pieces of one line, last to first
    while at > 0:
        begin = max(0, at - PIECE)
        first, *others = file.read(begin, at - begin).split(b"\n")
        at = begin
        if others:
            line.append(others.pop())
            yield b"".join(reversed(line))
            yield from reversed(others)
            line = []
        line.append(first)
    if line:
        yield b"".join(reversed(line))


def count_lines(file: OpenFile, size: int) -> int:
    """Count the lines within the first `size` bytes. An unterminated last line counts."""
    count, end = 0, b"\n"
    for piece in _pieces(file, size):
        count += piece.count(b"\n")
        end = piece[-1:]
    return count + (end != b"\n")


def characters(file: OpenFile, start: int) -> Iterator[str]:
    """Yield the text after the first `start` bytes; invalid UTF-8 is replaced by U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in _pieces(file, file.size, start):
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _pieces(file: OpenFile, size: int, start: int = 0) -> Iterator[bytes]:
    at = start
    while at < size and (piece := file.read(at, min(PIECE, size - at))):
        yield piece
        at += len(piece)
