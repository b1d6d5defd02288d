"""`/receipt`: the path of one reply, from the message that asked for it to what is in the chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot import text
from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, InboxRecord, Outbox, StepRecord, Steps, TurnRecord
from bot.contracts.outbound import OutboxRow
from bot.gateway.attachments import STEP as FILE
from bot.words import CATALOGUES, DEFAULT, say, times, zone


class Records(Inbox, Steps, Outbox, Protocol):
    """The rows of a turn in the journal."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a turn, and when (seconds since the epoch)."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Path:
    """All that happened, in order of time, in the turn that answered a message; `joined` names a message that did not
    begin it.
    """

    request_id: str
    joined: str | None
    events: list[Event]


class Receipts:
    """Shows a chat its own turns, and a person theirs in its threads; never those of another chat."""

    def __init__(self, journal: Records) -> None:
        self._journal = journal

    async def run(self, inbound: Inbound) -> str:
        """The receipt of the reply that is named by an argument or replied to, else of the newest one; for a person.

        Raises `errors.StorageError`.
        """
        words = inbound.args.split()
        asked = words[0] if words else inbound.answers
        request_id = await self.found(inbound, asked)
        if request_id is None:
            return say("receipt.unknown", asked=text.preview(asked, 60)) if asked else say("receipt.none")
        return await self._receipt(request_id)

    async def found(self, inbound: Inbound, asked: str | None) -> str | None:
        """The requestId that is meant: given itself, or by the id of a reply or of a message to us. Where a place has
        none, what its person was answered in its threads, or in it as the thread of a message.
        """
        chat_key = inbound.chat_key
        if asked is not None and await self._here(inbound, asked):
            return asked
        shown = await self._journal.delivered_as(chat_key, asked)
        if shown is None:
            shown = await self._journal.delivered_near(chat_key, inbound.user_id, inbound.target, asked)
        if shown is not None or asked is None:
            return shown
        about = await self._journal.about(chat_key, asked)
        return about[0].inbound.request_id if about else None

    async def _here(self, inbound: Inbound, request_id: str) -> bool:
        record = await self._journal.inbound(request_id)
        if record is not None:
            asked = record.inbound
            own = asked.user_id == inbound.user_id
            return asked.chat_key == inbound.chat_key or (own and inbound.chat_key.contains(asked.chat_key))
        rows = await self._journal.deliveries(request_id)
        return bool(rows) and all(row.chat_key == inbound.chat_key for row in rows)

    async def _receipt(self, request_id: str) -> str:
        path = await self.path(request_id)
        joined = path.joined
        head = [] if joined is None else [say("receipt.joined", id=joined)]
        return "\n".join([*head, *_lines(path.request_id, path.events)])

    async def path(self, request_id: str) -> Path:
        """The path of a turn, of whichever chat; for operators. Raises `errors.StorageError`."""
        record = await self._journal.inbound(request_id)
        if record is not None and record.merged_into is not None:
            # An edit that its message had taken up before its turn.
            record = await self._other(record, record.merged_into) or record
        joined: str | None = None
        if record is not None and record.turn_id is not None:
            first = await self._other(record, record.turn_id)
            if first is not None and first.inbound != record.inbound:
                joined = record.inbound.message_id or request_id
                record = first
        if record is not None:
            request_id = record.inbound.request_id
        turn = await self._journal.turn(request_id)
        events = [
            *_received(record),
            *(event for step in await self._journal.steps(request_id) for event in _step(step)),
            *_delivered(await self._journal.deliveries(request_id)),
            *_finished(record, turn),
        ]
        return Path(request_id, joined, sorted(events, key=lambda event: event.at))

    async def _other(self, record: InboxRecord, request_id: str) -> InboxRecord | None:
        """Another inbound of the same chat."""
        other = await self._journal.inbound(request_id)
        same = other is not None and other.inbound.chat_key == record.inbound.chat_key
        return other if same else None


