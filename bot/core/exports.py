"""Exports: files that are written from the event log for readers outside the bot. A stored cursor is the number of the
newest exported event. Deleted files are written again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar

from bot import errors
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.event_log import EventLog
from bot.core.events import Event

BATCH = 200
"""Max events that an export reads at once."""
SYNC_SECONDS = 5.0
"""Interval in seconds of fsync and cursor update. After a power failure, the work of one interval is repeated."""
GATHER_SECONDS = 0.01
"""Delay in seconds before new events are read. Events gather, because one read for each commit would cost more."""
RETRY_SECONDS = 2.0
"""Interval in seconds between retries while the disk refuses writes."""


class ExportLost(errors.StorageError):
    """An export lost data that it had written. It must be written again, beginning at its cursor."""


class Export(ABC):
    """One kind of output, written from events in commit order. Passing the same events again changes nothing. Methods
    raise `errors.StorageError`.
    """

    name: ClassVar[str]

    async def cursor(self) -> int | None:
        """Return the event number up to which the output is written; None if the event log stores this number."""
        return None

    @property
    @abstractmethod
    def rests_on(self) -> int | None:
        """Return the number of the oldest event that the export still needs, or None. The stored cursor stays before
        that event.
        """

    async def missing(self, chats: Collection[ChatKey]) -> list[ChatKey]:
        """Return those of these chats that are missing in the output."""
        del chats
        return []

    @abstractmethod
    async def take(self, n: int, event: Event) -> bool:
        """Take in an event. Return True if the event adds output to write. An error changes nothing."""

    @abstractmethod
    async def write(self) -> None:
        """Write the output of all events taken in. After an error, the next call writes what is left."""

    @abstractmethod
    async def sync(self) -> None:
        """Flush the written output to disk."""

    async def close(self) -> None:  # noqa: B027 - most have nothing open
        """Close the export's open files."""


class Exporter:
    """Keeps an export up to date in a task of its own, so that a failing disk delays nothing else."""

    def __init__(self, export: Export, event_log: EventLog, *, clock: Clock, log: OperatorLog) -> None:
        self._export = export
        self._event_log = event_log
        self._clock = clock
        self._log = log
        self._at = self._kept = 0
        """Number of the newest exported event, and the number that the cursor stores."""
        self._more, self._soon = asyncio.Event(), asyncio.Event()
        """Two flags: new work has arrived; a caller waits in `flush`."""
        self._waiting: list[asyncio.Future[None]] = []
        self._keep_at = 0.0
        self._begun = self._trouble = False
        self._log_has_cursor = True
        self._task: asyncio.Task[None] | None = None
        event_log.watch(lambda _: self._more.set())

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"export {self._export.name}")
        self._task.add_done_callback(self._over)

    async def flush(self) -> None:
        """Wait until everything appended so far is exported, or until the disk refuses the write."""
        if self._task is None or self._task.done():
            return
        with suppress(errors.StorageError):
            await self._event_log.committed(patient=False)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._more.set()
        self._soon.set()
        await waiter

    def rewrite(self) -> None:
        """Start again at the export's own cursor, because the export lost data."""
        self._begun = False
        self._more.set()

    async def close(self) -> None:
        if self._task is None:
            return
        await self.flush()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with suppress(errors.StorageError):
            await self._keep()
        await self._export.close()

    async def _run(self) -> None:
        while True:
            self._more.clear()
            self._soon.clear()
            waiting, self._waiting = self._waiting, []
            try:
                if not self._begun:
                    await self._begin()
                more = await self._step()
                if self._at != self._kept and self._clock.monotonic() >= self._keep_at:
                    await self._keep()
                if more:
                    self._waiting = waiting + self._waiting
                    continue
                if self._trouble:
                    self._trouble = False
                    self._log.write("storage", f"the {self._export.name} can be written again")
                _tell(waiting)
                await self._rest()
            except ExportLost:
                self._begun = False
                self._waiting = waiting + self._waiting
            except errors.StorageError as error:
                self._refused(error)
                _tell(waiting)
                await self._clock.sleep(RETRY_SECONDS)

    async def _begin(self) -> None:
        """Start at the cursor, or at the beginning if the output lacks a chat or belongs to a lost log. Output that
        already exists is not written twice.
        """
        own = await self._export.cursor()
        self._log_has_cursor = own is None
        self._at = await self._event_log.cursor(self._export.name) if own is None else own
        if own and not await self._event_log.after(own - 1, 1):
            self._at = 0
        elif self._at and await self._gone():
            await self._event_log.move_cursor(self._export.name, 0)
            self._at = 0
        self._kept = self._at
        self._begun = True

    async def _gone(self) -> bool:
        for chat in await self._export.missing(await self._event_log.chats()):
            for event in await self._event_log.read(chat, pending=False):
                if await self._export.take(1, event):
                    return True
        return False

    async def _step(self) -> bool:
        found = await self._event_log.after(self._at, BATCH)
        for n, event in found:
            await self._export.take(n, event)
        await self._export.write()
        if found and self._at == self._kept:
            self._keep_at = self._clock.monotonic() + SYNC_SECONDS
        self._at = found[-1][0] if found else self._at
        return bool(found)

    async def _rest(self) -> None:
        left = self._keep_at - self._clock.monotonic() if self._at != self._kept else None
        for event, seconds in ((self._more, left), (self._soon, GATHER_SECONDS)):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()

    async def _keep(self) -> None:
        await self._export.sync()
        if self._log_has_cursor:
            rests_on = self._export.rests_on
            cursor = self._at if rests_on is None else min(self._at, rests_on - 1)
            await self._event_log.move_cursor(self._export.name, cursor)
        self._kept = self._at

    def _over(self, task: asyncio.Task[None]) -> None:
        _tell(self._waiting)
        if not task.cancelled() and (error := task.exception()) is not None:
            cause = f"{type(error).__name__}: {error}"
            self._log.write("error", f"the {self._export.name} ends", level="error", cause=cause)

    def _refused(self, error: errors.StorageError) -> None:
        if not self._trouble:
            words = f"the {self._export.name} cannot be written: it follows once the disk takes it"
            self._log.write("storage", words, level="error", cause=str(error))
        self._trouble = True


def _tell(waiting: list[asyncio.Future[None]]) -> None:
    for one in waiting:
        if not one.done():
            one.set_result(None)
