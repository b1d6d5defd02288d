"""Background tasks: turns and other work that no caller awaits. A shutdown lets these tasks finish."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from bot.contracts.environment import Log

CANCEL_SECONDS = 1.0
"""Timeout in seconds for cancelled tasks to end."""


class BackgroundTasks:
    """Runs coroutines as background tasks. A failure is logged and affects no other task."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._tasks: set[asyncio.Future[object]] = set()
        self._loops: set[asyncio.Task[None]] = set()
        self._suspended = 0
        self._changed = asyncio.Event()

    def start(self, work: Awaitable[object], ended: Callable[[bool], None] | None = None) -> None:
        """Start a task. `ended` is called with True if the task succeeded, else False; it is not called if
        the task was cancelled.
        """
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._done, ended))

    def serve(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run an endless loop as a task until `drain`. The loop does not count as busy."""
        task = asyncio.create_task(loop)
        self._loops.add(task)
        task.add_done_callback(self._served)

    @property
    def busy(self) -> int:
        """Return the number of running tasks."""
        return len(self._tasks)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Mark the current task as waiting for a person inside the `with` block. `drain` does not wait for
        such a task.
        """
        self._suspended += 1
        self._changed.set()
        try:
            yield
        finally:
            self._suspended -= 1

    async def idle(self) -> None:
        """Wait until no task is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def drain(self, seconds: float) -> bool:
        """Stop the loops, give the tasks `seconds` seconds to finish, then cancel them. Tasks that wait for
        a person are cancelled once no other task runs. Returns True if all other tasks finished by
        themselves.
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
