"""`shipmate trace`: the whole path of one turn, from the journal, the operator's log and the transcript."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors, text
from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    StderrLog,
    complain,
    counted,
    database,
    is_clustered,
    say,
    say_json,
    timestamp,
)
from bot.cli.logs import log_of, tell_unreadable
from bot.cli.stats import cost_of

if TYPE_CHECKING:
    from bot.contracts.base import Json
    from bot.contracts.journal import InboxRecord, StepRecord
    from bot.contracts.outbound import OutboxRow
    from bot.gateway.receipt import TurnRecords
    from bot.telemetry.log_reader import Line
    from bot.telemetry.usage import UsageTotals


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that happened: when (ISO 8601, UTC), where that is written, and what it was."""

    at: str
    source: str
    words: str
    details: dict[str, Any]


def trace(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As logs and `/receipt` show it.")],
    root: Dir = Here,
    full: Annotated[
        bool, typer.Option("--full", help="All that journal, log and transcript have, in one order.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The path of one turn. Inbound, model calls, tools, delivery, cost. Works beside a running gateway."""
    from bot.telemetry.trace import detail_words, total_of

    asked = request_id.upper()
    records, turn, lines = None, asked, _lines(root, asked)
    if full or as_json or not any(line.get("kind") == "turn_end" for line in lines):
        # It may have joined another turn; the journal knows.
        records = asyncio.run(_records(root, asked))
        if records is not None and records.request_id != asked:
            turn = records.request_id
            lines = _lines(root, turn)
    sums = total_of(lines)
    if lines and not full and not as_json:
        _show_steps(lines)
        say(_total(sums))
        return
    seen = [*_journal(records), *map(_event, lines), *_transcript(root, turn)]
    if not seen:
        raise errors.NotFound(f"nothing is on disk of a turn {request_id!r}; logs and `/receipt` show ids")
    seen.sort(key=lambda one: one.at)
    for one in seen:
        if as_json:
            say_json(
                {"at": one.at, "source": one.source, "requestId": turn, "what": one.words}
                | {"details": one.details}
            )
        else:
            say("  ".join([one.at, f"{one.source:<10}", one.words, *detail_words(one.details)]))
    if not as_json:
        say(_total(sums))


async def _records(root: Path, request_id: str) -> TurnRecords | None:
    """The turn in the journal; None where there is no journal, or it cannot be read."""
    from bot.gateway.receipt import turn_records
    from bot.journal.view import in_file
    from bot.system import SystemClock

    file, clock, log = root / HOME / "journal.db", SystemClock(), StderrLog()
    if is_clustered(root):
        from bot.journal.postgres import view

        journal = view(database(root), clock=clock, log=log)
    elif await asyncio.to_thread(file.is_file):
        journal = in_file(file, clock=clock, log=log)
    else:
        return None
    try:
        return await turn_records(journal, request_id)
    except errors.StorageError as error:
        complain(f"shipmate: {error}")
        return None
    finally:
        await journal.close()


def _journal(found: TurnRecords | None) -> list[TraceEvent]:
    """All that happened in a turn by its journal, with the ids that the log and the platform know."""
    if found is None:
        return []
    events = [*map(_step, found.steps), *map(_delivery, found.rows)]
    if found.asked is not None:
        events += [_received(found.asked), *_ended(found, found.asked)]
    return [TraceEvent(timestamp(at), "journal", words, {}) for at, words in events]


def _received(record: InboxRecord) -> tuple[float, str]:
    inbound = record.inbound
    named = f" {inbound.message_id}" if inbound.message_id else ""
    return record.received_at, f"received: {inbound.kind}{named} from {inbound.user_id}"


def _ended(found: TurnRecords, record: InboxRecord) -> list[tuple[float, str]]:
    if not record.open:
        return [(record.changed_at, f"finished: {record.detail or record.state}")]
    if record.state != "in_turn":
        return []
    waits = found.turn is not None and found.turn.state == "suspended"
    return [(record.changed_at, "begun, and waits for a person" if waits else "begun, and not finished yet")]


def _step(step: StepRecord) -> tuple[float, str]:
    what = f"{step.kind} {step.name}"
    if step.ended_at is None:
        return step.began_at, f"{what}: begun, no end recorded (id {step.id})"
    result = step.result or {}
    facts = [f"{max(0.0, step.ended_at - step.began_at):.3f} s", *_usage(result)]
    facts += ["failed"] if result.get("is_error") else []
    return step.began_at, f"{what}: {', '.join(facts)} (id {result.get('providerRequestId') or step.id})"


def _usage(result: Json) -> list[str]:
    usage, cost = result.get("usage") or {}, result.get("costUsd")
    if not usage:
        return []
    cached = int(usage.get("cacheReadTokens") or 0)
    read = int(usage.get("inputTokens") or 0) + cached + int(usage.get("cacheWriteTokens") or 0)
    from_cache = f" ({cached:,} from the cache)" if cached else ""
    facts = [f"{read:,} tokens in{from_cache}", f"{int(usage.get('outputTokens') or 0):,} out"]
    return [*facts, text.dollars(float(cost))] if cost is not None else facts


def _delivery(row: OutboxRow) -> tuple[float, str]:
    what = f"{row.kind}, repeated" if row.repeat_of is not None else row.kind
    state = f"delivered as message {row.message_id}" if row.state == "sent" else f"{row.state} (id {row.id})"
    reason = f": {row.reason}" if row.reason else ""
    until = f", not before {timestamp(row.not_before)}" if row.delayed and row.not_before is not None else ""
    return row.changed_at, f"{what}: {state}{reason}{until}"


def _lines(root: Path, request_id: str) -> list[Line]:
    from bot.telemetry.log_reader import LineFilter

    reader = log_of(root, LineFilter(request=request_id))
    found = [line for _, line in reader.of_request(request_id)]
    tell_unreadable(reader)
    return found


def _event(line: Line) -> TraceEvent:
    from bot.telemetry.usage import details_of

    words = f"{line.get('kind')}: {line.get('message')}"
    return TraceEvent(str(line.get("timestamp", "")), "log", words, details_of(line))


def _show_steps(lines: list[Line]) -> None:
    """One line for each step: offset, duration, tokens that were read and written, the share that came from the cache, cost, and
    what it was.
    """
    from bot.telemetry.trace import steps_of

    say(f"{'offset':>11} {'ms':>9} {'tokens':>15} {'cache':>5} {'cost':>9}")
    for one in steps_of(lines):
        usage = one.usage
        tokens = f"{usage.prompt:,}→{usage.tokens['outputTokens']:,}" if usage.prompt else ""
        share = "" if usage.cached is None else f"{usage.cached:.0%}"
        step = "" if one.step is None else f"step {one.step} "
        say(
            f"{one.offset:>+11.3f} {'' if one.duration is None else f'{one.duration:,.0f}':>9} {tokens:>15} {share:>5} "
            f"{one.cost:>9}  {step}{one.kind}: {one.words}"
        )


def _transcript(root: Path, request_id: str) -> list[TraceEvent]:
    """The turn's lines, without what was said in them: `shipmate replay` and `history` show that."""
    from bot.history.transcript import sessions
    from bot.history.transcript.lines import data_of
    from bot.system import SystemDisk

    found = sessions.find_turn(SystemDisk(), root / HOME / "transcripts", request_id)
    if found is None:
        return []
    lines = [line for line in found.lines if line.request_id == found.request_id]
    return [
        TraceEvent(
            timestamp(line.ts / 1000),
            "transcript",
            line.type,
            {"uuid": line.uuid, "session": found.session}
            | {
                key: value
                for key, value in data_of(line.event).items()
                if key in {"stopReason", "status", "reason"}
            },
        )
        for line in lines
        if line.type != "meta"
    ]


def _total(sums: UsageTotals) -> str:
    return (
        f"{counted(sums.calls, 'answer')} of the model, {sums.prompt:,} tokens read, "
        f"{sums.tokens['outputTokens']:,} written, {cost_of(sums, 4)}"
    )
