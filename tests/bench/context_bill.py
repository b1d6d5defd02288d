"""What a chat costs: every request that was sent for it, as the provider's cache takes it and its price list bills it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bot.contracts.model import Usage
from bot.llm.prices import PriceTable

MODEL = "claude-sonnet-5-5"
SMALLEST = 1_024
"""Tokens of a prefix below which nothing is kept."""
LIFETIME = 300.0
LOOK_BACK = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: what it was billed as and how it relates to the one of the chat before it."""

    usage: Usage
    turn: int
    purpose: str = "turn"
    stable: float | None = None
    """Which part of the request before begins this one, in tokens; None where it is no matter (forks, the first)."""
    broken: bool = False
    """The view changed, or the cache was lost while warm, and nobody had declared it."""

    @property
    def prompt(self) -> int:
        usage = self.usage
        return usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


@dataclass
class Bill:
    """All of it."""

    sent: list[Sent] = field(default_factory=list)

    def cents(self, turns: int) -> float:
        """Of a turn, on average; what memory and compaction cost included."""
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
        """Prompt tokens of a turn, on average over the turns from `first` to before `last`."""
        return sum(one.prompt for one in self.sent if first <= one.turn < last) / (last - first)

    def count(self, purpose: str) -> int:
        return sum(one.purpose == purpose for one in self.sent)


Block = tuple[object, int]
"""What makes it this block and no other one, and its tokens."""


@dataclass
class Account:
    """The provider's cache for a policy that is simulated: prompts are blocks that need no bytes."""

    bill: Bill = field(default_factory=Bill)
    _entries: dict[int, float] = field(default_factory=dict)
    _before: list[tuple[int, int]] = field(default_factory=list)

    def send(self, blocks: Sequence[Block], marks: Sequence[int], now: float, output: int, turn: int) -> None:
        """Bill one request; `marks` are the places of its breakpoints."""
        parts = list(_chain(blocks))
        hit = next((at for at in self._looked(parts, marks, now)), -1)
        read = parts[hit][1] if hit >= 0 else 0
        kept = [at for at in marks if parts[at][1] >= SMALLEST]
        done = max([read, *(parts[at][1] for at in kept)])
        for at in [*kept, *([hit] if hit >= 0 else [])]:
            self._entries[parts[at][0]] = now + LIFETIME
        usage = Usage(parts[-1][1] - done, output, read, done - read)
        self.bill.sent.append(Sent(usage, turn, stable=self._stable(parts)))
        self._before = parts

    def _looked(self, parts: list[tuple[int, int]], marks: Sequence[int], now: float) -> Iterator[int]:
        for mark in reversed(marks):
            for at in range(mark, max(-1, mark - LOOK_BACK), -1):
                if self._entries.get(parts[at][0], 0.0) > now:
                    yield at

    def _stable(self, parts: list[tuple[int, int]]) -> float | None:
        return shared(self._before, parts) if self._before else None


def shared(before: Sequence[tuple[object, int]], now: Sequence[tuple[object, int]]) -> float:
    """Which part of the request before begins this one; both as (digest of all up to here, tokens up to here)."""
    same = itertools.takewhile(
        lambda pair: pair[0] == pair[1],
        zip((p[0] for p in before), (p[0] for p in now), strict=False),
    )
    count = sum(1 for _ in same)
    return before[count - 1][1] / before[-1][1] if count else 0.0


def _chain(blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    digest, end = 0, 0
    for name, tokens in blocks:
        digest, end = hash((digest, name, tokens)), end + tokens
        yield digest, end
