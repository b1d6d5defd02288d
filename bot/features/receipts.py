"""Receipts say what happened in a turn. Ratings of answers are stored by this feature too."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bot import text
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core import blocks, events
from bot.core.attachments import STEP as FILE
from bot.core.chat import Phase, Turn
from bot.core.chats import Fact
from bot.core.events import Event
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.turn_lookup import TurnLookup, TurnRef
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


STATES = {"failed": "failed", "withdrawn": "failed", "stopped": "stopped"}
"""Sentence key of each final state of a turn, for states with a separate sentence."""


class Account:
    """The record of one turn: its messages, tool calls, model requests and end."""

    def __init__(self, turn: str) -> None:
        self._turn = turn
        self.asked: Event | None = None
        self.words: Inbound | None = None
        self.removed = False
        self.end: Event | None = None
        self.tools: dict[str, ToolRun] = {}
        self.calls: dict[str, ModelCall] = {}
        self.rows: dict[str, Row] = {}
        self.arrived: float | None = None
        """Delivery time of the newest part of the answer."""
        self.worked = 0.0
        """Time of the newest event in the turn's work."""

    def apply(self, event: Event) -> None:
        """Apply one event of the turn's chat."""
        match data := event.data:
            case events.Received(inbound) if inbound.request_id == self._turn:
                self.asked, self.words = event, inbound
            case events.Edited(inbound) if self.words is not None and (
                inbound.message_id == self.words.message_id
            ):
                self.words = self.words.model_copy(update={"text": inbound.text})
            case events.Removed(requests) if self._turn in requests:
                self.removed = True
            case events.Closed() if data.request == self._turn:
                self.end = event
            case _ if event.turn == self._turn:
                self._work(event)

    def _work(self, event: Event) -> None:
        match data := event.data:
            case events.Asked():
                self.calls[data.call] = ModelCall(data.model, counted=False, ended=False)
                self.worked = event.at
            case events.Answered():
                self._answered(event, data)
            case events.ToolStarted():
                self.tools[data.call] = ToolRun(data.name, event.at)
                self.worked = event.at
            case events.ToolEnded() if data.call in self.tools:
                failed = bool(data.result.get("is_error"))
                self.tools[data.call] = replace(self.tools[data.call], ended_at=event.at, failed=failed)
                self.worked = event.at
            case events.TurnEnded():
                self.end = event
            case events.Queued() if data.question is None and data.form in {"reply", "notice"}:
                self.rows[data.row] = Row(
                    data.row, data.form, repeat_of=data.repeat_of, not_before=data.not_before
                )
            case events.Sending() | events.Returned() | events.Deferred() | events.RowEnded() if (
                data.row in self.rows
            ):
                self._row(event, self.rows[data.row])

    def _answered(self, event: Event, data: events.Answered) -> None:
        used = data.usage
        self.worked = event.at
        self.calls[data.call] = ModelCall(
            data.model,
            used.get("input", 0) + used.get("cacheWrite", 0),
            used.get("cacheRead", 0),
            used.get("output", 0),
            counted=bool(used),
            cost_usd=data.cost_usd,
        )
        for call in blocks.tool_calls(data.content):
            self.tools[call.id] = ToolRun(call.name, event.at)

    def _row(self, event: Event, row: Row) -> None:
        match data := event.data:
            case events.Sending():
                row = replace(row, state="sending")
            case events.Returned():
                row = replace(row, state="ready")
            case events.Deferred():
                row = replace(row, state="ready", delayed=True, not_before=data.until)
            case events.RowEnded():
                row = replace(row, state=data.state, reason=data.reason or None)
                if data.state == "sent" and row.kind == "reply":
                    self.arrived = event.at
        self.rows[row.id] = row

    def state(self, turn: Turn | None) -> str:
        """Return how the turn ended and how long it took, or what it is doing now. `turn` is the running
        turn of the chat.
        """
        if self.asked is None:
            return ""
        runs = turn is not None and turn.id == self._turn
        if runs and turn is not None and turn.phase is Phase.SUSPENDED:
            return say("receipt.waits")
        end = self.arrived
        if self.end is not None:
            end = end or self.end.at
        # `/receipt` may come before the turn's end is logged. An answer without later work counts as the end.
        elif end is None or self.worked > end:
            return say("receipt.running")
        data = self.end.data if self.end is not None else None
        how = STATES.get(data.end, "") if isinstance(data, events.TurnEnded) else ""
        key, took = f"receipt.state_{how}", duration(end - self.asked.at)
        return say(key, time=took) if key in CATALOGUES[DEFAULT] else say("receipt.took", time=took)


class Receipts:
    """Runs `/receipt` and stores ratings."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._turns = TurnLookup(runtime.chats, runtime.event_log)

    async def receipt(self, inbound: Inbound) -> str:
        """Return the receipt of the turn that is named in the argument or replied to; otherwise of the latest turn."""
        words = inbound.args.split()
        asked = words[0] if words else inbound.answers
        found = await self._turns.found(inbound, asked)
        if found is None:
            return say("receipt.unknown", asked=text.preview(asked, 60)) if asked else say("receipt.none")
        return await self._account(inbound, found)

    async def _account(self, reader: Inbound, found: TurnRef) -> str:
        log, account = self._run.event_log, Account(found.id)
        named = await log.naming(found.chat, {found.id})
        said = {
            name
            for one in named
            if isinstance(one.data, events.Received) and one.data.inbound.request_id == found.id
            for name in (one.data.inbound.message_id,)
            if name
        }
        for event in await log.naming(found.chat, {found.id, *said}):
            if event.chat == found.chat:
                account.apply(event)
        joined = found.about is not None and found.about != found.id
        lines = [say("receipt.joined")] if joined else []
        if account.asked is not None and account.words is not None:
            at, now = account.asked.at, self._run.clock.now()
            lines.append(question(reader, account.words, at, now, removed=account.removed))
        chat = await self._run.chats.get(found.chat)
        lines += [
            account.state(chat.turn),
            *tools(list(account.tools.values())),
            *model(list(account.calls.values())),
            *delivered(list(account.rows.values())),
            say("receipt.id", id=found.id),
        ]
        return "\n".join(filter(None, lines))

    async def rate(self, rating: Inbound) -> Done:
        """Store the rating 👍 or 👎 with the turn of the answer, and log it. Ratings of other messages are
        ignored. The platform displays ratings itself.
        """
        turn = await self._turns.of_message(rating.chat_key, rating.answers) if rating.answers else None
        if turn is not None:
            self._run.log.write(
                "feedback",
                "an answer was rated",
                chat_key=rating.chat_key,
                request_id=turn,
                rating=rating.rating,
                person=str(rating.person),
                message_id=rating.answers,
            )
            return Done(facts=(Fact(rating.chat_key, events.Rated(rating.rating or "none"), turn),))
        return Done()


def _build(runtime: Runtime) -> Hooks:
    receipts = Receipts(runtime)
    return Hooks(
        commands={"receipt": Command.saying(receipts.receipt)},
        signals={"rating": Command(receipts.rate)},
    )


FEATURE = Feature("receipts", _build)
