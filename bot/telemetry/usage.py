"""Totals of tokens and cost, and the steps of a turn. They are computed from lines of the operator's log; totals also
from rows of the table `usage`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Line = Mapping[str, Any]
TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
TOLD = [
    "purpose",
    "model",
    "name",
    "tool",
    "reason",
    "status",
    "stopReason",
    "task",
    "artifact",
    "error",
    "cause",
]
"""Names of the details of a log line that commands and pages show."""


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
    """Number of answers by waiting time. The waiting time, in milliseconds rounded to two digits, begins with the
    person's message and ends with the first words that the person sees.
    """
    spent: Counter[str] = field(default_factory=Counter)
    """Sum of all waiting times in milliseconds (key ""), and the sums of their parts `queue`, `approval`, `model`, `tools`
    and `delivery`.
    """
    ratings: Counter[str] = field(default_factory=Counter)
    """Number of times that each rating was given. If a person changes a rating, both are counted."""

    def add(self, more: UsageTotals) -> None:
        """Add the turns, calls, tokens and cost of other totals."""
        self.turns += more.turns
        self.failed += more.failed
        self.calls += more.calls
        self.unpriced += more.unpriced
        self.cost += more.cost
        self.tokens.update(more.tokens)

    def take(self, line: Mapping[str, Any]) -> None:
        """Count a log line if the line is a response of the model."""
        details = details_of(line)
        if line.get("kind") != "llm_response":
            return
        usage = details.get("usage")
        if isinstance(usage, dict):
            for name in TOKENS:
                self.tokens[name] += _number(usage.get(name))
            cost = details.get("costUsd")
            if isinstance(cost, int | float):
                self.cost += cost
            else:
                self.unpriced += 1
        if details.get("error") is not None or not isinstance(usage, dict):
            self.errors[str(details.get("error") or "unknown")] += 1
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
        """Return a quantile of the waiting times, such as 0.99, in milliseconds; None without waiting times."""
        left = max(1, math.ceil(share * self.waits.total()))
        for ms, count in sorted(self.waits.items()):
            left -= count
            if left <= 0:
                return ms
        return None


def details_of(line: Mapping[str, Any]) -> dict[str, Any]:
    details = line.get("details")
    return details if isinstance(details, dict) else {}


def two_digits(value: int) -> int:
    return value if value < 100 else round(value, 2 - len(str(value)))


def _number(value: object) -> int:
    return round(value) if isinstance(value, int | float) else 0


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One logged event, such as an answer of the model or the result of a tool. `offset` is in seconds since
    the first line, `duration` in milliseconds.
    """

    offset: float
    duration: float | None
    usage: UsageTotals
    step: int | None
    kind: str
    words: str
    level: str

    @property
    def cost(self) -> str:
        if not self.usage.prompt:
            return ""
        return "unknown" if self.usage.unpriced else f"${self.usage.cost:.4f}"


def steps_of(lines: Sequence[Line]) -> list[TraceStep]:
    """Return the steps in the order of the log lines. A request or tool call has no step of its own; only
    its result has one.
    """
    began = min((str(line.get("timestamp")) for line in lines), default="")
    found = []
    for line in lines:
        if line.get("kind") in {"llm_request", "tool_call"} or line.get("level") == "debug":
            continue
        usage = UsageTotals()
        usage.take(line)
        words = " ".join([str(line.get("message")), *detail_words(details_of(line))])
        found.append(
            TraceStep(
                offset=_seconds(began, line),
                duration=line.get("duration"),
                usage=usage,
                step=line.get("step"),
                kind=str(line.get("kind")),
                words=words,
                level=str(line.get("level")),
            )
        )
    return found


def total_of(lines: Sequence[Line]) -> UsageTotals:
    """Return the usage totals of a turn. Requests that `shipmate replay` sent later are not counted."""
    sums = UsageTotals()
    for line in lines:
        if details_of(line).get("purpose") != "replay":
            sums.take(line)
    return sums


def detail_words(details: Mapping[str, Any]) -> list[str]:
    return [f"{key}={details[key]}" for key in TOLD if details.get(key) not in {None, ""}]


def _seconds(began: str, line: Line) -> float:
    try:
        at = datetime.fromisoformat(str(line.get("timestamp")))
        return (at - datetime.fromisoformat(began)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
