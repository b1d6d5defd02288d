"""Totals of tokens and cost, computed from lines of the operator's log or from rows of the table `usage`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Line = Mapping[str, Any]
TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")


@dataclass
class UsageTotals:
    """Totals of a period or a turn. A failed model call adds its billed tokens and cost, but does not count as a call."""

    turns: int = 0
    failed: int = 0
    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    """Number of answers by model."""
    tokens: Counter[str] = field(default_factory=Counter)
    cost: float = 0.0
    unpriced: int = 0
    waits: Counter[int] = field(default_factory=Counter)
    """Number of answers by waiting time (milliseconds, two significant digits). A person waits from sending the message until
    the first words of the answer appear.
    """
    spent: Counter[str] = field(default_factory=Counter)
    """Sum of all waiting times in milliseconds (key ""), and the sums of their parts `queue`, `approval`, `model`, `tools`
    and `delivery`.
    """
    ratings: Counter[str] = field(default_factory=Counter)
    """Number of times that each rating was given. If a person changes a rating, both are counted."""

    def add(self, more: UsageTotals) -> None:
        """Add the turns, calls, tokens and cost of other totals."""
        for name in ("turns", "failed", "calls", "unpriced", "cost"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.tokens.update(more.tokens)

    def take(self, line: Line) -> None:
        """Count a log line if the line is a response of the model."""
        if line.get("kind") != "llm_response":
            return
        details = details_of(line)
        usage, cost, error = details.get("usage"), details.get("costUsd"), details.get("error")
        if usage:
            self.tokens.update({name: usage.get(name, 0) for name in TOKENS})
            self.cost += cost or 0
            self.unpriced += cost is None
        if error is not None or not usage:
            self.errors[str(error or "unknown")] += 1
        else:
            self.calls += 1
            self.models[str(details.get("model") or "unknown")] += 1

    @property
    def prompt(self) -> int:
        """Return the number of input tokens, including cached tokens."""
        return sum(self.tokens[name] for name in TOKENS[:3])

    @property
    def cached(self) -> float | None:
        """Return the cached share of the input tokens; None without input."""
        return self.tokens["cacheReadTokens"] / self.prompt if self.prompt else None

    @property
    def model_share(self) -> float | None:
        """Return the model's share of the waiting times; None without waiting times."""
        return self.spent["model"] / self.spent[""] if self.spent[""] else None

    def wait(self, share: float) -> int | None:
        """Return a quantile of the waiting times in ms. For example, `share` 0.99 gives the p99. Return None if nobody waited."""
        left = max(1, math.ceil(share * self.waits.total()))
        for ms, count in sorted(self.waits.items()):
            left -= count
            if left <= 0:
                return ms
        return None


def total_of(lines: Sequence[Line]) -> UsageTotals:
    """Return the usage totals of a turn. Requests that `shipmate replay` sent later are not counted."""
    sums = UsageTotals()
    for line in lines:
        if details_of(line).get("purpose") != "replay":
            sums.take(line)
    return sums


def details_of(line: Line) -> dict[str, Any]:
    details = line.get("details")
    return details if isinstance(details, dict) else {}


def epoch_ms(line: Line) -> float:
    """Return the time of a log line in milliseconds since 1970."""
    return datetime.fromisoformat(line["timestamp"]).timestamp() * 1000
