"""Ports of the process environment: clock, disk, ids, log, redaction, alerts to operators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bot.contracts.base import Level
from bot.contracts.identity import ChatKey
from bot.words import Sentence


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float: ...
    def boottime(self) -> float:
        """Monotonic seconds that include time in which the machine was suspended."""
        ...

    async def sleep(self, seconds: float) -> None: ...


async def ends_within(seconds: float, work: asyncio.Future[Any], clock: Clock) -> bool:
    """True if `work` ends in time. Otherwise it continues; it is never cancelled."""
    patience = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait([work, patience], return_when=asyncio.FIRST_COMPLETED)
    finally:
        patience.cancel()
    return work.done()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all have ended, however they end."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


_R = TypeVar("_R")


async def off_loop(size: int, most: int, work: Callable[[], _R]) -> _R:
    """Run `work` in place for a `size` of up to `most`, and on a thread above it, so that the event loop is not blocked."""
    return work() if size <= most else await asyncio.to_thread(work)


class OpenFile(Protocol):
    """A snapshot of a file, read in pieces. Blocking; the caller of `Disk.open` closes it."""

    @property
    def size(self) -> int:
        """Bytes when it was opened."""
        ...

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset`; fewer only at the end of the file."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The file system. Blocking: call it on a writer thread or through `asyncio.to_thread`. Folders are created with mode 0700, files
    with 0600.
    """

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Append to a file, which is created if missing. With `sync`, data and a new file's name are fsynced."""
        ...

    def sync(self, path: Path) -> None:
        """Fsync a file, or a folder's names. Does nothing if it does not exist."""
        ...

    def read(self, path: Path) -> bytes:
        """The whole file; b"" if it does not exist."""
        ...

    def open(self, path: Path) -> OpenFile:
        """Open a file for reading in pieces, an empty one if it does not exist. A later `replace` does not affect it."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Write a whole file atomically: temporary file, fsync, rename, fsync of the folder."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...
    def truncate(self, path: Path, size: int) -> None: ...
    def remove(self, path: Path) -> None: ...
    def size(self, path: Path) -> int:
        """Bytes; 0 if it does not exist."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder; [] if it does not exist."""
        ...

    def exists(self, path: Path) -> bool:
        """True for a file, folder or link. The only method that may be called on the event loop: it takes microseconds."""
        ...


class Ids(Protocol):
    def ulid(self) -> str:
        """A new ULID, greater than every earlier one of this process."""
        ...

    def after(self, ulid: str) -> None:
        """Make later ULIDs greater than this one of another process, even if the clock was set back."""
        ...


class Log(Protocol):
    """The operator's log. Never blocks, never raises; redacts everything."""

    def write(
        self,
        kind: str,
        message: str,
        *,
        level: Level = "info",
        duration: float | None = None,
        chat_key: ChatKey | None = None,
        request_id: str | None = None,
        **details: Any,
    ) -> None:
        """Write one line. chatKey, requestId and step default to those of the running turn. `duration` is in milliseconds; `details`
        become camelCase JSON.
        """
        ...


class Redact(Protocol):
    """Replaces every known secret in a text."""

    def __call__(self, value: str, /) -> str: ...


class OperatorNotices(Protocol):
    """Alerts operators (`bot.core.operators.OperatorAlerts`). Never blocks, never raises."""

    def tell(self, subject: str, words: Sentence, *, every: float = 3_600.0) -> object:
        """Alert operators, at most once in `every` seconds for each `subject`."""
        ...
