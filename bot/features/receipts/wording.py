"""Texts of receipts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot import text
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core.attachments import STEP as FILE
from bot.tools.permissions.display import named
from bot.words import CATALOGUES, DEFAULT, paragraph, say, times

QUOTED = 200
"""Max characters quoted from the message that asked."""
MOST_TOOLS = 12
"""Max tools listed as successful, and again max tools listed as failed."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One tool call; times are in epoch seconds."""

    name: str
    began_at: float
    ended_at: float | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model request: its tokens if they were `counted`, and its cost if known. `ended` is False if the
    request was interrupted.
    """

    model: str
    fresh: int = 0
    cached: int = 0
    written: int = 0
    counted: bool = True
    ended: bool = True
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One message that the turn sent."""

    id: str
    kind: OutboundKind
    state: str = "ready"
    reason: str | None = None
    repeat_of: str | None = None
    delayed: bool = False
    not_before: float | None = None

    @property
    def original(self) -> str:
        return self.repeat_of or self.id


def question(reader: Inbound, asked: Inbound, at: float, now: float, *, removed: bool) -> str:
    """Return the line about the message that asked. `at` and `now` are in epoch seconds."""
    if removed:
        words = say("marks.removed")
    else:
        words = text.preview(_words(asked), QUOTED) or say("receipt.no_words")
    when = times.recent(at, now)
    if asked.due is not None:
        return say("receipt.due", time=when, words=words)
    if asked.person == reader.person:
        return say("receipt.asked", time=when, words=words)
    name = named(asked.user_name or "").strip()
    who = f"`{name}`" if name else str(asked.person)
    return say("receipt.asked_by", who=who, time=when, words=words)


def _words(asked: Inbound) -> str:
    if asked.text.strip() or asked.command is None:
        return asked.text.strip()
    return f"{asked.command.name} {asked.args}".strip()


def duration(seconds: float) -> str:
    """Return a duration as text."""
    whole = round(seconds)
    if whole < 10:
        return say("receipt.seconds", seconds=f"{max(0.0, seconds):.1f}")
    if whole < 60:
        return say("receipt.seconds", seconds=whole)
    return say("receipt.minutes", minutes=whole // 60, seconds=whole % 60)


def tools(runs: Sequence[ToolRun]) -> Iterator[str]:
    """Return the lines about tools and their results. Equal calls share one line."""
    count, seconds = Counter[tuple[str, str]](), defaultdict[tuple[str, str], float](float)
    for run in runs:
        outcome = "unfinished" if run.ended_at is None else "failed" if run.failed else "done"
        count[run.name, outcome] += 1
        seconds[run.name, outcome] += max(0.0, (run.ended_at or run.began_at) - run.began_at)
    if not count:
        return
    yield say("receipt.tools")
    for name, outcome in list(count)[:MOST_TOOLS]:
        what = say("receipt.file") if name == FILE else f"`{name}`"
        times_run = count[name, outcome]
        what = say("receipt.repeatedly", what=what, count=times_run) if times_run > 1 else what
        took = duration(seconds[name, outcome])
        yield "- " + say("receipt.outcome", what=what, state=say(f"receipt.tool_{outcome}", time=took))
    if len(count) > MOST_TOOLS:
        yield "- " + say("progress.more", count=len(count) - MOST_TOOLS)


def model(calls: Sequence[ModelCall]) -> Iterator[str]:
    """Return the lines about model requests: tokens, and the cost if it is known and not zero."""
    used = [one for one in calls if one.counted]
    if not used:
        return
    cached = sum(one.cached for one in used)
    figures = {
        "count": len(used),
        "model": ", ".join(dict.fromkeys(one.model for one in calls)),
        "read": cached + sum(one.fresh for one in used),
        "written": sum(one.written for one in used),
    }
    told = (
        say("receipt.model_cached", cached=cached, **figures) if cached else say("receipt.model", **figures)
    )
    costs = [one.cost_usd for one in calls if one.cost_usd is not None]
    cost, unpriced = sum(costs), sum(one.ended for one in calls) - len(costs)
    if cost <= 0:
        yield told
        return
    shown = text.dollars(cost)
    shown = say("stats.unpriced", cost=shown, count=unpriced) if unpriced else shown
    yield paragraph(told, say("receipt.cost", cost=shown))


def delivered(rows: Sequence[Row]) -> Iterator[str]:
    """Return how the answer was delivered. For a turn without an answer, return what else was sent."""
    shown = [row for row in rows if row.kind == "reply"] or [row for row in rows if row.kind == "notice"]
    if not shown:
        return
    if all(row.state == "sent" and row.repeat_of is None and not row.delayed for row in shown):
        kind = shown[0].kind
        yield say("receipt.sent_reply" if kind == "reply" else "receipt.sent_notice", count=len(shown))
        return
    parts = {
        original: number for number, original in enumerate(dict.fromkeys(row.original for row in shown), 1)
    }
    repeated = {row.repeat_of for row in shown}
    for row in shown:
        what = say(f"receipt.{row.kind}")
        if row.kind == "reply" and len(parts) > 1:
            what = say("receipt.part", part=parts[row.original], parts=len(parts))
        if row.repeat_of is not None:
            what = say("receipt.repeated", what=what)
        yield say("receipt.outcome", what=what, state=_row_state(row, repeated=row.id in repeated))


def _row_state(row: Row, *, repeated: bool) -> str:
    """Return the delivery state of one message as text."""
    until = row.not_before if row.delayed else None
    if row.state == "sent":
        return say("receipt.sent" if until is None else "receipt.sent_late")
    if row.state == "unknown":
        return say("receipt.unknown_again" if repeated else "receipt.unknown_state")
    if row.state == "failed":
        key = f"receipt.why_{row.reason or 'unknown'}"
        return say("receipt.failed", reason=say(key) if key in CATALOGUES[DEFAULT] else row.reason)
    if until is not None:
        return say("receipt.asking" if row.state == "sending" else "receipt.deferred", time=times.hour(until))
    return say("receipt.sending" if row.state == "sending" else "receipt.ready")
