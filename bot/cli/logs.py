"""`shipmate logs`: the operator's log, filtered, and followed as it grows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot.cli.common import (
    HOME,
    AsJson,
    Dir,
    Here,
    complain,
    counted,
    hint_of_folder,
    moment,
    printable,
    say_raw,
    timestamp,
)

if TYPE_CHECKING:
    from bot.telemetry.log_reader import Line, LineFilter, LogReader

    Show = Callable[[str, Line], None]

FOLLOW_FROM = 20  # lines shown before those to come
LOOK_EVERY = 0.2  # seconds
COLOURS = {"debug": "2", "action": "36", "warn": "33", "error": "31"}
"""SGR codes before a line of a level, on a terminal."""


def _level(value: str | None) -> int:
    from bot.telemetry.log_reader import LEVELS

    if value is None:
        return 0
    if value not in LEVELS:
        raise typer.BadParameter(f"{value!r} is no level; there are {', '.join(LEVELS)}")
    return LEVELS[value]


def logs(
    root: Dir = Here,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with lines as they come.")] = False,
    chat: Annotated[str | None, typer.Option(metavar="K", help="Only this chatKey.")] = None,
    request: Annotated[str | None, typer.Option(metavar="ID", help="Only this requestId.")] = None,
    level: Annotated[
        str | None, typer.Option(metavar="L", help="At least: debug, info, action, warn, error.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="T", help="A time, or 2h for two hours ago.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Whole lines, with the texts of messages.")] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="A turn, with --request: its steps and tasks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The operator's log."""
    from bot.telemetry.log_reader import LineFilter

    if tree and (follow or as_json):
        raise typer.BadParameter("--tree goes without -f and --json")
    hint_of_folder(root)
    start = None if since is None else timestamp(moment(since).timestamp())
    request = None if request is None else request.upper()
    reader = log_of(root, LineFilter(chat, request, _level(level), start))
    show = _show_json if as_json else _LinePrinter(full)
    if tree:
        if request is None:
            raise typer.BadParameter("--tree shows one turn: name it with --request")
        _show_tree(reader.of_request(request), full)
    else:
        found: Iterable[tuple[str, Line]]
        if follow and start is None:
            found = reader.newest(FOLLOW_FROM)
        else:
            found = reader.of_request(request) if request is not None and not follow else reader.lines()
        count = 0
        for count, (text, line) in enumerate(found, 1):  # noqa: B007 - counted
            show(text, line)
        if not count and not follow and (chat or request):
            complain(f"The log has no line of {chat or request}.")
    tell_unreadable(reader)
    if follow:
        sys.stdout.flush()
        try:
            asyncio.run(follow_log(reader, show))
        except KeyboardInterrupt:
            return


def log_of(root: Path, wanted: LineFilter) -> LogReader:
    from bot.system import SystemDisk
    from bot.telemetry.log_reader import LogReader

    return LogReader(root / HOME / "logs", SystemDisk(), wanted)


def tell_unreadable(reader: LogReader) -> None:
    if reader.unreadable:
        complain(f"{counted(reader.unreadable, 'line')} could not be read, and are left out.")


async def follow_log(reader: LogReader, show: Show) -> None:
    from bot.system import SystemClock

    clock = SystemClock()
    while True:
        for text, line in reader.lines():
            show(text, line)
        sys.stdout.flush()
        await clock.sleep(LOOK_EVERY)


def _show_json(text: str, _line: Line) -> None:
    say_raw(text)


def is_terminal() -> bool:
    return sys.stdout.isatty()


class _LinePrinter:
    """Prints lines for a person: on a terminal in its width and in colours, elsewhere whole and without."""

    def __init__(self, full: bool) -> None:
        self._full = full
        terminal = is_terminal()
        self._width = shutil.get_terminal_size().columns if terminal and not full else None
        self._colours = terminal and not os.environ.get("NO_COLOR")

    def __call__(self, _text: str, line: Line, *, before: str = "") -> None:
        words = printable(before + rendered(line, full=self._full, place=not before))
        if self._width is not None:
            words = fitted(words, self._width)
        colour = COLOURS.get(str(line.get("level")))
        print(f"\x1b[{colour}m{words}\x1b[0m" if self._colours and colour else words)


def rendered(line: Line, *, full: bool, place: bool = True) -> str:
    """A log line for a person to read, without what was said unless it is `full`."""
    where = [str(line[key]) for key in ("chatKey", "requestId") if place and line.get(key)]
    if line.get("step") is not None:
        where.append(f"step {line['step']}")
    if line.get("duration") is not None:
        where.append(f"{line['duration']} ms")
    parts = [
        str(line.get("timestamp", "")) if place else "",
        f"{str(line.get('level', '')).upper():<6}",
        f"{line.get('kind', '')}:",
        " ".join(str(line.get("message", "")).split()),
        f"[{' '.join(where)}]" if where else "",
        _details(line.get("details"), full=full),
    ]
    return " ".join(part for part in parts if part)


def _details(details: Any, *, full: bool) -> str:
    if not isinstance(details, dict):
        return ""
    from bot.contracts.log_kinds import TEXTS

    shown = {
        name: value
        for name, value in details.items()
        if full or name not in TEXTS or not isinstance(value, str | list | dict)
    }
    return json.dumps(shown, ensure_ascii=False) if shown else ""


def fitted(words: str, width: int) -> str:
    """As much of a line as a terminal of this width shows in one; wide characters take two columns."""
    import unicodedata

    used = cut = 0
    for at, char in enumerate(words):
        wide = unicodedata.east_asian_width(char) in {"W", "F"}
        used += 0 if unicodedata.combining(char) else 2 if wide else 1
        if used > width:
            return words[:cut] + "…"
        if used < width:
            cut = at + 1
    return words


def _show_tree(found: Iterable[tuple[str, Line]], full: bool) -> None:
    """The lines of a turn, each behind its offset from the first one; those of steps and tasks stand below them."""
    from datetime import datetime

    show, began, step = _LinePrinter(full), None, None
    for text, line in found:
        try:
            at = datetime.fromisoformat(str(line.get("timestamp")))
        except ValueError:
            continue
        began = began or at
        details = line.get("details")
        task = details.get("task") if isinstance(details, dict) else None
        depth = (line.get("step") is not None) + (task is not None and line.get("kind") != "task")
        if line.get("step") != step and line.get("step") is not None and task is None:
            print(f"{'':>11}  step {line['step']}")
        step = line.get("step") if task is None else step
        show(text, line, before=f"{(at - began).total_seconds():>+11.3f}  {'  ' * depth}")
