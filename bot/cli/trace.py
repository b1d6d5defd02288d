"""`shipmate trace`: the whole path of one turn, from the journal, the operator's log and the transcript."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import errors
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
    from bot.gateway.receipt import Path as TurnPath
    from bot.history.usage.sums import UsageTotals
    from bot.telemetry.log_reader import Line


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
    from bot.history.usage.trace import detail_words, total_of

    asked = request_id.upper()
    path, turn, lines = None, asked, _lines(root, asked)
    if full or as_json or not any(line.get("kind") == "turn_end" for line in lines):
        # It may have joined another turn; the journal knows.
        path = asyncio.run(_path(root, asked))
        if path is not None and path.request_id != asked:
            turn = path.request_id
            lines = _lines(root, turn)
    sums = total_of(lines)
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
            say("  ".join([one.at, f"{one.source:<10}", one.words, *detail_words(one.details)]))
    if not as_json:
        say(_total(sums))


async def _path(root: Path, request_id: str) -> TurnPath | None:
    """The turn's path in the journal; None where there is no journal, or it has forgotten the turn."""
    from bot.gateway.receipt import Receipts
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
        return await Receipts(journal).path(request_id)
    except errors.StorageError as error:
        complain(f"shipmate: {error}")
        return None
    finally:
        await journal.close()


def _journal(path: TurnPath | None) -> list[TraceEvent]:
    if path is None:
        return []
    return [TraceEvent(timestamp(event.at), "journal", event.words, {}) for event in path.events]


def _lines(root: Path, request_id: str) -> list[Line]:
    from bot.telemetry.log_reader import LineFilter

    reader = log_of(root, LineFilter(request=request_id))
    found = [line for _, line in reader.of_request(request_id)]
    tell_unreadable(reader)
    return found


def _event(line: Line) -> TraceEvent:
    from bot.history.usage.causes import details_of

    words = f"{line.get('kind')}: {line.get('message')}"
    return TraceEvent(str(line.get("timestamp", "")), "log", words, details_of(line))


def _show_steps(lines: list[Line]) -> None:
    """One line for each step: offset, duration, tokens that were read and written, the share that came from the cache, cost, and
    what it was.
    """
    from bot.history.usage.trace import steps_of

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
