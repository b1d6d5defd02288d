"""How fast one chat may be written to: a token bucket for each, spent by everything visible and cosmetic."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from bot.contracts import Clock, Pace

MAX_BUCKETS = 4_096


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float
    frozen_until: float = 0.0


class Pacer:
    """Messages wait for their slot; what is only cosmetic is dropped when there is none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    async def slot(self, key: str, pace: Pace) -> None:
        """Wait until one more message may go to this chat, and take that slot."""
        bucket = self._filled(key, pace)
        bucket.tokens -= 1
        wait = max(-bucket.tokens * pace.every, bucket.frozen_until - self._clock.monotonic())
        if wait > 0:
            await self._clock.sleep(wait)

    def spare(self, key: str, pace: Pace) -> bool:
        """Take a slot for something cosmetic where two are free: the next message must not wait for it."""
        bucket = self._filled(key, pace)
        if bucket.tokens < 2 or bucket.frozen_until > self._clock.monotonic():
            return False
        bucket.tokens -= 1
        return True

    def freeze(self, key: str, seconds: float) -> None:
        """The platform asked to wait: nothing goes to this chat before."""
        if key in self._buckets:
            self._buckets[key].frozen_until = self._clock.monotonic() + seconds

    def _filled(self, key: str, pace: Pace) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(float(pace.burst), now)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.tokens = min(float(pace.burst), bucket.tokens + (now - bucket.at) / pace.every)
            bucket.at = now
        return bucket
