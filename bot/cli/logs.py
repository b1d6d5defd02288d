"""`shipmate logs`: the operator's log, filtered, and followed as it grows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.common import HOME, AsJson, Dir, Here, complain, moment, say, say_raw, timestamp

LEVELS = {"debug": 10, "info": 20, "action": 25, "warn": 30, "error": 40}
FOLLOW_FROM = 20  # lines shown before those to come
LOOK_EVERY = 0.2  # seconds

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Selects lines by chat, request, level and time."""

    chat: str | None = None
    request: str | None = None
    level: int = 0
    since: str | None = None

    def __call__(self, line: Line) -> bool:
        return (
            (self.chat is None or line.get("chatKey") == self.chat)
            and (self.request is None or line.get("requestId") == self.request)
            and LEVELS.get(str(line.get("level")), 0) >= self.level
            and (self.since is None or str(line.get("timestamp")) >= self.since)
        )


@dataclass
class LogReader:
    """Reads what is there, and at each further call what has come since."""

    folder: Path
    first_day: str = ""
    unreadable: int = 0
    _places: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[tuple[str, Line]]:
        """Each line as it stands in the file, and as an object."""
        from bot import system, telemetry

        for day, _, path in telemetry.day_files(self.folder, system.SystemDisk()):
            if day.isoformat() >= self.first_day:
                yield from self._of(path)

    def _of(self, path: Path) -> Iterator[tuple[str, Line]]:
        with path.open("rb") as file:
            file.seek(self._places.get(path.name, 0))
            for raw in file:
                if not raw.endswith(b"\n"):
                    break  # still being written
                self._places[path.name] = self._places.get(path.name, 0) + len(raw)
                text = raw.decode("utf-8", "replace").strip()
                try:
                    line = json.loads(text)
                except ValueError:
                    line = None
                if isinstance(line, dict):
                    yield text, line
                elif text:
                    self.unreadable += 1

    def tell_unreadable(self) -> None:
        if self.unreadable:
            complain(f"{self.unreadable} lines cannot be read and were left out.")


def _level(value: str | None) -> int:
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
    level: Annotated[str | None, typer.Option(metavar="L", help=f"At least: {', '.join(LEVELS)}.")] = None,
    since: Annotated[str | None, typer.Option(metavar="T", help="A time, or 2h for two hours ago.")] = None,
    as_json: AsJson = False,
) -> None:
    """The operator's log."""
    start = None if since is None else timestamp(moment(since))
    wanted = LineFilter(chat, request, _level(level), start)
    reader = LogReader(root / HOME / "logs", first_day=(start or "")[:10])
    show = _show_json if as_json else _show
    found = ((text, line) for text, line in reader.lines() if wanted(line))
    for text, line in deque(found, FOLLOW_FROM) if follow and start is None else found:
        show(text, line)
    reader.tell_unreadable()
    if follow:
        try:
            asyncio.run(_follow(reader, wanted, show))
        except KeyboardInterrupt:
            return


async def _follow(reader: LogReader, wanted: LineFilter, show: Callable[[str, Line], None]) -> None:
    from bot.system import SystemClock

    clock = SystemClock()
    while True:
        for text, line in reader.lines():
            if wanted(line):
                show(text, line)
        sys.stdout.flush()
        await clock.sleep(LOOK_EVERY)


def _show_json(text: str, _line: Line) -> None:
    say_raw(text)


def _show(_text: str, line: Line) -> None:
    details = line.get("details")
    where = [str(line[key]) for key in ("chatKey", "requestId") if line.get(key)]
    if line.get("step") is not None:
        where.append(f"step {line['step']}")
    if line.get("duration") is not None:
        where.append(f"{line['duration']} ms")
    parts = [
        str(line.get("timestamp", "")),
        f"{str(line.get('level', '')).upper():<6}",
        f"{line.get('kind', '')}:",
        " ".join(str(line.get("message", "")).split()),
        f"[{' '.join(where)}]" if where else "",
        json.dumps(details, ensure_ascii=False) if details else "",
    ]
    say(" ".join(part for part in parts if part))
