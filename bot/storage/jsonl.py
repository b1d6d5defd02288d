"""JSON lines, and the lock of a folder that several processes share. All functions but `uninterrupted` block."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import re
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bot import text
from bot.contracts.base import Json
from bot.contracts.environment import Disk, OpenFile

LOCK = ".lock"
PIECE = 64 * 1024
"""Number of bytes read at once; longer lines are joined from several reads."""
_LOCK_TRIES, _LOCK_PAUSE = 5_000, 0.002  # ten seconds
_SCRATCH = re.compile(r"\.[^.]+\.tmp")
_FOLDERS: dict[str, threading.Lock] = {}
"""Locks among the threads of this process, which take turns; a file lock alone would let one thread starve others."""
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


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock the folder against other threads and processes; with `shared`, against writers of other processes.
    A reader without write permission reads without the lock. Raises OSError after ten seconds, e.g. if a
    frozen process holds the lock.
    """
    guard = _FOLDERS.setdefault(os.path.realpath(folder), threading.Lock())
    if not guard.acquire(timeout=_LOCK_TRIES * _LOCK_PAUSE):
        raise TimeoutError(errno.ETIMEDOUT, "the folder is used by other threads")
    handle = None
    try:
        handle = _lock_file(folder, shared=shared)
        if handle is not None:
            _lock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)
        guard.release()


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


def lines(file: OpenFile) -> Iterator[bytes]:
    rest = b""
    for piece in _pieces(file, 0):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _pieces(file: OpenFile, start: int) -> Iterator[bytes]:
    while piece := file.read(start, PIECE):
        yield piece
        start += len(piece)
