"""`/receipt`: the path of one reply, from the message that asked for it to what is in the chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from bot import text
from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, InboxRecord, Outbox, StepRecord, Steps, TurnRecord
from bot.contracts.outbound import OutboxReason, OutboxRow
from bot.gateway.attachments import STEP as FILE

NOTHING_YET = "I have not answered anything here yet."
UNKNOWN = "I know nothing of mine with this id in this chat: {asked}"
_WHY: dict[OutboxReason, str] = {
    "gone": "this chat could no longer be written to",
    "expired": "the platform did not take it for a day",
    "stopped": "its turn ended before that",
    "throttled": "the platform limits how fast I may write",
    "failed": "the platform refused it",
}


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
        words = inbound.command.args.split() if inbound.command is not None else []
        asked = words[0] if words else inbound.answers
        request_id = await self.found(inbound, asked)
        if request_id is None:
            return UNKNOWN.format(asked=text.preview(asked, 60)) if asked else NOTHING_YET
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
        head = [] if joined is None else [f"Message {joined} was answered together with another one."]
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
    lines, day = [f"Receipt of {request_id}, times in UTC"], ""
    for event in events:
        moment = datetime.fromtimestamp(event.at, UTC)
        if (date := f"{moment:%Y-%m-%d}") != day:
            lines.append(date)
            day = date
        lines.append(f"{_clock(event.at)} {event.words}")
    return lines


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[11:23]


def _received(record: InboxRecord | None) -> Iterable[Event]:
    if record is not None:
        inbound = record.inbound
        named = f" {inbound.message_id}" if inbound.message_id else ""
        yield Event(record.received_at, f"received: {inbound.kind}{named} from {inbound.user_id}")


def _finished(record: InboxRecord | None, turn: TurnRecord | None) -> Iterable[Event]:
    if record is None:
        return
    if not record.open:
        yield Event(record.changed_at, f"finished: {record.detail or record.state}")
    elif record.state == "in_turn":
        waits = turn is not None and turn.state == "suspended"
        words = "begun, and waits for a person" if waits else "begun, and not finished yet"
        yield Event(record.changed_at, words)


def _step(step: StepRecord) -> Iterable[Event]:
    what = "file of the message" if step.name == FILE else f"{step.kind} {step.name}"
    if step.ended_at is None:
        yield Event(step.began_at, f"{what}: begun, no end recorded (id {step.id})")
        return
    result = step.result or {}
    facts = [f"{max(0.0, step.ended_at - step.began_at):.3f} s"]
    if step.kind == "model":
        facts += _usage(result)
    elif result.get("is_error"):
        facts.append("failed")
    name = result.get("providerRequestId") or step.id
    yield Event(step.began_at, f"{what}: {', '.join(facts)} (id {name})")


def _usage(result: Json) -> Iterable[str]:
    usage = result.get("usage") or {}
    if usage:
        cached = int(usage.get("cacheReadTokens") or 0)
        read = int(usage.get("inputTokens") or 0) + cached + int(usage.get("cacheWriteTokens") or 0)
        yield f"{read} tokens in" + (f" ({cached} from the cache)" if cached else "")
        yield f"{int(usage.get('outputTokens') or 0)} out"
    if result.get("costUsd") is not None:
        yield f"{float(result['costUsd']):.4f} $"


def _delivered(rows: Sequence[OutboxRow]) -> Iterable[Event]:
    parts = {
        one: number
        for number, one in enumerate(dict.fromkeys(row.original for row in rows if row.kind == "reply"), 1)
    }
    repeated = {row.repeat_of for row in rows}
    for row in rows:
        if row.kind in {"notice", "preview", "progress"}:
            what = str(row.kind)
        else:
            repeat = ", repeated" if row.repeat_of is not None else ""
            what = (
                f"part {parts[row.original]} of {len(parts)}{repeat}" if len(parts) > 1 else f"reply{repeat}"
            )
        yield Event(row.changed_at, f"{what}: {_state(row, repeated=row.id in repeated)}")


def _state(row: OutboxRow, *, repeated: bool) -> str:
    """The outcome of one message, in words; its id in the chat, else in the outbox."""
    # Last words go out by themselves from the beginning; nobody has put them off.
    until = row.not_before if row.not_before is not None and row.not_before > row.created_at else None
    if row.state == "sent":
        late = ", after the platform had made it wait" if until is not None else ""
        return f"delivered as message {row.message_id}{late}"
    if row.state == "unknown":
        then = "so it was sent once more" if repeated else "and nobody can tell"
        return f"uncertain: it may or may not have arrived, {then} (id {row.id})"
    if row.state == "failed":
        return f"failed: {_WHY.get(row.reason, row.reason) if row.reason else 'no reason is known'} (id {row.id})"
    if until is not None and row.state == "sending":
        return f"uncertain: it may or may not have arrived, I try again at {_clock(until)} (id {row.id})"
    if until is not None:
        return f"deferred: the platform wants to be left alone until {_clock(until)} (id {row.id})"
    return f"{'being sent' if row.state == 'sending' else 'not sent yet'} (id {row.id})"
