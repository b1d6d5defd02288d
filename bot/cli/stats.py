"""`shipmate stats`: requests, tokens, cost and latency of the model, summed from the operator's log."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from bot.cli.common import HOME, AsJson, Dir, Here, moment, say, say_json, timestamp
from bot.cli.history import people
from bot.cli.log_reader import Line, LineFilter, LogReader

TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
SHOWN = 10
"""Chats that are listed, the dearest first."""


@dataclass
class UsageTotals:
    """Totals of the log lines of one chat, or of all."""

    turns: int = 0
    failed: int = 0
    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    """Answers by model."""
    tokens: Counter[str] = field(default_factory=Counter)
    cost: float = 0.0
    unpriced: int = 0
    latencies: list[float] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """Count one line; most are no matter."""
        found = line.get("details")
        details: dict[str, Any] = found if isinstance(found, dict) else {}
        if line.get("kind") == "turn_end":
            self.turns += 1
            self.failed += details.get("status") == "failed"
        elif line.get("kind") == "llm_response":
            usage, error = details.get("usage"), details.get("error")
            if isinstance(usage, dict):
                self._billed(usage, details)
            if error is not None or not isinstance(usage, dict):
                self.errors[str(error or "unknown")] += 1
            else:
                self.calls += 1
                self.models[str(details.get("model") or "unknown")] += 1
                self.latencies.append(_number(details.get("latencyMs")))

    def _billed(self, usage: dict[str, Any], details: dict[str, Any]) -> None:
        """Add the tokens and cost that the provider bills, those of broken-off answers included."""
        for name in TOKENS:
            self.tokens[name] += _number(usage.get(name))
        cost = details.get("costUsd")
        if isinstance(cost, int | float):
            self.cost += cost
        else:
            self.unpriced += 1

    @property
    def prompt(self) -> int:
        return sum(self.tokens[name] for name in TOKENS[:3])

    @property
    def facts(self) -> dict[str, Any]:
        share = self.tokens["cacheReadTokens"] / self.prompt if self.prompt else None
        return {
            "turns": self.turns,
            "failedTurns": self.failed,
            "calls": self.calls,
            "errors": dict(self.errors),
            "models": dict(self.models),
            **{name: self.tokens[name] for name in TOKENS},
            "cacheReadShare": None if share is None else round(share, 4),
            "costUsd": round(self.cost, 6),
            "unpricedCalls": self.unpriced,
            "latencyMs": {"p50": _rank(self.latencies, 0.5), "p99": _rank(self.latencies, 0.99)},
        }


def stats(
    root: Dir = Here,
    chat: Annotated[str | None, typer.Option(metavar="K", help="Only this chatKey.")] = None,
    since: Annotated[str | None, typer.Option(metavar="T", help="A time, or 2d for two days ago.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tokens, cache share, cost, errors and latency, as far back as the log goes."""
    start = None if since is None else timestamp(moment(since))
    reader = LogReader(root / HOME / "logs", LineFilter(chat, since=start))
    whole, chats = UsageTotals(), dict[str, UsageTotals]()
    for _, line in reader.lines():
        whole.take(line)
        if line.get("chatKey"):
            chats.setdefault(str(line["chatKey"]), UsageTotals()).take(line)
    reader.tell_unreadable()
    if as_json:
        say_json({"chat": chat} | whole.facts)
        return
    _show(whole)
    dearest = sorted(
        (one for one in chats.items() if one[1].calls), key=lambda one: (-one[1].cost, -one[1].prompt)
    )
    if chat is None and dearest:
        say("chats, the dearest first:")
        names = people(root, [name for name, _ in dearest[:SHOWN]])
        for name, sums in dearest[:SHOWN]:
            who = f" ({names[name]})" if name in names else ""
            say(f"  {name}{who}: {sums.turns} turns, {_share(sums)} from the cache, {_cost(sums)}")


def _show(sums: UsageTotals) -> None:
    say(f"turns    {sums.turns}" + (f", {sums.failed} of them failed" if sums.failed else ""))
    failures = ", ".join(f"{name} {count}" for name, count in sums.errors.most_common())
    models = ", ".join(f"{name} {count}" for name, count in sums.models.most_common())
    answers = f"{sums.calls} answers" + (f" ({models})" if models else "")
    say(f"model    {answers}" + (f"; failures: {failures}" if failures else ""))
    say(
        f"tokens   {sums.prompt:,} read, {_share(sums)} of them from the cache; {sums.tokens['outputTokens']:,} written"
    )
    say(f"cost     {_cost(sums)}")
    if sums.latencies:
        p50, p99 = (_rank(sums.latencies, share) for share in (0.5, 0.99))
        say(f"latency  {p50:,.0f} ms (p50), {p99:,.0f} ms (p99)")


def _share(sums: UsageTotals) -> str:
    return f"{sums.tokens['cacheReadTokens'] / sums.prompt:.0%}" if sums.prompt else "none"


def _cost(sums: UsageTotals) -> str:
    return f"${sums.cost:.2f}" + (f", and {sums.unpriced} answers of unknown price" if sums.unpriced else "")


def _number(value: object) -> int:
    return round(value) if isinstance(value, int | float) else 0


def _rank(values: list[float], share: float) -> float | None:
    """By nearest rank; None where there is nothing."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None
