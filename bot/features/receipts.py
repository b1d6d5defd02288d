"""Receipts: `/receipt` says what happened in a turn. This feature also stores people's ratings of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bot import text
from bot.contracts.base import Json
from bot.contracts.messages import Inbound
from bot.core import events
from bot.core.attachments import STEP as FILE
from bot.core.chat import Chat, Phase
from bot.core.chats import Fact, find_turn
from bot.core.events import Event
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.llm import blocks
from bot.text import named
from bot.words import CATALOGUES, DEFAULT, paragraph, say, times

QUOTED = 200  # max characters that a receipt quotes from the person's message
MOST_TOOLS = 12  # max lines about tools in a receipt
T = TypeVar("T", bound=events.EventData)


@dataclass(frozen=True, slots=True)
class Account:
    """Builds the text of a turn's receipt from the events that name the turn and from the chat's present state."""

    turn: str
    chat: Chat
    found: Sequence[Event]

    def of(self, *kinds: type[T]) -> list[tuple[float, T]]:
        """Return the turn's events of these kinds, each with its time (epoch seconds)."""
        return [
            (one.at, one.data) for one in self.found if one.turn == self.turn and isinstance(one.data, kinds)
        ]

    @property
    def asked(self) -> tuple[float, Inbound] | None:
        """Return the current version of the message that the turn answers, and the time at which the message arrived."""
        received = [(one.at, one.data.inbound) for one in self.found if isinstance(one.data, events.Received)]
        asked = next((one for one in received if one[1].request_id == self.turn), None)
        if asked is None:
            return None
        at, inbound = asked
        edits = [one.data.inbound for one in self.found if isinstance(one.data, events.Edited)]
        texts = [one.text for one in edits if one.message_id == inbound.message_id]
        return at, inbound.model_copy(update={"text": texts[-1]}) if texts else inbound

    def question(self, reader: Inbound, now: float) -> str:
        if self.asked is None:
            return ""
        at, asked = self.asked
        name = asked.command.name if asked.command is not None else ""
        words = text.preview(asked.text.strip() or f"{name} {asked.args}".strip(), QUOTED)
        if any(isinstance(one.data, events.Removed) and self.turn in one.data.requests for one in self.found):
            words = say("marks.removed")
        told = {"time": times.recent(at, now), "words": words or say("receipt.no_words")}
        if asked.due is not None:
            return say("receipt.due", **told)
        if asked.person == reader.person:
            return say("receipt.asked", **told)
        person = named(asked.user_name or "").strip()
        return say("receipt.asked_by", who=f"`{person}`" if person else asked.person, **told)

    def state(self) -> str:
        """Return the line about how the turn ended and how long it took, or what it does now."""
        if self.asked is None:
            return ""
        running = self.chat.turn
        if running is not None and running.id == self.turn and running.phase is Phase.SUSPENDED:
            return say("receipt.waits")
        replies = {row.row for row in self.rows if row.form == "reply"}
        arrived = [at for at, end in self.of(events.RowEnded) if end.state == "sent" and end.row in replies]
        worked = self.of(events.Asked, events.Answered, events.ToolStarted, events.ToolEnded)
        ended = self.of(events.TurnEnded)
        closed = [
            one.at
            for one in self.found
            if isinstance(one.data, events.Closed) and one.data.request == self.turn
        ]
        over = [at for at, _ in ended] or closed
        # `/receipt` may run before the log has the turn's end. In that case, an answer without later work is taken as the end.
        if not over and (not arrived or (worked and worked[-1][0] > arrived[-1])):
            return say("receipt.running")
        took = duration((arrived or over)[-1] - self.asked[0])
        state = ended[-1][1].end if ended else ""
        if state in {"failed", "withdrawn", "stopped"}:
            return say(f"receipt.state_{'stopped' if state == 'stopped' else 'failed'}", time=took)
        return say("receipt.took", time=took)

    def tool_lines(self) -> Iterator[str]:
        runs = {
            call.id: (call.name, at)
            for at, answer in self.of(events.Answered)
            for call in blocks.tool_calls(answer.content)
        }
        runs |= {one.call: (one.name, at) for at, one in self.of(events.ToolStarted)}
        ends = {one.call: (at, one) for at, one in self.of(events.ToolEnded)}
        seconds = defaultdict[tuple[str, str], list[float]](list)
        for call, (name, began) in runs.items():
            at, end = ends.get(call, (began, None))
            outcome = "unfinished" if end is None else "failed" if end.result.get("is_error") else "done"
            seconds[name, outcome].append(max(0.0, at - began))
        if seconds:
            yield say("receipt.tools")
        for (name, outcome), took in list(seconds.items())[:MOST_TOOLS]:
            what = say("receipt.file") if name == FILE else f"`{name}`"
            what = say("receipt.repeatedly", what=what, count=len(took)) if len(took) > 1 else what
            state = say(f"receipt.tool_{outcome}", time=duration(sum(took)))
            yield "- " + say("receipt.outcome", what=what, state=state)
        if len(seconds) > MOST_TOOLS:
            yield "- " + say("progress.more", count=len(seconds) - MOST_TOOLS)

    def model_line(self) -> str:
        """Return the line about the model requests and their tokens. Add the cost if it is known and not zero."""
        answers = [one for _, one in self.of(events.Answered)]
        used = [one.usage for one in answers if one.usage]
        if not used:
            return ""
        fresh, written, cached, output = (
            sum(one.get(name, 0) for one in used) for name in ("input", "cacheWrite", "cacheRead", "output")
        )
        models = ", ".join(dict.fromkeys(one.model for one in answers))
        figures = {"count": len(used), "model": models, "read": cached + fresh + written}
        key = "receipt.model_cached" if cached else "receipt.model"
        told = say(key, cached=cached, written=output, **figures)
        costs = [one.cost_usd for one in answers if one.cost_usd is not None]
        if (cost := sum(costs)) <= 0:
            return told
        unpriced, shown = len(answers) - len(costs), text.dollars(cost)
        shown = say("stats.unpriced", cost=shown, count=unpriced) if unpriced else shown
        return paragraph(told, say("receipt.cost", cost=shown))

    @property
    def rows(self) -> list[events.Queued]:
        """Return the outbox rows of the answer. If the turn has no answer, return its other messages."""
        rows = [one for _, one in self.of(events.Queued) if one.question is None]
        replies = [one for one in rows if one.form == "reply"]
        return replies or [one for one in rows if one.form == "notice"]

    def delivery_lines(self) -> Iterator[str]:
        rows, ends = self.rows, {one.row: one for _, one in self.of(events.RowEnded)}
        late = {one.row for _, one in self.of(events.Deferred)}
        repeated = {row.repeat_of for row in rows}
        states = [_row_state(row.row, ends.get(row.row), self.chat, late, repeated) for row in rows]
        if rows and set(states) == {say("receipt.sent")} and repeated == {None}:
            yield say(f"receipt.sent_{rows[0].form}", count=len(rows))
            return
        for row, state in zip(rows, states, strict=True):
            yield say("receipt.outcome", what=say(f"receipt.{row.form}"), state=state)


