"""Token, cost and time limits of subagent tasks, and the events that report a task's progress."""

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
"""Number of output tokens assumed for an answer of unknown size."""
LEAST_ANSWER = 256
"""Min output tokens for which a model call is worth its cost."""


class LimitReached(errors.ShipmateError):
    """A task may not continue. `words` says why: “stopped at …”."""

    def __init__(self, words: str) -> None:
        super().__init__(f"a task was {words}")
        self.words = words


def limit_reached(limit: str) -> LimitReached:
    return LimitReached(f"stopped at its limit of {limit}")


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """Totals of a task so far. `cost_usd` excludes the `unpriced` calls. `charged_usd`, which counts towards
    the limits, includes these calls at the highest known price. `seconds` count from the task's start,
    not from when it was queued.
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
        """Return the totals with one more answer, which counts as `charged_usd` USD."""
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
    """Something that happened to one task. The first event of a task is `queued`; exactly one of `ended`,
    `failed` or `stopped` is the last. Between them are `started`, and a `model` event for each model call.
    """

    kind: TaskEventKind
    task_id: str
    """ULID of the task; the id of the task's transcript as well."""
    request_id: str
    at: float
    """Time of the event in epoch seconds."""
    label: str
    """Short name of the task for people, with secrets redacted."""
    calls: int = 0
    """Model calls of the task so far."""
    most_calls: int = 0
    """Max model calls of the task."""
    error: str = ""
    """Sentence for people about a failure or a limit; else ""."""


def tokens(usage: Usage) -> int:
    """Return all tokens of a usage, whatever their price."""
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
    """Return the max cost in USD of a call with `prompt` input and `answer` output tokens, none of them cached."""
    return prices.at_most(model, Usage(cache_write_tokens=prompt, output_tokens=answer))


def next_call(limits: Subagents, totals: TaskTotals, usd: float, prompt: int, most: int) -> tuple[int, str]:
    """Return the output limit of the next call, and the limit that allows no call after it ("" if another
    call fits). Raises `LimitReached` if even the next call does not fit. `usd` is the max cost of the
    next call.
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
    """Tokens and US dollars that all tasks of one turn have spent, or reserved for calls in flight."""

    def __init__(self, limits: Subagents) -> None:
        self._limits = limits
        self._tokens = 0
        self._usd = 0.0

    def spend(self, tokens: int, usd: float) -> None:
        self._tokens += tokens
        self._usd += usd

    @contextlib.contextmanager
    def reserved(self, tokens: int, usd: float) -> Iterator[None]:
        """Reserve the max cost of one call inside the `with` block. Raises `LimitReached` if too little is left."""
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
