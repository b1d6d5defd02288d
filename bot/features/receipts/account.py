"""The account of one turn, computed from the turn's events."""

from __future__ import annotations

from dataclasses import replace

from bot import text
from bot.contracts.inbound import Inbound
from bot.core import blocks, events
from bot.core.chat import Phase, Turn
from bot.core.chats import Fact
from bot.core.events import Event
from bot.core.feature import Done, Runtime
from bot.core.turn_lookup import TurnLookup, TurnRef
from bot.features.receipts import wording
from bot.words import CATALOGUES, DEFAULT, say

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
        self.tools: dict[str, wording.ToolRun] = {}
        self.calls: dict[str, wording.ModelCall] = {}
        self.rows: dict[str, wording.Row] = {}
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
                self.calls[data.call] = wording.ModelCall(data.model, counted=False, ended=False)
                self.worked = event.at
            case events.Answered():
                self._answered(event, data)
            case events.ToolStarted():
                self.tools[data.call] = wording.ToolRun(data.name, event.at)
                self.worked = event.at
            case events.ToolEnded() if data.call in self.tools:
                failed = bool(data.result.get("is_error"))
                self.tools[data.call] = replace(self.tools[data.call], ended_at=event.at, failed=failed)
                self.worked = event.at
            case events.TurnEnded():
                self.end = event
            case events.Queued() if data.question is None and data.form in {"reply", "notice"}:
                self.rows[data.row] = wording.Row(
                    data.row, data.form, repeat_of=data.repeat_of, not_before=data.not_before
                )
            case events.Sending() | events.Returned() | events.Deferred() | events.RowEnded() if (
                data.row in self.rows
            ):
                self._row(event, self.rows[data.row])

    def _answered(self, event: Event, data: events.Answered) -> None:
        used = data.usage
        self.worked = event.at
        self.calls[data.call] = wording.ModelCall(
            data.model,
            used.get("input", 0) + used.get("cacheWrite", 0),
            used.get("cacheRead", 0),
            used.get("output", 0),
            counted=bool(used),
            cost_usd=data.cost_usd,
        )
        for call in blocks.tool_calls(data.content):
            self.tools[call.id] = wording.ToolRun(call.name, event.at)

    def _row(self, event: Event, row: wording.Row) -> None:
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
        key, took = f"receipt.state_{how}", wording.duration(end - self.asked.at)
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
            lines.append(wording.question(reader, account.words, at, now, removed=account.removed))
        chat = await self._run.chats.get(found.chat)
        lines += [
            account.state(chat.turn),
            *wording.tools(list(account.tools.values())),
            *wording.model(list(account.calls.values())),
            *wording.delivered(list(account.rows.values())),
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