def _lines(request_id: str, events: list[Event]) -> list[str]:
    lines, day = [say("receipt.title", id=request_id, zone=zone())], ""
    for event in events:
        moment = times.local(event.at)
        if (date := f"{moment:%Y-%m-%d}") != day:
            lines.append(date)
            day = date
        lines.append(f"{_clock(event.at)} {event.words}")
    return lines


def _clock(at: float) -> str:
    return times.local(at).isoformat(timespec="milliseconds")[11:23]


def _received(record: InboxRecord | None) -> Iterable[Event]:
    if record is not None:
        inbound = record.inbound
        named = f" {inbound.message_id}" if inbound.message_id else ""
        words = say("receipt.received", kind=inbound.kind, id=named, user=inbound.user_id)
        yield Event(record.received_at, words)


def _finished(record: InboxRecord | None, turn: TurnRecord | None) -> Iterable[Event]:
    if record is None:
        return
    if not record.open:
        yield Event(record.changed_at, say("receipt.finished", state=record.detail or record.state))
    elif record.state == "in_turn":
        waits = turn is not None and turn.state == "suspended"
        yield Event(record.changed_at, say("receipt.waits") if waits else say("receipt.running"))


def _step(step: StepRecord) -> Iterable[Event]:
    what = say("receipt.file") if step.name == FILE else f"{step.kind} {step.name}"
    if step.ended_at is None:
        yield Event(step.began_at, say("receipt.no_end", what=what, id=step.id))
        return
    result = step.result or {}
    facts = [f"{max(0.0, step.ended_at - step.began_at):.3f} s"]
    if step.kind == "model":
        facts += _usage(result)
    elif result.get("is_error"):
        facts.append(say("receipt.failed_step"))
    name = result.get("providerRequestId") or step.id
    yield Event(step.began_at, say("receipt.step", what=what, facts=", ".join(facts), id=name))


def _usage(result: Json) -> Iterable[str]:
    usage = result.get("usage") or {}
    if usage:
        cached = int(usage.get("cacheReadTokens") or 0)
        read = int(usage.get("inputTokens") or 0) + cached + int(usage.get("cacheWriteTokens") or 0)
        yield (
            say("receipt.read_cached", count=read, cached=cached)
            if cached
            else say("receipt.read", count=read)
        )
        yield say("receipt.written", count=int(usage.get("outputTokens") or 0))
    if result.get("costUsd") is not None:
        yield f"{float(result['costUsd']):.4f} $"


def _delivered(rows: Sequence[OutboxRow]) -> Iterable[Event]:
    parts = {
        one: number
        for number, one in enumerate(dict.fromkeys(row.original for row in rows if row.kind == "reply"), 1)
    }
    repeated = {row.repeat_of for row in rows}
    for row in rows:
        what = say(f"receipt.{row.kind}")
        if row.kind == "reply" and len(parts) > 1:
            what = say("receipt.part", part=parts[row.original], parts=len(parts))
        if row.kind == "reply" and row.repeat_of is not None:
            what = say("receipt.repeated", what=what)
        state = _state(row, repeated=row.id in repeated)
        yield Event(row.changed_at, say("receipt.outcome", what=what, state=state))


def _state(row: OutboxRow, *, repeated: bool) -> str:
    """The outcome of one message, in words; its id in the chat, else in the outbox."""
    until = row.not_before if row.delayed else None
    if row.state == "sent":
        return say("receipt.sent" if until is None else "receipt.sent_late", id=row.message_id)
    if row.state == "unknown":
        return say("receipt.unknown_again" if repeated else "receipt.unknown_state", id=row.id)
    if row.state == "failed":
        key = f"receipt.why_{row.reason or 'unknown'}"
        return say("receipt.failed", reason=say(key) if key in CATALOGUES[DEFAULT] else row.reason, id=row.id)
    if until is not None and row.state == "sending":
        return say("receipt.asking", time=_clock(until), id=row.id)
    if until is not None:
        return say("receipt.deferred", time=_clock(until), id=row.id)
    return say("receipt.sending" if row.state == "sending" else "receipt.ready", id=row.id)
