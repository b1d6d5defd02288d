"""`shipmate trace`: the whole path of one turn, from the journal, the operator's log and the transcript."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
from bot.cli.common import HOME, AsJson, Complaints, Dir, Here, complain, say, say_json, timestamp
from bot.cli.log_reader import Line, LineFilter, LogReader

if TYPE_CHECKING:
    from bot.gateway.receipt import Path as TurnPath
    from bot.history.usage import UsageTotals

_TELLS = (
    "purpose",
    "model",
    "name",
    "tool",
    "reason",
    "status",
    "stopReason",
    "task",
    "artifact",
    "error",
    "cause",
)
"""The details of a log line that are shown."""


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
    """The path of one turn: inbound, model calls, tools, delivery, cost. Works beside a running gateway."""
    from bot.history.usage import UsageTotals

    asked = request_id.upper()
    path, turn, sums, lines = None, asked, UsageTotals(), _lines(root, asked)
    if full or as_json or not any(line.get("kind") == "turn_end" for line in lines):
        # It may have joined another turn; the journal knows.
        path = asyncio.run(_path(root, asked))
        if path is not None and path.request_id != asked:
            turn = path.request_id
            lines = _lines(root, turn)
    for line in lines:
        if _told(line).get("purpose") != "replay":
            sums.take(line)
    if lines and not full and not as_json:
        _show_steps(lines)
        say(_total(sums))
        return
    seen = [*_journal(path), *map(_event, lines), *_transcript(root, turn)]
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
            told = [f"{key}={one.details[key]}" for key in _TELLS if one.details.get(key) not in {None, ""}]
            say("  ".join([one.at, f"{one.source:<10}", one.words, *told]))
    if not as_json:
        say(_total(sums))


async def _path(root: Path, request_id: str) -> TurnPath | None:
    """The turn's path in the journal; None where there is no journal, or it has forgotten the turn."""
    from bot.gateway.receipt import Receipts
    from bot.journal.view import JournalView
    from bot.system import SystemClock

    file = root / HOME / "journal.db"
    if not await asyncio.to_thread(file.is_file):
        return None
    journal = JournalView(file, clock=SystemClock(), log=Complaints())
    try:
        return await Receipts(journal).path(request_id)
    except errors.StorageError as error:
        complain(f"shipmate: {error}")
        return None
    finally:
        await journal.close()


def _journal(path: TurnPath | None) -> list[TraceEvent]:
    if path is None:
        return []
    return [TraceEvent(_iso(event.at), "journal", event.words, {}) for event in path.events]


def _lines(root: Path, request_id: str) -> list[Line]:
    reader = LogReader(root / HOME / "logs", LineFilter(request=request_id))
    found = [line for _, line in reader.of_request(request_id)]
    reader.tell_unreadable()
    return found


def _told(line: Line) -> dict[str, Any]:
    details = line.get("details")
    return details if isinstance(details, dict) else {}


def _event(line: Line) -> TraceEvent:
    words = f"{line.get('kind')}: {line.get('message')}"
    return TraceEvent(str(line.get("timestamp", "")), "log", words, _told(line))


def _show_steps(lines: list[Line]) -> None:
    """One line for each answer of the model, each tool and whatever else was logged: offset, duration, tokens that were read
    and written, the share that came from the cache, cost, and what it was. Requests and calls are told of by their ends.
    """
    from bot.history.usage import UsageTotals

    began = min(str(line.get("timestamp")) for line in lines)
    say(f"{'offset':>11} {'ms':>9} {'tokens':>15} {'cache':>5} {'cost':>9}")
    for line in lines:
        kind, details = line.get("kind"), _told(line)
        if kind in {"llm_request", "tool_call"} or line.get("level") == "debug":
            continue
        sums = UsageTotals()
        sums.take(line)
        duration = line.get("duration")
        told = [f"{key}={details[key]}" for key in _TELLS if details.get(key) not in {None, ""}]
        tokens = f"{sums.prompt:,}→{sums.tokens['outputTokens']:,}" if sums.prompt else ""
        share = "" if sums.cached is None else f"{sums.cached:.0%}"
        cost = "" if not sums.prompt else "unknown" if sums.unpriced else f"${sums.cost:.4f}"
        step = f"step {line['step']} " if line.get("step") is not None else ""
        say(
            f"{_seconds(began, line):>+11.3f} {'' if duration is None else f'{duration:,.0f}':>9} {tokens:>15} {share:>5} "
            f"{cost:>9}  {step}{kind}: {' '.join([str(line.get('message')), *told])}"
        )


def _seconds(began: str, line: Line) -> float:
    try:
        at = datetime.fromisoformat(str(line.get("timestamp")))
        return (at - datetime.fromisoformat(began)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _transcript(root: Path, request_id: str) -> list[TraceEvent]:
    """The turn's lines, without what was said in them: `shipmate replay` and `history` show that."""
    from bot.history import turns
    from bot.history.transcript_lines import data_of
    from bot.system import SystemDisk

    found = turns.find(SystemDisk(), root / HOME / "transcripts", request_id)
    if found is None:
        return []
    lines = [line for line in found.lines if line.request_id == found.request_id]
    return [
        TraceEvent(
            _iso(line.ts / 1000),
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


def _iso(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))


def _total(sums: UsageTotals) -> str:
    cost = f"${sums.cost:.4f}" + (f", and {sums.unpriced} answers of unknown price" if sums.unpriced else "")
    return f"{sums.calls} answers of the model, {sums.prompt:,} tokens read, {sums.tokens['outputTokens']:,} written, {cost}"
