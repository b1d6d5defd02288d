"""`shipmate logs`: shows the operator's log, filtered, and follows the log while it grows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from bot import text
from bot.cli.common import HOME, AsJson, Dir, Here, complain, counted, moment, say_raw, timestamp
from bot.cli.project import hint_of_folder
from bot.contracts.log_kinds import TEXTS
from bot.system import SystemClock, SystemDisk
from bot.telemetry.log_reader import LEVELS, Line, LineFilter, LogReader
from bot.telemetry.usage import details_of

FOLLOW_FROM = 20
"""Number of lines that --follow shows first."""
POLL_SECONDS = 0.2
COLOURS = {"debug": "2", "action": "36", "warn": "33", "error": "31"}
"""SGR colour codes of the log levels, for terminals."""


def logs(
    root: Dir = Here,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    chat: Annotated[str | None, typer.Option(metavar="K", help="Only this chatKey.")] = None,
    request: Annotated[str | None, typer.Option(metavar="ID", help="Only this requestId.")] = None,
    level: Annotated[
        str | None, typer.Option(metavar="L", help="Min level: debug, info, action, warn, error.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="T", help="A time, or 2h for two hours ago.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Whole lines, with message texts.")] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="Steps and tasks of a turn as a tree; needs --request.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    if tree and (follow or as_json):
        raise typer.BadParameter("--tree cannot be combined with -f and --json")
    if tree and request is None:
        raise typer.BadParameter("--tree shows one turn: name it with --request")
    if level is not None and level not in LEVELS:
        raise typer.BadParameter(f"{level!r} is not a level; levels are {', '.join(LEVELS)}")
    hint_of_folder(root)
    start = None if since is None else timestamp(moment(since).timestamp())
    request = None if request is None else request.upper()
    reader = reader_of(root, LineFilter(chat, request, LEVELS.get(level or "", 0), start))
    found: Iterable[tuple[str, Line]]
    if follow and start is None:
        found = reader.newest(FOLLOW_FROM)
    else:
        found = reader.of_request(request) if request is not None and not follow else reader.lines()
    show = _show_json if as_json else _printer(full=full)
    if tree:
        _show_tree(found, show)
    else:
        count = 0
        for count, (raw, line) in enumerate(found, 1):  # noqa: B007 - the count is used after the loop
            show(raw, line)
        if not count and not follow and (chat or request):
            complain(f"The log has no line of {chat or request}.")
    report_unreadable(reader)
    if follow:
        sys.stdout.flush()
        try:
            asyncio.run(follow_log(reader, show))
        except KeyboardInterrupt:
            return


def reader_of(root: Path, wanted: LineFilter) -> LogReader:
    return LogReader(root / HOME / "logs", SystemDisk(), wanted)


def report_unreadable(reader: LogReader) -> None:
    if reader.unreadable:
        complain(f"{counted(reader.unreadable, 'line')} could not be read, and are left out.")


async def follow_log(reader: LogReader, show: Callable[[str, Line], None]) -> None:
    clock = SystemClock()
    while True:
        for raw, line in reader.lines():
            show(raw, line)
        sys.stdout.flush()
        await clock.sleep(POLL_SECONDS)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _show_json(raw: str, _line: Line) -> None:
    say_raw(raw)


def _printer(*, full: bool) -> Callable[..., None]:
    """Return a function that prints a log line for a person. On a terminal the line is coloured, and cut to
    the terminal's width unless `full` is set. The function's parameter `before` is a text that replaces
    time and ids.
    """
    terminal = is_terminal()
    width = shutil.get_terminal_size().columns if terminal and not full else None
    colours = COLOURS if terminal and not os.environ.get("NO_COLOR") else {}

    def show(_raw: str, line: Line, before: str = "") -> None:
        words = text.for_terminal(before + _rendered(line, full=full, place=not before))
        words = words if width is None else fitted(words, width)
        colour = colours.get(str(line.get("level")))
        print(f"\x1b[{colour}m{words}\x1b[0m" if colour else words)

    return show


def _rendered(line: Line, *, full: bool, place: bool) -> str:
    """Return a log line as text for a person. The text has message texts only if `full` is set, and time and
    ids only if `place` is set.
    """
    where = [str(line[key]) for key in ("chatKey", "requestId") if place and line.get(key)]
    if line.get("step") is not None:
        where.append(f"step {line['step']}")
    if line.get("duration") is not None:
        where.append(f"{line['duration']} ms")
    details = {
        name: value
        for name, value in details_of(line).items()
        if full or name not in TEXTS or not isinstance(value, str | list | dict)
    }
    parts = [
        str(line.get("timestamp", "")) if place else "",
        f"{str(line.get('level', '')).upper():<6}",
        f"{line.get('kind', '')}:",
        " ".join(str(line.get("message", "")).split()),
        f"[{' '.join(where)}]" if where else "",
        json.dumps(details, ensure_ascii=False) if details else "",
    ]
    return " ".join(part for part in parts if part)


def fitted(words: str, width: int) -> str:
    """Return a line cut to the number of columns of a terminal. A wide character takes two columns."""
    cut, used = "", 0
    for one in text.graphemes(words[: 8 * width]):
        used += text.width(one)
        if used > width:
            return f"{cut}…"
        cut += one if used < width else ""
    return words


def _show_tree(found: Iterable[tuple[str, Line]], show: Callable[..., None]) -> None:
    """Show the lines of a turn with their time offset from the first line. The lines of steps and tasks are
    indented.
    """
    began, step = None, None
    for raw, line in found:
        try:
            at = datetime.fromisoformat(str(line.get("timestamp")))
        except ValueError:
            continue
        began = began or at
        task = details_of(line).get("task")
        depth = (line.get("step") is not None) + (task is not None and line.get("kind") != "task")
        if line.get("step") not in {None, step} and task is None:
            print(f"{'':>11}  step {line['step']}")
        step = line.get("step") if task is None else step
        show(raw, line, before=f"{(at - began).total_seconds():>+11.3f}  {'  ' * depth}")
