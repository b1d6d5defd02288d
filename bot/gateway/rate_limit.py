"""How fast may be written: a budget for each chat and one for the whole bot, spent by everything visible and cosmetic."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from bot.contracts.channel import Pace
from bot.contracts.environment import Clock

SWEEP_ABOVE = 4_096
"""Budgets kept before those that are whole again are forgotten."""
LONGEST_WAIT = 24 * 3600.0
SHORTEST_WAIT = 0.1
UNSAID = 1.0
"""Seconds to wait where a platform asks for it and names no time that makes sense."""
NEVER = -math.inf
_DUE = 1e-6  # a sleep may end this many seconds early

Budget = tuple[str, Pace]


def patience(seconds: float) -> float:
    """What a platform asks to wait, as seconds that can be waited."""
    if math.isnan(seconds) or seconds <= 0:
        return UNSAID
    return min(max(seconds, SHORTEST_WAIT), LONGEST_WAIT)


@dataclass(slots=True)
class _Bucket:
    """`spent` is the moment at which the whole budget is free again; `turn` keeps the order of who waits, `waiting`
    counts them.
    """

    pace: Pace
    spent: float = NEVER
    frozen_until: float = NEVER
    waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def free_at(self, reserve: int = 0) -> float:
        """When one more may go out, so that `reserve` further ones might follow at once."""
        return max(self.spent - (self.pace.burst - 1 - reserve) * self.pace.every, self.frozen_until)

    def take(self, now: float) -> None:
        self.spent = max(self.spent, now) + self.pace.every

    def whole(self, now: float) -> bool:
        return max(self.spent, self.frozen_until) <= now and not self.waiting

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class Pacer:
    """Messages wait for their slot; what is only cosmetic is dropped when there is none.

    Over any window of w seconds at most `burst + w / every` slots of a budget are given.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._sweep_above = SWEEP_ABOVE

    def __len__(self) -> int:
        return len(self._buckets)

    async def slot(self, chat: Budget, total: Budget, *, longest: float = math.inf) -> float:
        """Wait until one more message may go to this chat, and take that slot; first come, first served.

        Where the platform wants to be left alone for longer than `longest`, nothing is taken and those seconds
        are returned, else 0.
        """
        near, far = self._bucket(chat), self._bucket(total)
        with near.awaited(), far.awaited():
            async with near.turn:
                while True:
                    if wait := await self._freed(near, longest):
                        return wait
                    async with far.turn:
                        if wait := await self._freed(far, longest):
                            return wait
                        now = self._clock.monotonic()
                        # A chat that was frozen meanwhile waits where it holds up nobody else.
                        if near.frozen_until <= now + _DUE:
                            near.take(now)
                            far.take(now)
                            return 0.0

    def spare(self, *budgets: Budget, reserve: int = 1) -> bool:
        """Take a slot of each for something cosmetic where it and `reserve` more are free: no message must wait for it."""
        now = self._clock.monotonic()
        buckets = [self._bucket(budget) for budget in budgets]
        if any(one.waiting or one.free_at(reserve) > now for one in buckets):
            return False
        for one in buckets:
            one.take(now)
        return True

    def freeze(self, budget: Budget, seconds: float) -> None:
        """The platform asked to wait: nothing goes out under this budget before."""
        bucket = self._bucket(budget)
        bucket.frozen_until = max(bucket.frozen_until, self._clock.monotonic() + patience(seconds))

    def frozen(self, *names: str) -> float:
        """Seconds until none of these budgets is frozen any more."""
        known = [self._buckets[name] for name in names if name in self._buckets]
        until = max((one.frozen_until for one in known), default=NEVER)
        return max(0.0, until - self._clock.monotonic())

    async def _freed(self, bucket: _Bucket, longest: float) -> float:
        """Wait until a budget has a slot; its freeze, where that is longer than `longest`, else 0."""
        while (now := self._clock.monotonic()) < (free := bucket.free_at()) - _DUE:
            if bucket.frozen_until - now > longest:
                return bucket.frozen_until - now
            await self._clock.sleep(free - now)
        return 0.0

    def _bucket(self, budget: Budget) -> _Bucket:
        name, pace = budget
        bucket = self._buckets.get(name)
        if bucket is None:
            self._forget()
            bucket = self._buckets[name] = _Bucket(pace)
        bucket.pace = pace
        return bucket

    def _forget(self) -> None:
        """A budget that is whole again is like a new one; one that is spent, waited for or frozen is never forgotten."""
        if len(self._buckets) < self._sweep_above:
            return
        now = self._clock.monotonic()
        self._buckets = {name: one for name, one in self._buckets.items() if not one.whole(now)}
        self._sweep_above = max(SWEEP_ABOVE, 2 * len(self._buckets))
