"""Rate limits of outgoing messages. A message needs a free slot in two budgets: its chat's budget and its channel's budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bot import errors
from bot.contracts.channel import Manifest, Pace
from bot.contracts.environment import Clock
from bot.core.outgoing import Address

MOST_BUDGETS = 4_096  # Max budgets in memory. If there are more, unused budgets are removed.
LONGEST_WAIT = 24 * 3600.0
SHORTEST_WAIT = 0.1
UNSAID = 1.0  # Seconds to wait if a platform asks the bot to wait, but does not say how long
UNLIMITED = Pace(burst=1_000_000, every=0.000_001)
MAX_WAIT = 60.0
"""Max seconds for which a message waits at a platform's request. If the platform asks for a longer wait, the message is postponed."""
_DUE = 1e-6  # a sleep may end too early by this many seconds


def patience(seconds: float) -> float:
    """Return `seconds`, the wait that a platform asks for, within the limits; `UNSAID` if `seconds` is no positive number."""
    if math.isnan(seconds) or seconds <= 0:
        return UNSAID
    return min(max(seconds, SHORTEST_WAIT), LONGEST_WAIT)


@dataclass(slots=True)
class _Bucket:
    """Token bucket of one budget. If no more tokens are taken, the bucket is full again at the time `full_at`. The lock
    `turn` keeps waiting messages in order, and `waiting` is their number.
    """

    pace: Pace
    full_at: float = -math.inf
    frozen_until: float = -math.inf
    waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def free_at(self, reserve: int = 0) -> float:
        """Return the earliest time at which the bucket has tokens for 1 + `reserve` messages."""
        return max(self.full_at - (self.pace.burst - 1 - reserve) * self.pace.every, self.frozen_until)

    def take(self, now: float) -> None:
        self.full_at = max(self.full_at, now) + self.pace.every


class RateLimiter:
    """Applies the rate limits in the channels' manifests; without limits if `limits` is False. A message waits for a slot. A
    cosmetic change, such as a preview's update, is dropped if no slot is free. Within w seconds, a budget assigns at most
    `burst + w / every` slots.
    """

    def __init__(self, manifests: Mapping[str, Manifest], clock: Clock, *, limits: bool) -> None:
        self._manifests = manifests
        self._clock = clock
        self._limits = limits
        self.buckets: dict[str, _Bucket] = {}

    async def slot(self, to: Address) -> float:
        """Wait for a slot in both budgets, take it, and return 0. Callers get slots in the order of their calls. If the
        platform has asked to wait longer than `MAX_WAIT`, take no slot and return the seconds to wait.
        """
        near, far = self._of(to)
        near.waiting, far.waiting = near.waiting + 1, far.waiting + 1
        try:
            async with near.turn:
                while True:
                    if wait := await self._wait_for_slot(near):
                        return wait
                    async with far.turn:
                        if wait := await self._wait_for_slot(far):
                            return wait
                        now = self._clock.monotonic()
                        # If the chat was frozen meanwhile, release the channel's lock, so that other chats can send.
                        if near.frozen_until <= now + _DUE:
                            near.take(now)
                            far.take(now)
                            return 0.0
        finally:
            near.waiting, far.waiting = near.waiting - 1, far.waiting - 1

    async def _wait_for_slot(self, bucket: _Bucket) -> float:
        while (now := self._clock.monotonic()) < (free := bucket.free_at()) - _DUE:
            if bucket.frozen_until - now > MAX_WAIT:
                return bucket.frozen_until - now
            await self._clock.sleep(free - now)
        return 0.0

    def spare(self, to: Address, *, reserve: int = 1, edit: bool = False) -> bool:
        """Take a slot for a cosmetic change and return True if all budgets have 1 + `reserve` free slots. Because of the
        reserve, no message has to wait after the change.
        """
        now, buckets = self._clock.monotonic(), [*self._of(to), self._cosmetic(to)]
        edits = self._manifests[to.channel].edits if edit and self._limits else None
        if edits is not None and edits.total is not None:
            buckets.append(self._bucket(f"{to.channel} edits", edits.total))
        if any(one.waiting or one.free_at(reserve) > now for one in buckets):
            return False
        for one in buckets:
            one.take(now)
        return True

    def freeze(self, to: Address, error: errors.DeliveryThrottled, *, cosmetic: bool = False) -> None:
        """Stop sending for as long as the platform asks. If it refuses a `cosmetic` call in all chats, stop only cosmetic calls."""
        chat, total = self._of(to)
        bucket = (self._cosmetic(to) if cosmetic else total) if error.everywhere else chat
        bucket.frozen_until = max(bucket.frozen_until, self._clock.monotonic() + patience(error.retry_after))

    def _of(self, to: Address) -> tuple[_Bucket, _Bucket]:
        """Return the buckets of an address: that of its chat, which all threads share, and that of its channel."""
        manifest, limits = self._manifests[to.channel], self._limits
        chat = self._bucket(f"{to.channel}:{to.chat_id}", manifest.pace.get(to.chat_type) if limits else None)
        return chat, self._bucket(to.channel, manifest.total if limits else None)

    def _cosmetic(self, to: Address) -> _Bucket:
        return self._bucket(f"{to.channel} signs", None)

    def _bucket(self, name: str, pace: Pace | None) -> _Bucket:
        if name not in self.buckets:
            if len(self.buckets) > MOST_BUDGETS:
                now, known = self._clock.monotonic(), self.buckets.items()
                self.buckets = {
                    key: one for key, one in known if one.waiting or max(one.full_at, one.frozen_until) > now
                }
            self.buckets[name] = _Bucket(UNLIMITED)
        self.buckets[name].pace = pace or UNLIMITED
        return self.buckets[name]
