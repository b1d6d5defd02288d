"""Group commit: items that piled up during the last batch are written in one hop to one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from bot import errors

T = TypeVar("T")
R = TypeVar("R")

LARGEST = 1_000  # items in one batch
LINGER = 0.005
"""Seconds for which an item that is in no hurry waits for others."""
PATIENCE = 0.25
"""The same where many come: each hop to a thread takes the interpreter from what people wait for."""
MANY = 20
"""Items within a second."""


class Batcher(Generic[T, R]):
    """Hands items to `work` on a thread of its own, in the order of `put`, many at a time.

    `work` gets a batch and answers with one result for each item; an error among them is raised to the caller of
    that item alone. A caller that is cancelled takes nothing back: its item is worked on all the same. One that is `patient`
    lets items that are in no hurry wait longer where many come.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[T]], Sequence[R | errors.ShipmateError]],
        *,
        patient: bool = False,
    ) -> None:
        self._name = name
        self._work = work
        self._patient = patient
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None
        self._pool: ThreadPoolExecutor | None = None
        # The loop on which a timer runs: one for all that wait.
        self._lingers: asyncio.AbstractEventLoop | None = None
        # Items that were put, and worked on; what is done once the batch of now is over.
        self._put, self._done = 0, 0
        self._over: asyncio.Future[None] | None = None
        # Items of the second that began then, and of the one before it.
        self._second, self._count, self._before = 0.0, 0, 0

    def put(self, item: T, *, hurry: bool = True) -> asyncio.Future[R]:
        """Have one item worked on; the future gives its result, and need not be awaited. One that is in no hurry
        keeps its place, and may wait a moment for one that is: the thread would be in the way of what is more urgent.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        self._put += 1
        self._count_item(loop.time())
        if hurry:
            self._begin(loop)
        elif self._lingers is not loop:
            self._lingers = loop
            many = self._patient and max(self._count, self._before) >= MANY
            loop.call_later(PATIENCE if many else LINGER, self._lingered, loop)
        return future

    async def flush(self) -> None:
        """Return once all that was put before this is worked on; none of it waits any longer."""
        wanted, loop = self._put, asyncio.get_running_loop()
        self._begin(loop)
        while self._done < wanted and self._over is not None and self._over.get_loop() is loop:
            await asyncio.wait([self._over])

    def _count_item(self, now: float) -> None:
        """One item more."""
        if now - self._second >= 1:
            self._before = self._count if now - self._second < 2 else 0
            self._second, self._count = now, 0
        self._count += 1

    def _lingered(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lingers = None
        self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and (self._task is None or self._task.done() or self._task.get_loop() is not loop):
            if self._over is None or self._over.get_loop() is not loop:
                self._over = loop.create_future()
            self._task = loop.create_task(self._drain(), name=self._name)

    async def close(self) -> None:
        """Finish what waits and let the thread go. A later `put` starts anew."""
        self._begin(asyncio.get_running_loop())
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting[:LARGEST], self._waiting[LARGEST:]
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix=self._name)
            try:
                results = await loop.run_in_executor(self._pool, self._work, [item for item, _ in batch])
                for (_, future), result in zip(batch, results, strict=True):
                    _resolve(future, result)
            finally:
                # Only where `work` itself broke: nobody may wait for ever.
                for _, future in batch:
                    _resolve(future, errors.StorageError(f"{self._name}: the batch broke off"))
                self._done += len(batch)
                over, self._over = self._over, loop.create_future() if self._waiting else None
                if over is not None and not over.get_loop().is_closed():
                    over.set_result(None)


def _resolve(future: asyncio.Future[R], result: R | errors.ShipmateError) -> None:
    if future.done() or future.get_loop().is_closed():
        return
    if isinstance(result, errors.ShipmateError):
        # One of its own for each caller: a raised error collects the way it took.
        illegal = isinstance(result, errors.IllegalTransition)
        future.set_exception((errors.IllegalTransition if illegal else errors.StorageError)(str(result)))
        # Seen by this, so that the event loop does not log it: the worker on the items reports it.
        future.exception()
    else:
        future.set_result(result)
