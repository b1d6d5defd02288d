"""Holds: a person who writes several messages in a row is waited for until they are quiet."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from dataclasses import dataclass
from typing import Protocol

from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey, UserRef
from bot.gateway.conversation import LONGEST_BURST


@dataclass(slots=True)
class _Burst:
    number: int
    began: float
    until: float
    past: bool


class HearsQuiet(Protocol):
    """Who waits for people to be quiet (`bot.gateway.lanes.Lanes`)."""

    def quiet(self, chat_key: ChatKey) -> None:
        """A burst in this chat is over."""
        ...


class Debouncer:
    """Numbers bursts, and says which ones are still going on. Times are seconds of the clock's `monotonic`.

    With a `debounce` of 0 every message is a burst of its own and nobody is waited for. `listener` hears of each chat in
    which a burst has ended.
    """

    def __init__(self, clock: Clock, debounce: float, listener: HearsQuiet) -> None:
        self._clock = clock
        self._debounce = debounce
        self._listener = listener
        self._bursts: dict[tuple[ChatKey, UserRef], _Burst] = {}
        self._due: list[tuple[float, int, tuple[ChatKey, UserRef]]] = []
        self._numbers = itertools.count(1)
        self._timer: asyncio.Task[None] | None = None

    def burst(self, chat_key: ChatKey, who: UserRef, *, at: float | None, held: bool) -> int:
        """The number of the burst that a message belongs to. `at`: it came in the past, by the time of day. What is
        not `held` ends the burst before it.
        """
        key = chat_key, who
        if not held or not self._debounce:
            self._bursts.pop(key, None)
            return next(self._numbers)
        now = self._clock.monotonic() if at is None else at
        burst = self._bursts.get(key)
        if burst is None or burst.past != (at is not None) or now >= burst.until:
            burst = _Burst(next(self._numbers), now, 0.0, at is not None)
            self._bursts[key] = burst
        burst.until = min(now + self._debounce, burst.began + LONGEST_BURST * self._debounce)
        if at is None:
            heapq.heappush(self._due, (burst.until, burst.number, key))
            if self._timer is None:
                self._timer = asyncio.create_task(self._keep_time())
        return burst.number

    def held(self, chat_key: ChatKey, who: UserRef) -> int | None:
        """The number of the burst that a person may still be writing."""
        burst = self._bursts.get((chat_key, who))
        return burst.number if burst is not None and not burst.past else None

    def end(self, chat_key: ChatKey, who: UserRef) -> None:
        """Nothing of this person waits in this chat any more."""
        self._bursts.pop((chat_key, who), None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _keep_time(self) -> None:
        """One timer for all: what begins later ends later."""
        while self._due:
            due, number, key = self._due[0]
            wait = due - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
                continue
            heapq.heappop(self._due)
            burst = self._bursts.get(key)
            if burst is not None and burst.number == number and burst.until <= due:
                del self._bursts[key]
                self._listener.quiet(key[0])
        self._timer = None