def _row_state(
    name: str, end: events.RowEnded | None, chat: Chat, late: Container[str], repeated: Container[str | None]
) -> str:
    if end is None:
        row = chat.outbox.get(name)
        if row is None or row.not_before is None:
            return say("receipt.sending" if row is not None and row.state == "sending" else "receipt.ready")
        key = "receipt.asking" if row.state == "sending" else "receipt.deferred"
        return say(key, time=times.hour(row.not_before))
    if end.state == "sent":
        return say("receipt.sent_late" if name in late else "receipt.sent")
    if end.state == "unknown":
        return say("receipt.unknown_again" if name in repeated else "receipt.unknown_state")
    key = f"receipt.why_{end.reason or 'unknown'}"
    return say("receipt.failed", reason=say(key) if key in CATALOGUES[DEFAULT] else end.reason)


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return say("receipt.seconds", seconds=f"{max(0.0, seconds):.1f}" if whole < 10 else whole)
    return say("receipt.minutes", minutes=whole // 60, seconds=whole % 60)


@dataclass(eq=False)
class Receipts:
    """Runs `/receipt` and stores ratings."""

    run: Runtime

    async def receipt(self, inbound: Inbound) -> str:
        """Run `/receipt` for the named turn, else for the turn of the replied-to message, else for the latest turn."""
        words = inbound.args.split()
        asked = words[0] if words else inbound.answers
        found = await find_turn(self.run.chats, self.run.event_log, inbound, asked)
        if found is None:
            return say("receipt.unknown", asked=text.preview(asked, 60)) if asked else say("receipt.none")
        log, chat = self.run.event_log, await self.run.chats.get(found.chat)
        said = (
            one.data.inbound.message_id
            for one in await log.naming(found.chat, {found.id})
            if isinstance(one.data, events.Received) and one.data.inbound.request_id == found.id
        )
        named = await log.naming(found.chat, {found.id, *filter(None, said)})
        account = Account(found.id, chat, [one for one in named if one.chat == found.chat])
        lines = [
            say("receipt.joined") if found.about != found.id else "",
            account.question(inbound, self.run.clock.now()),
            account.state(),
            *account.tool_lines(),
            account.model_line(),
            *account.delivery_lines(),
            say("receipt.id", id=found.id),
        ]
        return "\n".join(filter(None, lines))

    async def rate(self, rating: Inbound) -> Done:
        """Store a rating 👍 or 👎 with the turn that sent the rated answer, and log it. Ignore ratings of other messages."""
        senders = await self.run.event_log.senders(rating.chat_key, rating.answers or "")
        if not senders:
            return Done()
        turn = senders[-1]
        facts: Json = {"chat_key": rating.chat_key, "request_id": turn, "message_id": rating.answers}
        facts |= {"rating": rating.rating, "person": str(rating.person)}
        self.run.log.write("feedback", "an answer was rated", **facts)
        return Done(facts=(Fact(rating.chat_key, events.Rated(rating.rating or "none"), turn),))


def _build(runtime: Runtime) -> Hooks:
    receipts = Receipts(runtime)
    return Hooks(
        commands={"receipt": Command.saying(receipts.receipt)}, signals={"rating": Command(receipts.rate)}
    )


FEATURE = Feature("receipts", _build)
