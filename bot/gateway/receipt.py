"""`/receipt`: an account of one turn for a person, from the message that asked for it to what is in the chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bot import text
from bot.contracts.archive import GatewayArchive as Archive
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, InboxRecord, Outbox, StepRecord, Steps, TurnRecord
from bot.contracts.outbound import OutboxRow
from bot.features.receipts import wording
from bot.gateway.message_versions import as_changed, on_file
from bot.words import CATALOGUES, DEFAULT, say


class Records(Inbox, Steps, Outbox, Protocol):
    """The rows of a turn in the journal."""


@dataclass(frozen=True, slots=True)
class TurnRecords:
    """All that the journal has of the turn that answered a message. `joined` is the id of a message that did not begin it."""

    request_id: str
    joined: str | None
    asked: InboxRecord | None
    turn: TurnRecord | None
    steps: Sequence[StepRecord]
    rows: Sequence[OutboxRow]


async def turn_records(journal: Records, request_id: str) -> TurnRecords:
    """The records of the turn that has a message. Raises `errors.StorageError`."""
    record = await journal.inbound(request_id)
    if record is not None and record.merged_into is not None:
        # An edit that its message had taken up before its turn.
        record = await _other(journal, record, record.merged_into) or record
    joined: str | None = None
    if record is not None and record.turn_id is not None:
        first = await _other(journal, record, record.turn_id)
        if first is not None and first.inbound != record.inbound:
            joined = record.inbound.message_id or request_id
            record = first
    if record is not None:
        request_id = record.inbound.request_id
    return TurnRecords(
        request_id,
        joined,
        record,
        await journal.turn(request_id),
        await journal.steps(request_id),
        await journal.deliveries(request_id),
    )


async def _other(journal: Records, record: InboxRecord, request_id: str) -> InboxRecord | None:
    """Another inbound of the same chat."""
    other = await journal.inbound(request_id)
    same = other is not None and other.inbound.chat_key == record.inbound.chat_key
    return other if same else None


class Receipts:
    """Shows a chat its own turns, and a person theirs in its threads; never those of another chat."""

    def __init__(self, journal: Records, archive: Archive, clock: Clock) -> None:
        self._journal = journal
        self._archive = archive
        self._clock = clock

    async def run(self, inbound: Inbound) -> str:
        """The receipt of the reply that is named by an argument or replied to, else of the newest one; for a person.

        Raises `errors.StorageError`.
        """
        words = inbound.args.split()
        asked = words[0] if words else inbound.answers
        request_id = await self.found(inbound, asked)
        if request_id is None:
            return say("receipt.unknown", asked=text.preview(asked, 60)) if asked else say("receipt.none")
        return await self._account(inbound, await turn_records(self._journal, request_id))

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

    async def _account(self, reader: Inbound, found: TurnRecords) -> str:
        lines = [say("receipt.joined")] if found.joined is not None else []
        if found.asked is not None:
            lines.append(await self._question(reader, found.asked))
        lines += [
            _state(found),
            *wording.tools([_tool_run(step) for step in found.steps if step.kind != "model"]),
            *wording.model([_model_call(step) for step in found.steps if step.kind == "model"]),
            *wording.delivered([_row(row) for row in found.rows]),
            say("receipt.id", id=found.request_id),
        ]
        return "\n".join(filter(None, lines))

    async def _question(self, reader: Inbound, record: InboxRecord) -> str:
        asked = as_changed(record.inbound, await on_file(self._journal, record.inbound))
        removed = [line.meta or {} for line in await self._archive.removals(record.inbound.chat_key)]
        gone = asked is None or any(record.inbound.request_id in meta.get("of", ()) for meta in removed)
        return wording.question(
            reader, asked or record.inbound, record.received_at, self._clock.now(), removed=gone
        )


def _state(found: TurnRecords) -> str:
    """The end of the turn and the time until then, or what it does now."""
    record = found.asked
    if record is None:
        return ""
    arrived = max(
        (row.changed_at for row in found.rows if row.kind == "reply" and row.state == "sent"), default=None
    )
    if found.turn is not None and found.turn.state == "suspended":
        return say("receipt.waits")
    # Who asks at once may be faster than the end of the turn: an answer behind which nothing was begun is that end.
    if record.open and (
        arrived is None or any((step.ended_at or arrived + 1) > arrived for step in found.steps)
    ):
        return say("receipt.running")
    took = wording.duration((arrived if arrived is not None else record.changed_at) - record.received_at)
    key = f"receipt.state_{record.state}"
    return say(key, time=took) if key in CATALOGUES[DEFAULT] else say("receipt.took", time=took)


def _tool_run(step: StepRecord) -> wording.ToolRun:
    result = step.result or {}
    failed = bool(result.get("is_error")) or result.get("read") is False
    return wording.ToolRun(step.name, step.began_at, step.ended_at, failed)


def _model_call(step: StepRecord) -> wording.ModelCall:
    result = step.result or {}
    usage: Json = {name: int(count or 0) for name, count in (result.get("usage") or {}).items()}
    ended = step.ended_at is not None
    return wording.ModelCall(
        str(result.get("model") or step.name),
        usage.get("inputTokens", 0) + usage.get("cacheWriteTokens", 0),
        usage.get("cacheReadTokens", 0),
        usage.get("outputTokens", 0),
        counted=ended and bool(usage),
        ended=ended,
        cost_usd=result.get("costUsd") if ended else None,
    )


def _row(row: OutboxRow) -> wording.Row:
    return wording.Row(row.id, row.kind, row.state, row.reason, row.repeat_of, row.delayed, row.not_before)
