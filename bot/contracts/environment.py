"""Ports of the process environment: clock, disk, ids, log, redaction, notices to operators."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bot import errors
from bot.contracts.base import Frozen, Json, Level
from bot.contracts.identity import ChatKey
from bot.words import Sentence

_R = TypeVar("_R")


class LogLine(Frozen):
    """One line of `.ship/logs/<YYYY-MM-DD>.jsonl`. `id` is a ULID, `timestamp` ISO 8601 in UTC, `duration` in
    milliseconds; `type` and `level` are the same.
    """

    id: str
    timestamp: str
    type: Level
    level: Level
    kind: str
    message: str
    details: Json
    duration: float | None = None
    chat_key: ChatKey | None = None
    request_id: str | None = None
    step: int | None = None


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float: ...
    def boottime(self) -> float:
        """Monotonic seconds that pass while the machine is suspended, too."""
        ...

    async def sleep(self, seconds: float) -> None: ...


async def ends_within(seconds: float, work: asyncio.Future[Any], clock: Clock) -> bool:
    """True if work ends within this time; after it, it goes on by itself."""
    patience = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait([work, patience], return_when=asyncio.FIRST_COMPLETED)
    finally:
        patience.cancel()
    return work.done()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and return once all of them have ended, however they end."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def uninterrupted(work: Awaitable[_R]) -> _R:
    """Await work that goes on in a thread where its caller is cancelled: cancelled, the caller ends once the work has, so
    that what is done after it stands behind it.
    """
    going_on = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(going_on)
    except asyncio.CancelledError:
        while not going_on.done():
            with contextlib.suppress(asyncio.CancelledError):  # the first one is raised
                await asyncio.wait([going_on])
        raise


async def off_loop(size: int, most: int, work: Callable[[], _R]) -> _R:
    """The result of work on something of this size: where it is more than `most`, done on another thread, so that nothing waits."""
    return work() if size <= most else await asyncio.to_thread(work)


class OpenFile(Protocol):
    """A file as of its opening, read in pieces. Blocking; the opener closes it."""

    @property
    def size(self) -> int:
        """In bytes, when it was opened."""
        ...

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from an offset on; less only at the end of the file."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The file system, blocking; rooms call it from their own writer or through `asyncio.to_thread`.

    Everything it creates is private to the user (folders 0700, files 0600).
    """

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Add to the end of a file, which is made where it does not exist. With `sync` it is on disk then, and so is the name
        of a file that was made.
        """
        ...

    def sync(self, path: Path) -> None:
        """Bring a file, or the names in a folder, to the disk; nothing where it does not exist."""
        ...

    def read(self, path: Path) -> bytes:
        """The whole file; b"" where it does not exist."""
        ...

    def open(self, path: Path) -> OpenFile:
        """A file that may be large; an empty one where it does not exist. What is put in its place later is not seen."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Write the whole file atomically: temporary file, fsync, rename, fsync of the folder."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...
    def truncate(self, path: Path, size: int) -> None: ...
    def remove(self, path: Path) -> None: ...
    def size(self, path: Path) -> int:
        """In bytes; 0 where it does not exist."""
        ...

    def names(self, folder: Path) -> list[str]:
        """File names in a folder, sorted; [] where there is none."""
        ...

    def exists(self, path: Path) -> bool:
        """True of a file, a folder and a link. The one look that the event loop may take: it needs microseconds, the way to a
        thread and back a hundred times that.
        """
        ...


class Ids(Protocol):
    def ulid(self) -> str:
        """A new ULID, greater than every one this process made before."""
        ...

    def after(self, ulid: str) -> None:
        """Make every later one greater than this, which another process made, whatever the clock says."""
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
        """One line. chatKey, requestId and step are taken from the running turn where they are not given;
        `duration` is in milliseconds; `details` become camelCase JSON.
        """
        ...


class _StorageErrorsLogged:
    # No `contextmanager`: of such a one type checkers believe that nothing behind the block is reached.
    def __init__(self, log: Log, message: str, about: Mapping[str, Any]) -> None:
        self._log, self._message, self._about = log, message, about

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, errors.StorageError):
            return False
        self._log.write("error", self._message, level="error", cause=str(error), **self._about)
        return True


def storage_errors_logged(log: Log, message: str, **about: Any) -> _StorageErrorsLogged:
    """Log a `StorageError` of the block and go on behind it."""
    return _StorageErrorsLogged(log, message, about)


class Redact(Protocol):
    """Replaces every known secret in a text."""

    def __call__(self, value: str, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Alert:
    """Trouble that operators should hear of. There is one alert an hour of each `subject`."""

    subject: str
    words: Sentence


class OperatorNotices(Protocol):
    """Tells operators of trouble (`bot.core.alerts.OperatorAlerts`). Never blocks, never raises."""

    def tell(self, subject: str, words: Sentence, *, every: float = 3_600.0) -> object:
        """Tell operators, at most once in so many seconds for each subject."""
        ...


class NoOperators:
    """`OperatorNotices` where there is nobody to tell."""

    def tell(self, subject: str, words: Sentence, *, every: float = 3_600.0) -> None:
        """Nobody hears of it: the log has it."""
