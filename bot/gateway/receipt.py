"""`/receipt`: an account of one turn for a person, from the message that asked for it to what is in the chat."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot import text
from bot.contracts.archive import Archive
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, InboxRecord, Outbox, StepRecord, Steps, TurnRecord
from bot.contracts.outbound import OutboxRow
from bot.core.attachments import STEP as FILE
from bot.gateway.message_versions import as_changed, on_file
from bot.tools.permissions.display import named
from bot.words import CATALOGUES, DEFAULT, paragraph, say, times

QUOTED = 200
"""Characters of the message that asked."""
MOST_TOOLS = 12
"""Tools that are named, those that failed once more where they did."""


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
            *_tools([step for step in found.steps if step.kind != "model"]),
            *_model([step for step in found.steps if step.kind == "model"]),
            *_delivered(found.rows),
            say("receipt.id", id=found.request_id),
        ]
        return "\n".join(filter(None, lines))

    async def _question(self, reader: Inbound, record: InboxRecord) -> str:
        asked = as_changed(record.inbound, await on_file(self._journal, record.inbound))
        removed = [line.meta or {} for line in await self._archive.removals(record.inbound.chat_key)]
        if asked is None or any(record.inbound.request_id in meta.get("of", ()) for meta in removed):
            words = say("marks.removed")
        else:
            words = text.preview(_words(asked), QUOTED) or say("receipt.no_words")
        when = times.recent(record.received_at, self._clock.now())
        if record.inbound.due is not None:
            return say("receipt.due", time=when, words=words)
        if record.inbound.person == reader.person:
            return say("receipt.asked", time=when, words=words)
        name = named(record.inbound.user_name or "").strip()
        who = f"`{name}`" if name else str(record.inbound.person)
        return say("receipt.asked_by", who=who, time=when, words=words)


def _words(asked: Inbound) -> str:
    if asked.text.strip() or asked.command is None:
        return asked.text.strip()
    return f"{asked.command.name} {asked.args}".strip()


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
    took = duration((arrived if arrived is not None else record.changed_at) - record.received_at)
    key = f"receipt.state_{record.state}"
    return say(key, time=took) if key in CATALOGUES[DEFAULT] else say("receipt.took", time=took)


def duration(seconds: float) -> str:
    """A time that something took, in words."""
    whole = round(seconds)
    if whole < 10:
        return say("receipt.seconds", seconds=f"{max(0.0, seconds):.1f}")
    if whole < 60:
        return say("receipt.seconds", seconds=whole)
    return say("receipt.minutes", minutes=whole // 60, seconds=whole % 60)


def _tools(steps: Sequence[StepRecord]) -> Iterator[str]:
    """The tools that ran, each with its result; those of one name and one result are one line."""
    count, seconds = Counter[tuple[str, str]](), defaultdict[tuple[str, str], float](float)
    for step in steps:
        outcome = "unfinished" if step.ended_at is None else "failed" if _is_error(step) else "done"
        count[step.name, outcome] += 1
        seconds[step.name, outcome] += max(0.0, (step.ended_at or step.began_at) - step.began_at)
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


def _is_error(step: StepRecord) -> bool:
    result = step.result or {}
    return bool(result.get("is_error")) or result.get("read") is False


def _model(steps: Sequence[StepRecord]) -> Iterator[str]:
    """The requests to the model: tokens, and the cost where it is known and not nothing."""
    answers = [step.result or {} for step in steps if step.ended_at is not None]
    used: list[Json] = [usage for one in answers if (usage := one.get("usage"))]
    if not used:
        return
    cached = sum(int(one.get("cacheReadTokens") or 0) for one in used)
    fresh = sum(int(one.get(name) or 0) for one in used for name in ("inputTokens", "cacheWriteTokens"))
    names = [str((step.result or {}).get("model") or step.name) for step in steps]
    figures = {
        "count": len(used),
        "model": ", ".join(dict.fromkeys(names)),
        "read": cached + fresh,
        "written": sum(int(one.get("outputTokens") or 0) for one in used),
    }
    told = (
        say("receipt.model_cached", cached=cached, **figures) if cached else say("receipt.model", **figures)
    )
    costs = [float(one["costUsd"]) for one in answers if one.get("costUsd") is not None]
    cost, unpriced = sum(costs), len(answers) - len(costs)
    if cost <= 0:
        yield told
        return
    shown = text.dollars(cost)
    shown = say("stats.unpriced", cost=shown, count=unpriced) if unpriced else shown
    yield paragraph(told, say("receipt.cost", cost=shown))


def _delivered(rows: Sequence[OutboxRow]) -> Iterator[str]:
    """The answer in the chat; of a turn without one, what else was said."""
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


def _row_state(row: OutboxRow, *, repeated: bool) -> str:
    """The outcome of one message, in words."""
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
