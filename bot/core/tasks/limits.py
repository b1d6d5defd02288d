"""Token, cost and time limits of one subagent task, and of all tasks of a turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from bot import errors
from bot.contracts.model import ModelReply, Usage
from bot.core import events
from bot.core.events import Event
from bot.llm.prices import PriceTable

ANSWER_TOKENS = 1_024
"""Number of output tokens assumed for an answer of unknown size."""
LEAST_ANSWER = 256
"""Min output tokens for which a model call is worth its cost."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits of one task: model `calls`, `tokens` (input and output, cached or not), `usd` and `seconds`;
    `turn_tokens` and `turn_usd` limit all tasks of a turn. None means no limit. A call of unknown price
    counts with the cost that `PriceTable.at_most` returns.
    """

    calls: int = 30
    tokens: int = 500_000
    usd: float | None = 1.0
    seconds: float = 900.0
    side_by_side: int = 20
    turn_tokens: int = 2_000_000
    turn_usd: float | None = 5.0


class LimitReached(errors.ShipmateError):
    """A task reached a limit. `words` names the limit: “stopped at …”."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"a task came to its limit: {limit}")
        self.words = f"stopped at its limit of {limit}"


class TaskStopped(LimitReached):
    """A task may not continue, for a reason other than a limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.words = f"stopped: {reason}"


@dataclass(slots=True)
class Room:
    """Max tokens and cost of a call; after the answer, the actual tokens and cost."""

    tokens: int
    usd: float

    def charge(self, prices: PriceTable, model: str, reply: ModelReply) -> None:
        """Set the actual tokens and cost of a model call."""
        self.tokens, self.usd = tokens(reply.usage), prices.at_most(model, reply.usage, reply.cost_usd)


def tokens(usage: Usage) -> int:
    """Return all tokens of a usage, whatever their price."""
    return usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def added(totals: TaskTotals, reply: ModelReply, charged_usd: float) -> TaskTotals:
    """Return the totals with one more answer, which counts as `charged_usd` USD."""
    old, new = totals.usage, reply.usage
    return replace(
        totals,
        model_calls=totals.model_calls + 1,
        usage=Usage(
            old.input_tokens + new.input_tokens,
            old.output_tokens + new.output_tokens,
            old.cache_read_tokens + new.cache_read_tokens,
            old.cache_write_tokens + new.cache_write_tokens,
        ),
        cost_usd=totals.cost_usd + (reply.cost_usd or 0.0),
        unpriced=totals.unpriced + (reply.cost_usd is None),
        charged_usd=totals.charged_usd + charged_usd,
    )


def so_far(log: Iterable[Event], prices: PriceTable) -> TaskTotals:
    """Return the totals that a task's event log contains."""
    totals = TaskTotals()
    for event in log:
        if isinstance(data := event.data, events.Answered) and data.usage:
            used = (data.usage.get(kind, 0) for kind in ("input", "output", "cacheRead", "cacheWrite"))
            reply = ModelReply([], data.stop_reason, Usage(*used), data.model, cost_usd=data.cost_usd)
            totals = added(totals, reply, prices.at_most(data.model, reply.usage, data.cost_usd))
        elif isinstance(data, events.ToolEnded):
            totals = replace(totals, tool_calls=totals.tool_calls + 1)
    return totals


def expected(prices: PriceTable, model: str, prompt: int, answer: int) -> Room:
    """Return the max cost of a call with `prompt` input and `answer` output tokens, none of them cached."""
    return Room(
        prompt + answer, prices.at_most(model, Usage(cache_write_tokens=prompt, output_tokens=answer))
    )


def next_call(limits: TaskLimits, totals: TaskTotals, usd: float, prompt: int, most: int) -> tuple[int, str]:
    """Return the output limit of the next call, and the limit that allows no call after it ("" if another
    call fits). Raises `LimitReached` if even the next call does not fit. `usd` is the max cost of the
    next call.
    """
    left = limits.tokens - tokens(totals.usage) - prompt
    if totals.model_calls >= limits.calls:
        raise LimitReached(_calls(limits))
    if left < LEAST_ANSWER:
        raise LimitReached(_tokens(limits))
    if limits.usd is not None and totals.charged_usd + usd > limits.usd:
        raise LimitReached(_usd(limits.usd))
    last = ""
    if totals.model_calls + 1 >= limits.calls:
        last = _calls(limits)
    elif left < prompt + 2 * ANSWER_TOKENS:
        last = _tokens(limits)
    elif limits.usd is not None and totals.charged_usd + 2 * usd > limits.usd:
        last = _usd(limits.usd)
    return min(most, left), last


def seconds(limits: TaskLimits) -> str:
    """Return a task's time limit as text."""
    return f"{limits.seconds:g} seconds"


def _calls(limits: TaskLimits) -> str:
    return f"{limits.calls} model calls"


def _tokens(limits: TaskLimits) -> str:
    return f"{limits.tokens:,} tokens"


def _usd(usd: float) -> str:
    return f"${usd:.2f}"


class Allowance:
    """Remaining budget for the tasks of one turn. A call reserves its max cost and returns the part that it
    did not use. A call for which the budget is too small waits while running calls may return some of it.
    """

    def __init__(self, limits: TaskLimits) -> None:
        self._limits = limits
        self._tokens = 0
        self._usd = 0.0
        self._under_way = 0
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def room(self, asked: Room) -> AsyncIterator[Room]:
        """Reserve the max cost of one call inside the `with` block, which sets the actual cost. Raises
        `LimitReached` if the budget is too small and no other call is in flight.
        """
        while not self._fits(asked):
            if not self._under_way:
                raise LimitReached(self._limit(asked))
            await self._news.wait()
        taken = Room(asked.tokens, asked.usd)
        bill = Room(0, 0.0)
        self._add(taken, 1)
        self._under_way += 1
        try:
            yield bill
        finally:
            self._add(taken, -1)
            self._add(bill, 1)
            self._under_way -= 1
            self._news.set()
            self._news = asyncio.Event()

    def spend(self, totals: TaskTotals) -> None:
        """Subtract the tokens and cost that earlier processes have spent."""
        self._add(Room(tokens(totals.usage), totals.charged_usd), 1)

    def _fits(self, asked: Room) -> bool:
        limits = self._limits
        usd = limits.turn_usd is None or self._usd + asked.usd <= limits.turn_usd
        return usd and self._tokens + asked.tokens <= limits.turn_tokens

    def _limit(self, asked: Room) -> str:
        tokens_left = self._limits.turn_tokens - self._tokens
        what = (
            f"{self._limits.turn_tokens:,} tokens"
            if asked.tokens > tokens_left
            else _usd(self._limits.turn_usd or 0.0)
        )
        return f"{what} for all tasks of a turn"

    def _add(self, room: Room, sign: int) -> None:
        self._tokens += sign * room.tokens
        self._usd += sign * room.usd


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
