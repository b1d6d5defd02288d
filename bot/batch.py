"""Group commit: items that piled up during the last batch are written in one hop to one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from bot import errors

T = TypeVar("T")
R = TypeVar("R")

LARGEST = 1_000  # items in one batch
LINGER = 0.005
"""Seconds for which an item that is in no hurry waits for others."""
PATIENCE = 0.25
"""The same where many come: each hop to a thread takes the interpreter from what people wait for."""
MANY = 20
"""Items at once, or over some seconds more than that a second."""
_MARK: Any = object()  # an item that is no work: once it is reached, all before it is worked on


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
        # Items beyond MANY a second, when the newest came.
        self._level, self._at = 0.0, 0.0

    def put(self, item: T, *, hurry: bool = True) -> asyncio.Future[R]:
        """Have one item worked on; the future gives its result, and need not be awaited. One that is in no hurry
        keeps its place, and may wait a moment for one that is: the thread would be in the way of what is more urgent.
        """
        loop = asyncio.get_running_loop()
        future = self._queued(item, loop)
        before, self._at = self._at, loop.time()
        self._level = min(max(0.0, self._level - (self._at - before) * MANY) + 1, 2 * MANY)
        if hurry:
            self._begin(loop)
        elif self._lingers is not loop:
            self._lingers = loop
            many = self._patient and self._level > MANY - 1
            loop.call_later(PATIENCE if many else LINGER, self._lingered, loop)
        return future

    async def flush(self) -> None:
        """Return once all that was put before this is worked on; none of it waits any longer."""
        if self._waiting or (self._task is not None and not self._task.done()):
            loop = asyncio.get_running_loop()
            reached = self._queued(_MARK, loop)
            self._begin(loop)
            await asyncio.wait([reached])

    def _queued(self, item: T, loop: asyncio.AbstractEventLoop) -> asyncio.Future[R]:
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        return future

    def _lingered(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lingers = None
        self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and (self._task is None or self._task.done() or self._task.get_loop() is not loop):
            self._task = loop.create_task(self._drain(), name=self._name)
            # Where `work` itself broke, what came behind that batch waits for no other item.
            self._task.add_done_callback(lambda _: self._begin(loop))

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
            work = [one for one in batch if one[0] is not _MARK]
            results: Sequence[R | errors.ShipmateError] = ()
            try:
                if work:
                    results = await loop.run_in_executor(self._pool, self._work, [item for item, _ in work])
                for (_, future), result in zip(work, results, strict=True):
                    _resolve(future, result)
            finally:
                # Marks; and where `work` itself broke, all: nobody may wait for ever.
                for _, future in batch:
                    _resolve(future, errors.StorageError(f"{self._name}: the batch broke off"))


def _resolve(future: asyncio.Future[R], result: R | errors.ShipmateError) -> None:
    if future.done() or future.get_loop().is_closed():
        return
    if isinstance(result, errors.ShipmateError):
        # One of its own for each caller: a raised error collects the way it took.
        future.set_exception(errors.StorageError(str(result)))
        # Seen by this, so that the event loop does not log it: the worker on the items reports it.
        future.exception()
    else:
        future.set_result(result)
