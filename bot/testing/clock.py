"""Clocks for tests: `FakeClock` moves only on command, `SteeredClock` runs and can be moved, `FastClock` runs fast."""

from __future__ import annotations

import asyncio
import heapq

from bot.contracts.environment import Clock


class FakeClock:
    """A `contracts.environment.Clock` that only the test moves. `advance` wakes the sleeping tasks in the order of their times."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self.ticks = 0.0
        self._suspended = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self.ticks

    def boottime(self) -> float:
        return self.ticks + self._suspended

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.ticks + seconds, self._count, future))
        await future

    @property
    def sleeping(self) -> int:
        """Number of tasks that sleep on this clock."""
        return len(self.wakes)

    @property
    def wakes(self) -> list[float]:
        """Monotonic times at which the sleeping tasks wake."""
        return [due for due, _, future in self._sleepers if not future.done()]

    def jump(self, seconds: float) -> None:
        """Move the wall clock by `seconds`; monotonic time does not change."""
        self._now += seconds

    def suspend(self, seconds: float) -> None:
        """Move the wall clock as if the machine were suspended: no task wakes, and monotonic time does not change."""
        self._now += seconds
        self._suspended += seconds

    async def advance(self, seconds: float) -> None:
        """Move the clock forward. Each sleeping task wakes at its time, and the event loop runs after each wake-up."""
        end = self.ticks + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._now += due - self.ticks
            self.ticks = due
            if not future.done():
                future.set_result(None)
            for _ in range(5):
                await asyncio.sleep(0)
        self._now += end - self.ticks
        self.ticks = end
        for _ in range(5):
            await asyncio.sleep(0)


class SteeredClock:
    """A `contracts.environment.Clock` that follows another clock and can be moved."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._jumped = 0.0
        self._passed = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return self._inner.now() + self._passed + self._jumped

    def monotonic(self) -> float:
        return self._inner.monotonic() + self._passed

    def boottime(self) -> float:
        return self._inner.boottime() + self._passed

    async def sleep(self, seconds: float) -> None:
        due = self.monotonic() + seconds
        while (left := due - self.monotonic()) > 0:
            waiting = [
                asyncio.ensure_future(self._inner.sleep(left)),
                asyncio.ensure_future(self._moved.wait()),
            ]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        await asyncio.sleep(0)

    def jump(self, seconds: float) -> None:
        """Move the wall clock by `seconds`; monotonic time does not change."""
        self._jumped += seconds

    def advance(self, seconds: float) -> None:
        """Move the clock forward at once, and wake the tasks whose time has come."""
        self._passed += seconds
        self._moved.set()
        self._moved = asyncio.Event()


class FastClock:
    """A `contracts.environment.Clock` that runs `speed` times as fast as another clock. At the time `since`
    (epoch seconds) both clocks show the same time.
    """

    def __init__(self, inner: Clock, speed: float, since: float) -> None:
        self._inner = inner
        self._speed = speed
        self._since = since

    def now(self) -> float:
        return self._since + (self._inner.now() - self._since) * self._speed

    def monotonic(self) -> float:
        return self._inner.monotonic() * self._speed

    def boottime(self) -> float:
        return self._inner.boottime() * self._speed

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds / self._speed)
