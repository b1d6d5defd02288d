"""Lanes: one writer for each chatKey. Its work is done one after another, different lanes side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from bot.contracts import Inbound, Log


class _Lane:
    def __init__(self) -> None:
        self.waiting: deque[Inbound] = deque()
        self.running: Inbound | None = None


class Lanes:
    """Queues of inbound by chatKey. A lane exists only while it has work; at most `limit` run at once.

    `work` does one inbound; what it raises is logged, `sorry` tells the person, and the lane goes on with the next.
    """

    def __init__(
        self,
        work: Callable[[Inbound], Awaitable[None]],
        sorry: Callable[[Inbound], Awaitable[None]],
        *,
        limit: int,
        log: Log,
    ) -> None:
        self._work = work
        self._sorry = sorry
        self._places = asyncio.Semaphore(limit)
        self._log = log
        self._lanes: dict[str, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, inbound: Inbound) -> None:
        """Queue one inbound behind the others of its chat."""
        lane = self._lanes.get(inbound.chat_key)
        if lane is None:
            lane = self._lanes[inbound.chat_key] = _Lane()
            self._start(self._run(inbound.chat_key, lane))
        lane.waiting.append(inbound)

    def beside(self, work: Awaitable[None]) -> None:
        """Do something that must not wait for its chat's lane."""
        self._start(self._ended(work))

    def running(self, chat_key: str) -> Inbound | None:
        """The inbound whose turn runs in this chat."""
        lane = self._lanes.get(chat_key)
        return lane.running if lane is not None else None

    def waiting(self, chat_key: str) -> int:
        """How many inbound wait in this chat."""
        lane = self._lanes.get(chat_key)
        return len(lane.waiting) if lane is not None else 0

    def take(
        self, chat_key: str, wanted: Callable[[Inbound], bool], *, leading: bool = False
    ) -> list[Inbound]:
        """Take waiting inbound out of the queue: every wanted one or, with `leading`, those before the first
        that is not wanted.
        """
        lane = self._lanes.get(chat_key)
        taken: list[Inbound] = []
        if lane is None:
            return taken
        rest: deque[Inbound] = deque()
        while lane.waiting:
            inbound = lane.waiting.popleft()
            if wanted(inbound):
                taken.append(inbound)
            elif leading:
                lane.waiting.appendleft(inbound)
                break
            else:
                rest.append(inbound)
        lane.waiting.extendleft(reversed(rest))
        return taken

    @property
    def active(self) -> int:
        """How many lanes have work."""
        return len(self._lanes)

    async def drain(self, seconds: float) -> bool:
        """Start nothing new and let what runs end; after `seconds` it is cancelled. True where all ended."""
        self._closed = True
        for lane in self._lanes.values():
            lane.waiting.clear()
        if not self._tasks:
            return True
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
        return not late

    async def _ended(self, work: Awaitable[None]) -> None:
        await self._supervised(work)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, chat_key: str, lane: _Lane) -> None:
        while lane.waiting and not self._closed:
            async with self._places:
                if not lane.waiting:
                    break
                lane.running = lane.waiting.popleft()
                if not await self._supervised(self._work(lane.running)):
                    await self._supervised(self._sorry(lane.running))
                lane.running = None
        del self._lanes[chat_key]

    async def _supervised(self, work: Awaitable[None]) -> bool:
        """Await work in a task of its own: its failure is logged and hurts nobody else. False where it failed."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.write(
                "error", f"work on a message failed: {type(error).__name__}: {error}", level="error"
            )
            return False
        return True
