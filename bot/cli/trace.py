"""`shipmate trace`: shows the course of one turn, from the log of its chat and the operator's log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bot import errors, text
from bot.cli.common import AsJson, Dir, Here, RequestId, complain, counted, say, say_json, timestamp
from bot.cli.logs import reader_of, report_unreadable
from bot.cli.recorded import LoggedTurn, find_logged
from bot.cli.stats import cost_of
from bot.core import blocks, events
from bot.telemetry.log_reader import Line, LineFilter
from bot.telemetry.usage import detail_words, details_of, steps_of, total_of

Seen = tuple[str, str, str, dict[str, Any]]
"""One entry of the trace: time (ISO 8601, UTC), source (`chat` or `log`), description, details."""


def trace(
    request_id: RequestId,
    root: Dir = Here,
    full: Annotated[
        bool, typer.Option("--full", help="All events of the chat and lines of the log, by time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    turn = request_id.upper()
    lines, logged = _lines(root, turn), None
    if full or as_json or not any(line.get("kind") == "turn_end" for line in lines):
        try:
            logged = asyncio.run(find_logged(root, turn))
        except errors.StorageError as error:
            complain(f"shipmate: {error}")
        if logged is not None and logged.turn != turn:  # the message joined a turn with another id
            turn = logged.turn
            lines = _lines(root, turn)
    if lines and not full and not as_json:
        _show_steps(lines)
    else:
        seen: list[Seen] = [] if logged is None else [*_events(logged)]
        seen += [
            (
                str(line.get("timestamp", "")),
                "log",
                f"{line.get('kind')}: {line.get('message')}",
                details_of(line),
            )
            for line in lines
        ]
        if not seen:
            raise errors.NotFound(
                f"nothing is on disk of a turn {request_id!r}; logs and `/receipt` show ids"
            )
        for at, source, words, details in sorted(seen, key=lambda one: one[0]):
            if as_json:
                say_json({"at": at, "source": source, "requestId": turn, "what": words, "details": details})
            else:
                say("  ".join([at, f"{source:<10}", words, *detail_words(details)]))
    if not as_json:
        sums = total_of(lines)
        say(
            f"{counted(sums.calls, 'answer')} of the model, {sums.prompt:,} tokens read, "
            f"{sums.tokens['outputTokens']:,} written, {cost_of(sums, 4)}"
        )


def _lines(root: Path, request_id: str) -> list[Line]:
    reader = reader_of(root, LineFilter(request=request_id))
    found = [line for _, line in reader.of_request(request_id)]
    report_unreadable(reader)
    return found


def _events(logged: LoggedTurn) -> Iterator[Seen]:
    """Yield the events of a turn without message texts. The entries have the ids that the operator's log and
    the platform use.
    """
    began, tools, rows = dict[str, float](), dict[str, str](), dict[str, str]()
    for event in logged.events:
        match data := event.data:
            case events.Received(inbound) | events.Edited(inbound):
                named = f" {inbound.message_id}" if inbound.message_id else ""
                words = f"received: {inbound.kind}{named} from {inbound.user_id}"
            case events.TurnStarted() | events.Joined():
                words = f"{'started' if data.kind == 'turn_started' else 'joined'}: {', '.join(data.members)}"
            case events.Asked() | events.ToolStarted():
                began[data.call] = event.at
                name = f"model {data.model}" if isinstance(data, events.Asked) else f"tool {data.name}"
                words = f"{name}: started (id {data.call})"
            case events.Answered():
                took = f"{event.at - began.get(data.call, event.at):.3f} s"
                words = f"model {data.model}: {', '.join([took, *_usage(data.usage, data.cost_usd)])}"
                for call in blocks.tool_calls(data.content):
                    tools[call.id], began[call.id] = call.name, event.at
            case events.ToolEnded():
                took = f"{event.at - began.get(data.call, event.at):.3f} s"
                failed = ", failed" if data.result.get("is_error") else ""
                words = f"tool {tools.get(data.call, '')}: {took}{failed} (id {data.call})"
            case _:
                words = _delivery(data, rows)
        if words:
            yield timestamp(event.at), "chat", words, {}


def _delivery(data: events.EventData, rows: dict[str, str]) -> str:
    """Return a description of an event of the outbox or of the turn's end; "" for other events. `rows` maps
    ids of outbox rows to kinds of messages.
    """
    match data:
        case events.Queued():
            rows[data.row] = f"{data.form}, repeated" if data.repeat_of is not None else data.form
            return f"{rows[data.row]}: ready (id {data.row})"
        case events.Deferred():
            return f"{rows.get(data.row, '')}: ready (id {data.row}), not before {timestamp(data.until)}"
        case events.RowEnded():
            state = f"delivered as message {data.message_id}" if data.state == "sent" else data.state
            reason = f": {data.reason}" if data.reason else ""
            return f"{rows.get(data.row, '')}: {state}{reason} (id {data.row})"
        case events.QuestionAsked():
            return "suspended: waits for a person"
        case events.TurnEnded():
            return f"finished: {data.reason or data.end}"
    return ""


def _usage(usage: Mapping[str, int], cost: float | None) -> list[str]:
    if not usage:
        return []
    cached = usage.get("cacheRead", 0)
    read = usage.get("input", 0) + cached + usage.get("cacheWrite", 0)
    from_cache = f" ({cached:,} from the cache)" if cached else ""
    facts = [f"{read:,} tokens in{from_cache}", f"{usage.get('output', 0):,} out"]
    return [*facts, text.dollars(cost)] if cost is not None else facts


def _show_steps(lines: list[Line]) -> None:
    """Print one line per step: offset, duration, tokens read and written, cache share, cost, description."""
    say(f"{'offset':>11} {'ms':>9} {'tokens':>15} {'cache':>5} {'cost':>9}")
    for one in steps_of(lines):
        usage = one.usage
        duration = "" if one.duration is None else f"{one.duration:,.0f}"
        tokens = f"{usage.prompt:,}→{usage.tokens['outputTokens']:,}" if usage.prompt else ""
        share = "" if usage.cached is None else f"{usage.cached:.0%}"
        step = "" if one.step is None else f"step {one.step} "
        say(
            f"{one.offset:>+11.3f} {duration:>9} {tokens:>15} {share:>5} {one.cost:>9}  {step}{one.kind}: {one.words}"
        )
