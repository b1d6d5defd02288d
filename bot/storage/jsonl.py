"""File names and JSON lines of files in `.ship`, and a lock for a folder that several processes use. All functions that are not
`async` block.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey

LOCK = ".lock"
PIECE = 64 * 1024  # Number of bytes of a file that are read at a time. A line may be longer.
_LOCK_TRIES, _LOCK_PAUSE = 5_000, 0.002  # ten seconds in total
_SCRATCH = re.compile(r"\.[^.]+\.tmp")
_FOLDERS: dict[str, threading.Lock] = {}
"""For each folder, a lock between the threads of this process. With only the file lock, a thread might never get its turn."""
_R = TypeVar("_R")
_P = ParamSpec("_P")


class _HasFolder(Protocol):
    folder: Path


_S = TypeVar("_S", bound=_HasFolder)


def on_disk(
    failure: str, *, alone: bool = False
) -> Callable[[Callable[Concatenate[_S, _P], _R]], Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]]:
    """Make a method run on a thread to its end, even if its caller is cancelled. If `alone` is True, the method runs under
    the lock of the object's `folder`. An OSError becomes an `errors.StorageError` with the message `failure`.
    """

    def wrapped(
        work: Callable[Concatenate[_S, _P], _R],
    ) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]:
        @functools.wraps(work)
        async def done(self: _S, /, *args: _P.args, **named: _P.kwargs) -> _R:
            def run() -> _R:
                with locked(self.folder) if alone else contextlib.nullcontext():
                    return work(self, *args, **named)

            with errors.as_storage_error(failure):
                going_on = asyncio.ensure_future(asyncio.to_thread(run))
                try:
                    return await asyncio.shield(going_on)
                except asyncio.CancelledError:
                    # A cancelled caller waits. Otherwise its next write could overtake this write.
                    while not going_on.done():
                        with contextlib.suppress(
                            asyncio.CancelledError
                        ):  # the first cancellation is raised below
                            await asyncio.wait([going_on])
                    raise

        return done

    return wrapped


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock a folder for the `with` block against all other threads and processes. If `shared` is True, readers in other processes
    may hold the lock too, and a read-only folder is not locked on disk. Raises OSError after ten seconds of waiting.
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
    """Return a value as one line of JSON, with a newline at its end. Lone surrogates in strings are replaced."""
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.one_line(text.clean(dumped)).encode() + b"\n"


def loads(raw: bytes) -> Json | None:
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tidy(disk: Disk, folder: Path) -> None:
    """Delete the temporary files that `Disk.replace` left because a process was killed. The caller holds the folder's lock."""
    for name in disk.names(folder):
        if _SCRATCH.fullmatch(name):
            disk.remove(folder / name)


# ------------------------------------------------------------ file names

LONGEST_NAME = 200  # Max bytes of a file name that is not hashed
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*")
_HASHED = re.compile(r"[A-Za-z0-9_%-]{120}~[0-9a-f]{16}")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def file_name(key: ChatKey | str) -> str:
    """Return a file name for any text. Bytes other than `A-Z a-z 0-9 _ -` become %XX. A name of more than 200 bytes is hashed:
    it becomes its first 120 bytes, `~` and 16 hex digits of the text's SHA-256. A name never contains `.` or `/`.
    """
    return _encoded(str(key))


@functools.lru_cache(4_096)
def _encoded(key: str) -> str:
    raw = key.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:120]}~{hashlib.sha256(raw).hexdigest()[:16]}"


def text_of(name: str) -> str | None:
    """Return the text from which `file_name` made a file name; None if the name is hashed, or not from `file_name`."""
    if _PLAIN.fullmatch(name) is None:
        return None
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), name.encode("ascii"))
    try:
        key = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return key if file_name(key) == name else None


def is_hashed(name: str) -> bool:
    """Return True if a file name is hashed. A chatKey is never taken for a hashed name, because it contains a colon."""
    return _HASHED.fullmatch(name) is not None
