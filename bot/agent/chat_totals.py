"""Totals of a chat since its beginning: turns, changes of the view, tokens and money.

It is kept in memory and written with the end of each turn and with each change between turns, the whole of it every
time, so that the newest line that has it is enough after a restart and in the session after `/new`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bot.contracts.agent import ChatStats
from bot.contracts.base import Json
from bot.contracts.journal import StepRecord
from bot.contracts.model import Usage

_TOKENS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
_COUNTS = ("turns", "epochs", "calls", "unpriced", *_TOKENS)


_TOLD = 3
"""Of the newest, so many are kept."""


class ChatTotals:
    """Counts of one chat. `epochs` are the changes of the view; `unpriced` calls have no known price.

    `wrong` is what became of the turns since the last one that went well, in words for the model.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.answered = ""  # by a model in the place of the chat's own
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._cost = 0.0

    @property
    def facts(self) -> Json:
        """All of it, as it is written; `costUsd` is without the `unpriced` calls."""
        counts = {**self._counts, "costUsd": round(self._cost, 6)}
        return counts | ({"wrong": list(self.wrong)} if self.wrong else {})

    def stats(self, *, messages: int, tokens: int, masked_tokens: int) -> ChatStats:
        """The totals beside the present state of the chat."""
        counts = self._counts
        return ChatStats(
            counts["turns"],
            counts["epochs"],
            counts["calls"],
            counts["unpriced"],
            input_tokens=counts["inputTokens"],
            cache_read_tokens=counts["cacheReadTokens"],
            cache_write_tokens=counts["cacheWriteTokens"],
            output_tokens=counts["outputTokens"],
            cost_usd=round(self._cost, 6),
            messages=messages,
            tokens=tokens,
            masked_tokens=masked_tokens,
        )

    def load(self, found: object) -> None:
        """Go on from what was written; it counts from now on where that is no such thing."""
        if isinstance(found, dict):
            self._counts = {name: int(found.get(name, 0)) for name in _COUNTS}
            self._cost = float(found.get("costUsd", 0.0))
            self.wrong = [str(words) for words in found.get("wrong", ())]

    def turn(self, status: str, wrong: str | None) -> None:
        """A turn has ended. One that was stopped or failed is no answer."""
        self._counts["turns"] += status == "done"
        if wrong:
            self.wrong = [*self.wrong, wrong][-_TOLD:]
        elif status == "done":
            self.wrong = []

    def anew(self) -> None:
        """A new conversation begins: what went wrong before says nothing of it."""
        self.wrong = []

    def epoch(self) -> None:
        """The view has changed other than by appending."""
        self._counts["epochs"] += 1

    def asked(self, usage: Usage, cost_usd: float | None, answered: str = "") -> None:
        """The model has answered, or another one in its place."""
        self.answered = answered
        self._add(
            {
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "cacheReadTokens": usage.cache_read_tokens,
                "cacheWriteTokens": usage.cache_write_tokens,
            },
            cost_usd,
        )

    def resumed(self, recorded: Iterable[StepRecord]) -> None:
        """A turn goes on that a crash cut off: what the model had answered in it, no line tells yet."""
        for step in recorded:
            result = step.result or {}
            usage = result.get("usage")
            if isinstance(usage, dict):
                self._add(usage, result.get("costUsd"), result.get("calls", 1), result.get("unpriced"))

    def _add(
        self, usage: Mapping[str, Any], cost_usd: float | None, calls: int = 1, unpriced: int | None = None
    ) -> None:
        self._counts["calls"] += calls
        for name in _TOKENS:
            self._counts[name] += int(usage.get(name, 0))
        self._counts["unpriced"] += (cost_usd is None) if unpriced is None else unpriced
        self._cost += cost_usd or 0.0
