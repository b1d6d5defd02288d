"""Limits of subagent tasks for tokens, cost and time, and events that report a task's progress."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from bot import errors
from bot.config import Subagents
from bot.contracts.model import Usage
from bot.core import events
from bot.core.events import Event
from bot.llm.prices import PriceTable

ANSWER_TOKENS = 1_024
"""Output tokens assumed for an answer whose size is unknown."""
LEAST_ANSWER = 256
"""Min output tokens that must be left for another model call."""


class LimitReached(errors.ShipmateError):
    """A task may not continue. `words` states the reason and begins with “stopped”."""

    def __init__(self, words: str) -> None:
        super().__init__(f"a task was {words}")
        self.words = words


def limit_reached(limit: str) -> LimitReached:
    return LimitReached(f"stopped at its limit of {limit}")


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """Totals of a task so far. `cost_usd` excludes the `unpriced` calls. `charged_usd` counts towards the limits and
    includes these calls at the highest known price. `seconds` is the working time, without the time in the queue.
    """

    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    unpriced: int = 0
    charged_usd: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return tokens(self.usage)

    def with_answer(self, usage: Usage, cost_usd: float | None, charged_usd: float) -> TaskTotals:
        """Return the totals after one more answer. `charged_usd` is its cost towards the limits."""
        names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
        return replace(
            self,
            model_calls=self.model_calls + 1,
            usage=Usage(**{name: getattr(self.usage, name) + getattr(usage, name) for name in names}),
            cost_usd=self.cost_usd + (cost_usd or 0.0),
            unpriced=self.unpriced + (cost_usd is None),
            charged_usd=self.charged_usd + charged_usd,
        )


TaskEventKind = Literal["queued", "started", "model", "ended", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """A change in the progress of a task. The first event of each task is `queued`. The last is `ended`, `failed` or
    `stopped`. In between come `started`, and `model` after each answer of the model.
    """

    kind: TaskEventKind
    task_id: str
    """ULID of the task and of the artifact with its transcript."""
    request_id: str
    at: float
    """Time of the event in epoch seconds."""
    label: str
    """Short name of the task that people see, with secrets redacted."""
    calls: int = 0
    """Number of model calls so far."""
    most_calls: int = 0
    """Max model calls of the task."""
    error: str = ""
    """Sentence that tells people about a failure or a limit; "" if there is none."""


def tokens(usage: Usage) -> int:
    """Return the number of all tokens in `usage`, whatever their price."""
    return usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def so_far(log: Iterable[Event], prices: PriceTable) -> TaskTotals:
    totals = TaskTotals()
    for event in log:
        if isinstance(data := event.data, events.Answered) and data.usage:
            usage = Usage(*(data.usage.get(one, 0) for one in ("input", "output", "cacheRead", "cacheWrite")))
            charged = prices.at_most(data.model, usage, data.cost_usd)
            totals = totals.with_answer(usage, data.cost_usd, charged)
        elif isinstance(data, events.ToolEnded):
            totals = replace(totals, tool_calls=totals.tool_calls + 1)
    return totals


def at_most(prices: PriceTable, model: str, prompt: int, answer: int) -> float:
    """Return the max cost in USD of a model call with `prompt` input and `answer` output tokens, if none are cached."""
    return prices.at_most(model, Usage(cache_write_tokens=prompt, output_tokens=answer))


def next_call(limits: Subagents, totals: TaskTotals, usd: float, prompt: int, most: int) -> tuple[int, str]:
    """Return the output limit for the next model call, and the limit that would prevent a call after that ("" if none
    would). Raises `LimitReached` if not even the next call fits. That call has `prompt` input tokens and costs at most
    `usd` USD.
    """
    left = limits.max_tokens - totals.tokens - prompt

    def reached(calls: int, least: int) -> str:
        if totals.model_calls + calls > limits.max_model_calls:
            return f"{limits.max_model_calls} model calls"
        if left < least:
            return f"{limits.max_tokens:,} tokens"
        too_much = limits.max_usd is not None and totals.charged_usd + calls * usd > limits.max_usd
        return f"${limits.max_usd:.2f}" if too_much else ""

    if limit := reached(1, LEAST_ANSWER):
        raise limit_reached(limit)
    return min(most, left), reached(2, prompt + 2 * ANSWER_TOKENS)


class Allowance:
    """Tokens and US dollars that all tasks of one turn have spent or reserved for running calls."""

    def __init__(self, limits: Subagents) -> None:
        self._limits = limits
        self._tokens = 0
        self._usd = 0.0

    def spend(self, tokens: int, usd: float) -> None:
        self._tokens += tokens
        self._usd += usd

    @contextlib.contextmanager
    def reserved(self, tokens: int, usd: float) -> Iterator[None]:
        """Reserve the max usage of one call inside the `with` block. Raises `LimitReached` if too little is left."""
        limits = self._limits
        if self._tokens + tokens > limits.per_turn.max_tokens:
            raise limit_reached(f"{limits.per_turn.max_tokens:,} tokens for all tasks of a turn")
        if limits.per_turn.max_usd is not None and self._usd + usd > limits.per_turn.max_usd:
            raise limit_reached(f"${limits.per_turn.max_usd:.2f} for all tasks of a turn")
        self.spend(tokens, usd)
        try:
            yield
        finally:
            self.spend(-tokens, -usd)
