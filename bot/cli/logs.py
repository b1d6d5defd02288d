"""The commands `logs`, which shows lines of the operator's log, and `trace`, which shows the steps of one turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot import errors
from bot.cli.common import (
    HOME,
    AsJson,
    Chat,
    Dir,
    Here,
    RequestId,
    Since,
    complain,
    cost_of,
    counted,
    moment,
    say,
    say_json,
    say_raw,
    timestamp,
)
from bot.cli.project import hint_of_folder
from bot.contracts.base import Level
from bot.contracts.log_kinds import TEXTS
from bot.system import SystemClock, SystemDisk
from bot.telemetry.log_reader import LEVELS, SHOWN, Line, LineFilter, LogReader, shown_details, steps_of
from bot.telemetry.usage import details_of, total_of

if TYPE_CHECKING:
    from bot.core.events import Event

FOLLOW_FROM = 20
"""Number of existing lines that `--follow` shows first. Then it waits for new lines."""
POLL_SECONDS = 0.2


def logs(
    root: Dir = Here,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    chat: Chat = None,
    request: Annotated[str | None, typer.Option(metavar="ID", help="Only this requestId.")] = None,
    level: Annotated[Level | None, typer.Option(metavar="L", help=f"Min level: {', '.join(LEVELS)}.")] = None,
    since: Since = None,
    full: Annotated[bool, typer.Option("--full", help="Whole lines, with message texts.")] = False,
    as_json: AsJson = False,
) -> None:
    hint_of_folder(root)
    start = timestamp(moment(since).timestamp()) if since else ""
    request = request and request.upper()
    wanted = LineFilter(chat, request, LEVELS.get(level or "", 0), start)
    reader = LogReader(root / HOME / "logs", SystemDisk(), wanted)
    found: Iterable[tuple[str, Line]]
    if follow and not start:
        found = reader.newest(FOLLOW_FROM)
    else:
        found = reader.of_request(request) if request is not None and not follow else reader.lines()
    if not _show(found, full=full, as_json=as_json) and not follow and (chat or request):
        complain(f"The log has no line of {chat or request}.")
    _report_unreadable(reader)
    with contextlib.suppress(KeyboardInterrupt):
        while follow:
            _show(reader.lines(), full=full, as_json=as_json)
            sys.stdout.flush()
            asyncio.run(SystemClock().sleep(POLL_SECONDS))


def _show(found: Iterable[tuple[str, Line]], *, full: bool, as_json: bool) -> int:
    """Print log lines, and return their number."""
    count = 0
    for count, (raw, line) in enumerate(found, 1):  # noqa: B007 - the count is returned
        if as_json:
            say_raw(raw)
        else:
            say(_rendered(line, full=full))
    return count


def _report_unreadable(reader: LogReader) -> None:
    if reader.unreadable:
        complain(f"{counted(reader.unreadable, 'line')} could not be read, and are left out.")


def _rendered(line: Line, *, full: bool) -> str:
    """Return a log line as text for a person. Texts of chat messages are included only if `full` is set."""
    where = [str(line[key]) for key in ("chatKey", "requestId") if line.get(key)]
    where += [f"step {line['step']}"] if "step" in line else []
    where += [f"{line['duration']} ms"] if "duration" in line else []
    details = {
        name: value
        for name, value in details_of(line).items()
        if full or name not in TEXTS or not isinstance(value, str | list | dict)
    }
    parts = [
        str(line.get("timestamp", "")),
        f"{str(line.get('level', '')).upper():<6}",
        f"{line.get('kind', '')}:",
        " ".join(str(line.get("message", "")).split()),
        f"[{' '.join(where)}]" if where else "",
        json.dumps(details, ensure_ascii=False) if details else "",
    ]
    return " ".join(filter(None, parts))


def trace(
    request_id: RequestId,
    root: Dir = Here,
    full: Annotated[
        bool, typer.Option("--full", help="Print all events of the chat and all log lines, by time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    turn = request_id.upper()
    lines = _lines(root, turn)
    logged: Sequence[Event] = ()
    if full or as_json or not any(line.get("kind") == "turn_end" for line in lines):
        from bot.cli.replay import find_logged  # imports most of the product

        try:
            name, logged = asyncio.run(find_logged(root, turn))
        except errors.StorageError as error:
            name = turn
            complain(f"shipmate: {error}")
        if name != turn:  # `turn` is a message that joined a turn
            turn, lines = name, _lines(root, name)
    if lines and not full and not as_json:
        _show_steps(lines)
    else:
        seen = [(timestamp(one.at), "chat", one.kind, one.facts()) for one in logged]
        for line in lines:
            what = f"{line.get('kind')}: {line.get('message')}"
            seen.append((str(line.get("timestamp", "")), "log", what, details_of(line)))
        if not seen:
            raise errors.NotFound(f"nothing is on disk of a turn {turn!r}; logs and `/receipt` show ids")
        for at, source, what, details in sorted(seen, key=lambda one: one[0]):
            if as_json:
                say_json({"at": at, "source": source, "requestId": turn, "what": what, "details": details})
            else:
                say(
                    "  ".join(
                        [at, source, what, *shown_details(details, SHOWN if source == "log" else details)]
                    )
                )
    if not as_json:
        sums = total_of(lines)
        say(
            f"{counted(sums.calls, 'answer')} of the model, {sums.prompt:,} tokens read, "
            f"{sums.tokens['outputTokens']:,} written, {cost_of(sums, 4)}"
        )


def _lines(root: Path, request_id: str) -> list[Line]:
    reader = LogReader(root / HOME / "logs", SystemDisk(), LineFilter(request=request_id))
    found = [line for _, line in reader.of_request(request_id)]
    _report_unreadable(reader)
    return found


def _show_steps(lines: list[Line]) -> None:
    """Print one line for each step: time since the start, duration, tokens, cached share, cost and description."""
    say(f"{'offset':>11} {'ms':>9} {'tokens':>15} {'cache':>5} {'cost':>9}")
    for one in steps_of(lines):
        usage = one.usage
        took = "" if one.duration is None else f"{one.duration:,.0f}"
        tokens = f"{usage.prompt:,}→{usage.tokens['outputTokens']:,}" if usage.prompt else ""
        cost = ("unknown" if usage.unpriced else f"${usage.cost:.4f}") if usage.prompt else ""
        share = "" if usage.cached is None else f"{usage.cached:.0%}"
        say(f"{one.end / 1000:>+11.3f} {took:>9} {tokens:>15} {share:>5} {cost:>9}  {one.kind}: {one.words}")
