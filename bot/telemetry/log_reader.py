"""Reads the operator's log, including compressed days."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from bot import ulids
from bot.contracts.environment import Disk
from bot.telemetry.log import PACKED, day_files

LEVELS = {"debug": 10, "info": 20, "action": 25, "warn": 30, "error": 40}
TAIL = 1024 * 1024
READ = 1024 * 1024
MARGIN = 60
"""Seconds by which lines of the log may be out of order."""
AFTERWARDS = 3_600
"""Seconds after the end of a turn in which lines about it may follow."""
_TIMESTAMP = re.compile(rb'"timestamp": ?"([^"]+)"')

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Selects log lines by chat, request, level and time."""

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

    @property
    def holds(self) -> bytes:
        """Return bytes that every selected line contains. Lines without these bytes need not be parsed."""
        named = self.request or self.chat or ""
        return named.encode() if named.isascii() and named.isprintable() and '"' not in named else b""

    def may_hold(self, raw: bytes) -> bool:
        """Return False if these bytes certainly contain no selected line."""
        return self.holds in raw and (
            self.level < LEVELS["warn"]
            or b'"error"' in raw
            or (self.level == LEVELS["warn"] and b'"warn"' in raw)
        )


@dataclass
class LogReader:
    """Reads the existing log lines at the first call, and the new log lines at each further call."""

    folder: Path
    disk: Disk
    wanted: LineFilter = LineFilter()
    unreadable: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    _whole: set[str] = field(default_factory=set)
    """Names of compressed files that were read completely. A compressed file never grows."""

    def lines(self) -> Iterator[tuple[str, Line]]:
        """Yield the selected lines as (text, object), oldest first."""
        first = (self.wanted.since or "")[:10]
        for day, path in self._files():
            if day.isoformat() >= first:
                yield from self._of(path)

    def newest(self, count: int) -> list[tuple[str, Line]]:
        """Return the newest selected lines in the last `TAIL` bytes of the newest file, oldest first. A later
        call of `lines` continues after these lines.
        """
        files = [path for _, path in self._files()]
        for path in files:
            if path.suffix == PACKED:
                self._whole.add(path.name.removesuffix(PACKED))
            else:
                self._places[path.name] = self.disk.size(path)
        if not files or files[-1].suffix == PACKED:
            return []
        with files[-1].open("rb") as file:
            begin = file.seek(max(0, self._places[files[-1].name] - TAIL))
            self._places[files[-1].name] = begin + len(file.readline() if begin else b"")
        return list(deque(self._of(files[-1]), count))

    def of_request(self, request_id: str, *, everywhere: bool = True) -> Iterator[tuple[str, Line]]:
        """Yield the selected lines of a request, from the day in the request's id until a day after the
        request's end. With `everywhere` all other days are read if these days have no such line; without it,
        only what was written from the time in the id until `AFTERWARDS` after the end, which is fast in a long log.
        """
        files, begun = self._files(), day_of(request_id)
        since = "" if everywhere or begun is None else _stamp(ulids.made_at(request_id.upper()) - MARGIN)
        until = [""]
        near = [one for one in files if begun is not None and one[0] >= begun]
        last, running, found = (begun or date.min) + timedelta(1), False, False
        for day, path in near:
            if day > last and not running:
                break
            for text, line in self._of(path, since, lambda: until[0]):
                found = True
                if line.get("kind") in {"turn_start", "turn_end"}:
                    running = line["kind"] == "turn_start"
                    last = max(last, day + timedelta(1))
                    until[0] = "" if running or not since else _later(str(line.get("timestamp")))
                yield text, line
            if until[0] and until[0] < (day + timedelta(1)).isoformat():
                break
        if everywhere and not found:
            for _, path in files:
                yield from self._of(path)

    def _files(self) -> list[tuple[date, Path]]:
        return [(day, path) for day, _, path in day_files(self.folder, self.disk)]

    def _of(self, path: Path, since: str = "", until: Callable[[], str] = str) -> Iterator[tuple[str, Line]]:
        """Yield the selected lines of a file that were not read yet, from about the time `since` to about the
        time that `until` returns.
        """
        name = path.name.removesuffix(PACKED)
        if name in self._whole:
            return
        try:
            with gzip.open(path) if path.suffix == PACKED else path.open("rb") as file:
                place = self._places.get(name, 0)
                if since and not place and path.suffix != PACKED:
                    place = _first_since(file, since)
                file.seek(place)
                rest = b""  # the last line may still be written
                while block := file.read(READ):
                    whole, end, rest = (rest + block).rpartition(b"\n")
                    for raw in whole.split(b"\n") if self.wanted.may_hold(whole) else ():
                        if (line := self._parsed(raw)) is not None:
                            yield line
                    place += len(whole) + len(end)
                    self._places[name] = place
                    if (last := until()) and _time_in(whole[whole.rfind(b"\n") + 1 :]) > last:
                        return
        except FileNotFoundError:
            return  # the file was deleted or compressed after it was listed
        except (EOFError, gzip.BadGzipFile, zlib.error):
            self.unreadable += 1
        if path.suffix == PACKED:
            self._whole.add(name)

    def _parsed(self, raw: bytes) -> tuple[str, Line] | None:
        """Return a parsed line; None if the line is not selected."""
        if not self.wanted.may_hold(raw):
            return None
        text = raw.decode("utf-8", "replace").strip()
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            self.unreadable += bool(text)
            return None
        return (text, line) if self.wanted(line) else None


def day_of(request_id: str) -> date | None:
    """Return the UTC day of a ULID; None if the text is not a ULID."""
    if not ulids.FORM.fullmatch(request_id.upper()):
        return None
    try:
        return datetime.fromtimestamp(ulids.made_at(request_id.upper()), UTC).date()
    except (ValueError, OverflowError, OSError):
        return None


def _first_since(file: Any, since: str) -> int:
    """Return the position of a line that is shortly before the first line with the time `since` or a later one."""
    low, high = 0, file.seek(0, 2)
    while high - low > READ:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()  # the end of a line
        if "" < _time_in(file.readline()) < since:
            low = middle
        else:
            high = middle
    file.seek(low)
    return low + len(file.readline()) if low else 0


def _time_in(raw: bytes) -> str:
    found = _TIMESTAMP.search(raw)
    return found[1].decode() if found is not None else ""


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _later(stamp: str) -> str:
    try:
        return _stamp(datetime.fromisoformat(stamp).timestamp() + AFTERWARDS)
    except ValueError:
        return ""
