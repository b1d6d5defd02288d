"""`shipmate trace`: the whole path of one turn, from the log of its chat and the operator's log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors, text
from bot.cli.common import (
    AsJson,
    Dir,
    Here,
    complain,
    counted,
    events,
    say,
    say_json,
    timestamp,
)
from bot.cli.logs import log_of, tell_unreadable
from bot.cli.recorded import Known, known
from bot.cli.stats import cost_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.events import EventData
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
        bool, typer.Option("--full", help="All that the chat and the log have, in one order.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The path of one turn. Inbound, model calls, tools, delivery, cost. Works beside a running gateway."""
    from bot.telemetry.trace import detail_words, total_of

    asked = request_id.upper()
    records, turn, lines = None, asked, _lines(root, asked)
    if full or as_json or not any(line.get("kind") == "turn_end" for line in lines):
        # It may have joined another turn.
        records = asyncio.run(_records(root, asked))
        if records is not None and records.turn != asked:
            turn = records.turn
            lines = _lines(root, turn)
    sums = total_of(lines)
    if lines and not full and not as_json:
        _show_steps(lines)
        say(_total(sums))
        return
    seen = [*_told(records), *map(_event, lines)]
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


async def _records(root: Path, request_id: str) -> Known | None:
    """The turn in the log of its chat; None where there is none, or it cannot be read."""
    try:
        async with events(root) as log:
            return None if log is None else await known(log, request_id)
    except errors.StorageError as error:
        complain(f"shipmate: {error}")
        return None


def _told(found: Known | None) -> list[TraceEvent]:
    """All that happened in a turn, without what was said in it, with the ids that the operator's log and the platform know."""
    from bot.core import blocks
    from bot.core import events as kinds

    told = list[TraceEvent]()
    began, tools = dict[str, float](), dict[str, str]()
    rows = dict[str, str]()
    for event in () if found is None else found.events:
        match data := event.data:
            case kinds.Received(inbound) | kinds.Edited(inbound):
                named = f" {inbound.message_id}" if inbound.message_id else ""
                words = f"received: {inbound.kind}{named} from {inbound.user_id}"
            case kinds.TurnStarted() | kinds.Joined():
                words = f"{'begun' if data.kind == 'turn_started' else 'joined'}: {', '.join(data.members)}"
            case kinds.Asked() | kinds.ToolStarted():
                began[data.call] = event.at
                name = f"model {data.model}" if isinstance(data, kinds.Asked) else f"tool {data.name}"
                words = f"{name}: begun (id {data.call})"
            case kinds.Answered():
                took = [f"{event.at - began.get(data.call, event.at):.3f} s"]
                words = f"model {data.model}: {', '.join([*took, *_usage(data.usage, data.cost_usd)])}"
                for call in blocks.tool_calls(data.content):
                    tools[call.id], began[call.id] = call.name, event.at
            case kinds.ToolEnded():
                took = [f"{event.at - began.get(data.call, event.at):.3f} s"]
                took += ["failed"] if data.result.get("is_error") else []
                words = f"tool {tools.get(data.call, '')}: {', '.join(took)} (id {data.call})"
            case _:
                words = _delivery(data, rows)
        told += [TraceEvent(timestamp(event.at), "chat", words, {})] if words else []
    return told


def _delivery(data: EventData, rows: dict[str, str]) -> str:
    """Words for an event about a message on its way out, or about the end; "" for others. `rows` are the forms of messages."""
    from bot.core import events as kinds

    match data:
        case kinds.Queued():
            rows[data.row] = f"{data.form}, repeated" if data.repeat_of is not None else data.form
            return f"{rows[data.row]}: ready (id {data.row})"
        case kinds.Deferred():
            return f"{rows.get(data.row, '')}: ready (id {data.row}), not before {timestamp(data.until)}"
        case kinds.RowEnded():
            state = f"delivered as message {data.message_id}" if data.state == "sent" else data.state
            reason = f": {data.reason}" if data.reason else ""
            return f"{rows.get(data.row, '')}: {state}{reason} (id {data.row})"
        case kinds.QuestionAsked():
            return "begun, and waits for a person"
        case kinds.TurnEnded():
            return f"finished: {data.reason or data.end}"
        case _:
            return ""


def _usage(usage: Mapping[str, int], cost: float | None) -> list[str]:
    if not usage:
        return []
    cached = usage.get("cacheRead", 0)
    read = usage.get("input", 0) + cached + usage.get("cacheWrite", 0)
    from_cache = f" ({cached:,} from the cache)" if cached else ""
    facts = [f"{read:,} tokens in{from_cache}", f"{usage.get('output', 0):,} out"]
    return [*facts, text.dollars(cost)] if cost is not None else facts


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


def _total(sums: UsageTotals) -> str:
    return (
        f"{counted(sums.calls, 'answer')} of the model, {sums.prompt:,} tokens read, "
        f"{sums.tokens['outputTokens']:,} written, {cost_of(sums, 4)}"
    )
