"""Receipts: `/receipt` says what happened in a turn. This feature also stores people's ratings of answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

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

QUOTED = 200  # max characters that a receipt quotes from the person's message
MOST_TOOLS = 12  # max lines about tools in a receipt
STATES = {"failed": "failed", "withdrawn": "failed", "stopped": "stopped"}
"""Key of the sentence for each final state of a turn. Other final states have no sentence of their own."""


@dataclass(slots=True)
class SentRow:
    """A message that the turn sent. `until` is the time (epoch seconds) to which it was postponed; None if it was not."""

    kind: OutboundKind
    repeat_of: str | None
    state: str = "ready"
    reason: str = ""
    until: float | None = None


@dataclass(slots=True)
class ToolRun:
    name: str
    began: float
    ended: float | None = None
    failed: bool = False


@dataclass(slots=True)
class Account:
    """Content of a turn's receipt, collected from the chat's events. Times are in epoch seconds."""

    turn: str
    asked_at: float | None = None
    words: Inbound | None = None
    removed: bool = False
    ended_at: float | None = None
    end: str = ""
    tools: dict[str, ToolRun] = field(default_factory=dict)  # by the id of the call
    answers: dict[str, events.Answered] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    rows: dict[str, SentRow] = field(default_factory=dict)
    arrived: float | None = None  # delivery time of the newest message of the answer
    worked: float = 0.0  # time of the newest model request, model answer, start or end of a tool

    def apply(self, event: Event) -> None:
        match data := event.data:
            case events.Received(inbound) if inbound.request_id == self.turn:
                self.asked_at, self.words = event.at, inbound
            case events.Edited(inbound) if self.words and inbound.message_id == self.words.message_id:
                self.words = self.words.model_copy(update={"text": inbound.text})
            case events.Removed(requests) if self.turn in requests:
                self.removed = True
            case events.Closed() if data.request == self.turn:
                self.ended_at = event.at
            case _ if event.turn == self.turn:
                self._work(event.at, data)

    def _work(self, at: float, data: events.EventData) -> None:
        match data:
            case events.Asked():
                self.worked = at
            case events.Answered():
                self.worked, self.answers[data.call] = at, data
                self.models[data.model] = None
                self.tools |= {call.id: ToolRun(call.name, at) for call in blocks.tool_calls(data.content)}
            case events.ToolStarted():
                self.worked, self.tools[data.call] = at, ToolRun(data.name, at)
            case events.ToolEnded() if (run := self.tools.get(data.call)) is not None:
                self.worked = run.ended = at
                run.failed = bool(data.result.get("is_error"))
            case events.TurnEnded():
                self.ended_at, self.end = at, STATES.get(data.end, "")
            case events.Queued() if data.question is None and data.form in {"reply", "notice"}:
                self.rows[data.row] = SentRow(data.form, data.repeat_of)
            case events.Sending(name) | events.Returned(name) if name in self.rows:
                self.rows[name].state = "sending" if isinstance(data, events.Sending) else "ready"
            case events.Deferred(name) if name in self.rows:
                self.rows[name].state, self.rows[name].until = "ready", data.until
            case events.RowEnded(name) if name in self.rows:
                row = self.rows[name]
                row.state, row.reason = data.state, data.reason
                self.arrived = at if data.state == "sent" and row.kind == "reply" else self.arrived

    def question(self, reader: Inbound, now: float) -> str:
        asked = self.words
        if asked is None or self.asked_at is None:
            return ""
        name = asked.command.name if asked.command is not None else ""
        said = asked.text.strip() or f"{name} {asked.args}".strip()
        words = (
            say("marks.removed") if self.removed else text.preview(said, QUOTED) or say("receipt.no_words")
        )
        when = times.recent(self.asked_at, now)
        if asked.due is not None:
            return say("receipt.due", time=when, words=words)
        if asked.person == reader.person:
            return say("receipt.asked", time=when, words=words)
        person = named(asked.user_name or "").strip()
        return say("receipt.asked_by", who=f"`{person}`" if person else asked.person, time=when, words=words)

    def state(self, turn: Turn | None) -> str:
        """Return the line about how the turn ended and how long it took, or what it does now. `turn` is the running turn."""
        if self.asked_at is None:
            return ""
        if turn is not None and turn.id == self.turn and turn.phase is Phase.SUSPENDED:
            return say("receipt.waits")
        end = self.arrived
        if self.ended_at is not None:
            end = end or self.ended_at
        # `/receipt` may run before the log has the turn's end. An answer without later work then counts as the end.
        elif end is None or self.worked > end:
            return say("receipt.running")
        took = duration(end - self.asked_at)
        key = f"receipt.state_{self.end}"
        return say(key, time=took) if key in CATALOGUES[DEFAULT] else say("receipt.took", time=took)

    def tool_lines(self) -> Iterator[str]:
        count, seconds = Counter[tuple[str, str]](), defaultdict[tuple[str, str], float](float)
        for one in self.tools.values():
            outcome = "unfinished" if one.ended is None else "failed" if one.failed else "done"
            count[one.name, outcome] += 1
            seconds[one.name, outcome] += max(0.0, (one.ended or one.began) - one.began)
        if count:
            yield say("receipt.tools")
        for name, outcome in list(count)[:MOST_TOOLS]:
            what, number = say("receipt.file") if name == FILE else f"`{name}`", count[name, outcome]
            what = say("receipt.repeatedly", what=what, count=number) if number > 1 else what
            state = say(f"receipt.tool_{outcome}", time=duration(seconds[name, outcome]))
            yield "- " + say("receipt.outcome", what=what, state=state)
        if len(count) > MOST_TOOLS:
            yield "- " + say("progress.more", count=len(count) - MOST_TOOLS)

    def model_line(self) -> str:
        """Return the line about the model requests and their tokens. Add the cost if it is known and not zero."""
        used = [one.usage for one in self.answers.values() if one.usage]
        if not used:
            return ""
        fresh, written, cached, output = (
            sum(one.get(name, 0) for one in used) for name in ("input", "cacheWrite", "cacheRead", "output")
        )
        figures = {"count": len(used), "model": ", ".join(self.models), "read": cached + fresh + written}
        key = "receipt.model_cached" if cached else "receipt.model"
        told = say(key, cached=cached, written=output, **figures)
        costs = [one.cost_usd for one in self.answers.values() if one.cost_usd is not None]
        if (cost := sum(costs)) <= 0:
            return told
        unpriced, shown = len(self.answers) - len(costs), text.dollars(cost)
        shown = say("stats.unpriced", cost=shown, count=unpriced) if unpriced else shown
        return paragraph(told, say("receipt.cost", cost=shown))

    def delivery_lines(self) -> Iterator[str]:
        """Yield the lines about the delivery of the answer. If the turn has no answer, the lines are about its other messages."""
        shown = {name: row for name, row in self.rows.items() if row.kind == "reply"} or self.rows
        rows = list(shown.values())
        if rows and all((row.state, row.repeat_of, row.until) == ("sent", None, None) for row in rows):
            yield say(f"receipt.sent_{rows[0].kind}", count=len(rows))
            return
        repeated = {row.repeat_of for row in rows}
        for name, row in shown.items():
            what = say(f"receipt.{row.kind}")
            yield say("receipt.outcome", what=what, state=_row_state(row, repeated=name in repeated))


def _row_state(row: SentRow, *, repeated: bool) -> str:
    if row.state == "sent":
        return say("receipt.sent" if row.until is None else "receipt.sent_late")
    if row.state == "unknown":
        return say("receipt.unknown_again" if repeated else "receipt.unknown_state")
    if row.state == "failed":
        key = f"receipt.why_{row.reason or 'unknown'}"
        return say("receipt.failed", reason=say(key) if key in CATALOGUES[DEFAULT] else row.reason)
    if row.until is not None:
        key = "receipt.asking" if row.state == "sending" else "receipt.deferred"
        return say(key, time=times.hour(row.until))
    return say("receipt.sending" if row.state == "sending" else "receipt.ready")


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return say("receipt.seconds", seconds=f"{max(0.0, seconds):.1f}" if whole < 10 else whole)
    return say("receipt.minutes", minutes=whole // 60, seconds=whole % 60)


class Receipts:
    """Runs `/receipt` and stores ratings."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._turns = TurnLookup(runtime.chats, runtime.event_log)

    async def receipt(self, inbound: Inbound) -> str:
        """Run `/receipt` for the named turn, else for the turn of the replied-to message, else for the latest turn."""
        words = inbound.args.split()
        asked = words[0] if words else inbound.answers
        found = await self._turns.found(inbound, asked)
        if found is None:
            return say("receipt.unknown", asked=text.preview(asked, 60)) if asked else say("receipt.none")
        account = await self._account(found)
        chat = await self._run.chats.get(found.chat)
        lines = [
            say("receipt.joined") if found.about is not None and found.about != found.id else "",
            account.question(inbound, self._run.clock.now()),
            account.state(chat.turn),
            *account.tool_lines(),
            account.model_line(),
            *account.delivery_lines(),
            say("receipt.id", id=found.id),
        ]
        return "\n".join(filter(None, lines))

    async def _account(self, found: TurnRef) -> Account:
        log, account = self._run.event_log, Account(found.id)
        said = (
            one.data.inbound.message_id
            for one in await log.naming(found.chat, {found.id})
            if isinstance(one.data, events.Received) and one.data.inbound.request_id == found.id
        )
        for event in await log.naming(found.chat, {found.id, *filter(None, said)}):
            if event.chat == found.chat:
                account.apply(event)
        return account

    async def rate(self, rating: Inbound) -> Done:
        """Store a rating 👍 or 👎 with the turn that sent the rated answer, and log it. Ignore ratings of other messages."""
        turn = await self._turns.of_message(rating.chat_key, rating.answers) if rating.answers else None
        if turn is None:
            return Done()
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


def _build(runtime: Runtime) -> Hooks:
    receipts = Receipts(runtime)
    return Hooks(
        commands={"receipt": Command.saying(receipts.receipt)}, signals={"rating": Command(receipts.rate)}
    )


FEATURE = Feature("receipts", _build)
