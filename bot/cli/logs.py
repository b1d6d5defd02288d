"""The commands `logs`, which shows lines of the operator's log, and `trace`, which shows the steps of one turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from bot import errors, text
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
    say_raw,
    timestamp,
)
from bot.cli.project import hint_of_folder
from bot.contracts.base import Level
from bot.contracts.log_kinds import TEXTS
from bot.system import SystemClock, SystemDisk
from bot.telemetry.log_reader import LEVELS, Line, LineFilter, LogReader, steps_of
from bot.telemetry.usage import details_of, total_of

FOLLOW_FROM = 20
"""Number of existing lines that `--follow` shows before it waits for new lines."""
POLL_SECONDS = 0.2
COLOURS = {"debug": "2", "action": "36", "warn": "33", "error": "31"}
"""SGR colour codes of the log levels, for terminals."""

Full = Annotated[bool, typer.Option("--full", help="Whole lines, with message texts.")]


def logs(
    root: Dir = Here,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    chat: Chat = None,
    request: Annotated[str | None, typer.Option(metavar="ID", help="Only this requestId.")] = None,
    level: Annotated[Level | None, typer.Option(metavar="L", help=f"Min level: {', '.join(LEVELS)}.")] = None,
    since: Since = None,
    full: Full = False,
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
    """Print log lines, and return their number. On a terminal each line has the colour of its level and, unless `full` is set,
    is cut to the terminal's width.
    """
    terminal, count = sys.stdout.isatty(), 0
    width = shutil.get_terminal_size().columns if terminal and not full else None
    colours = COLOURS if terminal and not os.environ.get("NO_COLOR") else {}
    for count, (raw, line) in enumerate(found, 1):  # noqa: B007 - the count is returned
        if as_json:
            say_raw(raw)
            continue
        words, colour = text.for_terminal(_rendered(line, full=full)), colours.get(str(line.get("level")))
        words = words if width is None else _fitted(words, width)
        print(f"\x1b[{colour}m{words}\x1b[0m" if colour else words)
    return count


def _fitted(words: str, width: int) -> str:
    """Return a line cut to the number of columns of a terminal. A wide character takes two columns."""
    cut, used = "", 0
    for one in text.graphemes(words[: 8 * width]):
        used += text.width(one)
        if used > width:
            return f"{cut}…"
        cut += one if used < width else ""
    return words


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


def trace(request_id: RequestId, root: Dir = Here, full: Full = False, as_json: AsJson = False) -> None:
    turn = request_id.upper()
    found = _of_turn(root, turn)
    if not any(line.get("kind") == "turn_start" for _, line in found):
        from bot.cli.replay import turn_of  # imports most of the product

        with contextlib.suppress(
            errors.ShipmateError
        ):  # without the chat's log, messages that joined are unknown
            found = _of_turn(root, asyncio.run(turn_of(root, turn))) or found
    if not found:
        raise errors.NotFound(f"the log has no line of {turn!r}; logs and `/receipt` show ids")
    if full or as_json:
        _show(found, full=True, as_json=as_json)
        return
    lines = [line for _, line in found]
    # One line for each step: time since the start, duration, tokens, cached share, cost and description.
    say(f"{'offset':>11} {'ms':>9} {'tokens':>15} {'cache':>5} {'cost':>9}")
    for one in steps_of(lines):
        usage = one.usage
        took = "" if one.duration is None else f"{one.duration:,.0f}"
        tokens = f"{usage.prompt:,}→{usage.tokens['outputTokens']:,}" if usage.prompt else ""
        cost = ("unknown" if usage.unpriced else f"${usage.cost:.4f}") if usage.prompt else ""
        share = "" if usage.cached is None else f"{usage.cached:.0%}"
        say(f"{one.end / 1000:>+11.3f} {took:>9} {tokens:>15} {share:>5} {cost:>9}  {one.kind}: {one.words}")
    sums = total_of(lines)
    say(
        f"{counted(sums.calls, 'answer')} of the model, {sums.prompt:,} tokens read, "
        f"{sums.tokens['outputTokens']:,} written, {cost_of(sums, 4)}"
    )


def _of_turn(root: Path, turn: str) -> list[tuple[str, Line]]:
    reader = LogReader(root / HOME / "logs", SystemDisk(), LineFilter(request=turn))
    found = list(reader.of_request(turn))
    _report_unreadable(reader)
    return found
