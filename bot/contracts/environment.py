"""Interfaces of the process environment: clock, disk, ids, log, alerts to operators, and leader election."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from bot.contracts.base import Level
from bot.contracts.identity import ChatKey
from bot.words import Sentence


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch."""

    def monotonic(self) -> float: ...
    def boottime(self) -> float:
        """Return monotonic seconds, including the time in which the machine was suspended."""

    async def sleep(self, seconds: float) -> None: ...


async def ends_within(seconds: float, work: asyncio.Future[Any], clock: Clock) -> bool:
    """Return True if `work` ends within this time. Otherwise `work` continues; it is never cancelled."""
    patience = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait([work, patience], return_when=asyncio.FIRST_COMPLETED)
    finally:
        patience.cancel()
    return work.done()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all have ended, with or without an error."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


_R = TypeVar("_R")


async def off_loop(size: int, most: int, work: Callable[[], _R]) -> _R:
    """Return the result of `work`, which runs on a thread if `size` exceeds `most`."""
    return work() if size <= most else await asyncio.to_thread(work)


class Disk(Protocol):
    """The file system. Methods block, so call them on a writer thread or through `asyncio.to_thread`.
    Folders are created with mode 0700, files with 0600.
    """

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Append to a file or create it. With `sync`, the data and the name of a new file are fsynced."""

    def sync(self, path: Path) -> None:
        """Fsync a file, or the names in a folder. Do nothing if the path does not exist."""

    def read(self, path: Path) -> bytes:
        """Return the whole content of a file; b"" if the file does not exist."""

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading. A missing file counts as empty. A later `replace` does not change the open file's content."""

    def replace(self, path: Path, data: bytes) -> None:
        """Write a whole file atomically: write a temporary file, fsync it, rename it, and fsync the folder."""

    def rename(self, source: Path, target: Path) -> None: ...
    def truncate(self, path: Path, size: int) -> None: ...
    def remove(self, path: Path) -> None: ...
    def size(self, path: Path) -> int:
        """Return the size of a file in bytes; 0 if the file does not exist."""

    def names(self, folder: Path) -> list[str]:
        """Return the sorted names in a folder; [] if the folder does not exist."""


class Ids(Protocol):
    def ulid(self) -> str:
        """Return a new ULID, greater than every earlier ULID of this process."""

    def after(self, ulid: str) -> None:
        """Make later ULIDs greater than this ULID of another process, even if the clock was set back."""


class Log(Protocol):
    """The operator's log. It never blocks, never raises, and redacts everything that it writes."""

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
        """Write one log line. `chat_key`, `request_id` and the step default to the running turn's values. `duration` is
        in milliseconds. `details` are written as JSON with camelCase keys.
        """


def started(work: Coroutine[Any, Any, None], log: Log, failure: str) -> asyncio.Task[None]:
    """Start a background task. If the task fails, log `failure` with the error."""

    def over(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.write("error", f"{failure}: {type(error).__name__}: {error}", level="error")

    task = asyncio.create_task(work)
    task.add_done_callback(over)
    return task


Redact = Callable[[str], str]  # Function that replaces every known secret in a text


class OperatorNotices(Protocol):
    """Alerts operators (`bot.core.operators.OperatorAlerts`). It never blocks and never raises."""

    def tell(self, subject: str, words: Sentence, *, every: float = 3_600.0) -> object:
        """Alert operators. Each `subject` is reported at most once in `every` seconds."""


class Leadership(Protocol):
    """Leader election among processes that share one event log."""

    @property
    def epoch(self) -> int:
        """Return the number of the current leadership. Each new leader increases the number, which is 0 at first."""

    async def confirmed(self) -> None:
        """Return as soon as this process is certainly the leader. If another process has become the leader, never return,
        so that this process sends nothing more.
        """

    async def while_leading(self, call: Coroutine[Any, Any, _R]) -> _R:
        """Return the result of a long call. If the leadership may be lost, cancel the call and raise `errors.DeliveryUncertain`."""

    def role(self) -> str:
        """Return a description of the leadership state for operators; "" if there is nothing to report."""


class SoleLeader:
    """Leadership of the only process that uses a `.ship` folder."""

    epoch = 0

    async def confirmed(self) -> None:
        pass

    async def while_leading(self, call: Coroutine[Any, Any, _R]) -> _R:
        return await call

    def role(self) -> str:
        return ""
