"""Computes what a chat costs: every request of the chat, billed by the rules of the provider's cache and by
its price list.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.contracts.model import Usage
from bot.llm.costs import PriceTable

MODEL = "claude-sonnet-5-5"
SMALLEST = 1_024
"""Min size in tokens of a prefix that the provider caches."""
LIFETIME = 300.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One billed request, and the share of the chat's previous request that it repeats."""

    usage: Usage
    turn: int
    purpose: str = "turn"
    stable: float | None = None
    """Share of the previous request (in tokens) that this request repeats at its start. None if the share
    has no meaning: for forks and for the first request.
    """
    broken: bool = False
    """True if the messages sent before changed, or a warm cache was lost, although no event declares a change."""

    @property
    def prompt(self) -> int:
        usage = self.usage
        return usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


@dataclass
class Bill:
    sent: list[Sent] = field(default_factory=list)

    def cents(self, turns: int) -> float:
        """Return the average cost of a turn in US cents, including the cost of memory and compaction."""
        return 100 * sum(PriceTable().cost_usd(MODEL, one.usage) or 0.0 for one in self.sent) / turns

    def cents_of(self, purpose: str, turns: int) -> float:
        costs = (PriceTable().cost_usd(MODEL, one.usage) for one in self.sent if one.purpose == purpose)
        return 100 * sum(cost or 0.0 for cost in costs) / turns

    @property
    def read_share(self) -> float:
        return sum(one.usage.cache_read_tokens for one in self.sent) / sum(one.prompt for one in self.sent)

    @property
    def stability(self) -> float:
        shares = [one.stable for one in self.sent if one.stable is not None]
        return sum(shares) / len(shares)

    @property
    def breaks(self) -> int:
        return sum(one.broken for one in self.sent)

    @property
    def largest(self) -> int:
        return max(one.prompt for one in self.sent)

    def tokens(self, first: int, last: int) -> float:
        """Return the average prompt tokens of a turn, for the turns from `first` up to but not including `last`."""
        return sum(one.prompt for one in self.sent if first <= one.turn < last) / (last - first)

    def count(self, purpose: str) -> int:
        return sum(one.purpose == purpose for one in self.sent)


def shared(before: Sequence[tuple[object, int]], now: Sequence[tuple[object, int]]) -> float:
    """Return the share of the previous request's tokens that the new request repeats at its start."""
    same = itertools.takewhile(
        lambda pair: pair[0] == pair[1],
        zip((p[0] for p in before), (p[0] for p in now), strict=False),
    )
    count = sum(1 for _ in same)
    return before[count - 1][1] / before[-1][1] if count else 0.0
