"""Tasks that nobody awaits: turns, and what runs beside them. A stop lets them end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from bot.contracts.environment import Log

CANCEL_SECONDS = 1.0
"""The time for tasks to end that a stop has cancelled."""


class BackgroundTasks:
    """Runs work in tasks of their own. A failure is logged and hurts nobody else."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._tasks: set[asyncio.Future[object]] = set()
        self._loops: set[asyncio.Task[None]] = set()
        self._suspended = 0
        self._changed = asyncio.Event()

    def start(self, work: Awaitable[object], ended: Callable[[bool], None] | None = None) -> None:
        """Begin work. `ended` hears whether it went well, unless it was cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, ended))

    def serve(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run a loop that waits for work, until `drain`. It does not count as busy."""
        task = asyncio.create_task(loop)
        self._loops.add(task)
        task.add_done_callback(self._served)

    @property
    def busy(self) -> int:
        """The number of tasks that run."""
        return len(self._tasks)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Mark the task of the block as one that waits for a person: a stop does not wait for it."""
        self._suspended += 1
        self._changed.set()
        try:
            yield
        finally:
            self._suspended -= 1

    async def idle(self) -> None:
        """Return once no task runs."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def drain(self, seconds: float) -> bool:
        """End the loops and let the tasks end; after `seconds` they are cancelled. Those that wait for a person are
        cancelled as soon as no other runs. True where all others ended.
        """
        for loop in self._loops:
            loop.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self._tasks) > self._suspended:
                    self._changed.clear()
                    await self._changed.wait()
        ended = len(self._tasks) <= self._suspended
        late: list[asyncio.Future[Any]] = [*self._tasks, *self._loops]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=CANCEL_SECONDS)
        return ended

    def _served(self, loop: asyncio.Task[None]) -> None:
        self._loops.discard(loop)
        if not loop.cancelled() and (error := loop.exception()) is not None:
            self._log.write("error", f"a loop ended: {type(error).__name__}: {error}", level="error")

    def _done(self, ended: Callable[[bool], None] | None, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._log.write(
                "error", f"work on a message failed: {type(error).__name__}: {error}", level="error"
            )
        if ended is not None:
            ended(error is None)
