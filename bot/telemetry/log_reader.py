"""Reads the operator's log, including compressed days, and counts its errors and warnings by cause."""

from __future__ import annotations

import gzip
import json
import re
import threading
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from bot import text, ulids
from bot.contracts.environment import Disk
from bot.telemetry.log import PACKED, day_files
from bot.telemetry.usage import details_of

LEVELS = {"debug": 10, "info": 20, "action": 25, "warn": 30, "error": 40}
TAIL = 1024 * 1024
READ = 1024 * 1024
Line = dict[str, Any]
Level = Literal["error", "warn"]
LAST = 10
"""Max log lines that are kept for each cause. The newest are kept."""
MAX_WORDS = 400
"""Max characters of a log message that are kept."""
COUNTED = 20_000
"""Max log lines that are counted. The newest are counted; they take about 15 MB of memory."""
FAILURES = 100
"""Max failed model calls that are kept, the newest. They are compared with the causes of failed turns."""
_VARIABLE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*")
"""Pattern of ids and numbers. They are ignored when the causes of log lines are compared."""


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
        """Return bytes that every selected line contains. A line without these bytes need not be parsed."""
        named = self.request or self.chat or ""
        return named.encode() if named.isascii() and named.isprintable() and '"' not in named else b""

    def may_hold(self, raw: bytes) -> bool:
        """Return False if this unparsed line is certainly not selected."""
        return self.holds in raw and (
            self.level < LEVELS["warn"]
            or b'"error"' in raw
            or (self.level == LEVELS["warn"] and b'"warn"' in raw)
        )


@dataclass
class LogReader:
    """Reads log lines. The first call returns the existing lines, each later call the lines written since."""

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

    def of_request(self, request_id: str) -> Iterator[tuple[str, Line]]:
        """Yield the selected lines of a request. The search begins on the day that the request's id names, and ends a day
        after the request's end. If these days have no such line, all days are searched.
        """
        files, begun = self._files(), day_of(request_id) or date.max
        last, running, found = begun, False, False
        for day, path in (one for one in files if one[0] >= begun):
            if not running and day - last > timedelta(1):
                break
            for raw, line in self._of(path):
                found = True
                if line.get("kind") in {"turn_start", "turn_end"}:
                    running, last = line["kind"] == "turn_start", day
                yield raw, line
        if not found:
            for _, path in files:
                yield from self._of(path)

    def _files(self) -> list[tuple[date, Path]]:
        return [(day, path) for day, _, path in day_files(self.folder, self.disk)]

    def _of(self, path: Path) -> Iterator[tuple[str, Line]]:
        """Yield those selected lines of a file that no earlier call has read."""
        name = path.name.removesuffix(PACKED)
        if name in self._whole:
            return
        try:
            with gzip.open(path) if path.suffix == PACKED else path.open("rb") as file:
                place = file.seek(self._places.get(name, 0))
                rest = b""  # the last line may be incomplete, because it is still being written
                while block := file.read(READ):
                    whole, end, rest = (rest + block).rpartition(b"\n")
                    for raw in whole.split(b"\n") if self.wanted.may_hold(whole) else ():
                        if (line := self._parsed(raw)) is not None:
                            yield line
                    place += len(whole) + len(end)
                    self._places[name] = place
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
        words = raw.decode("utf-8", "replace").strip()
        try:
            line = json.loads(words)
        except ValueError:
            line = None
        if isinstance(line, dict):
            return (words, line) if self.wanted(line) else None
        self.unreadable += bool(words)
        return None


def day_of(request_id: str) -> date | None:
    """Return the UTC day of a ULID; None if the text is not a ULID."""
    if not ulids.FORM.fullmatch(request_id.upper()):
        return None
    try:
        return datetime.fromtimestamp(ulids.made_at(request_id.upper()), UTC).date()
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class CauseFilter:
    """Selects log lines by level, kind, channel and time (`since`, in epoch seconds). Selects causes by the words of
    their newest line.
    """

    level: Level = "error"
    since: float = 0.0
    kind: str = ""
    channel: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Log lines with the same cause. `count` is the number of lines and `chats` the number of affected chats.
    `lines` has the newest lines, newest first.
    """

    count: int
    chats: int
    lines: Sequence[Line]

    @property
    def last(self) -> Line:
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class Causes:
    """One page of causes, newest first, and the kinds and channels of all counted lines. `total` is the number of
    causes on all pages.
    """

    page: Sequence[Cause]
    total: int
    kinds: Sequence[str]
    channels: Sequence[str]


class CauseCounts:
    """Counts the newest log lines by cause. After the first call, each call reads only the new lines. Thread-safe."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._reader = LogReader(folder, disk, LineFilter(level=LEVELS["warn"]))
        self._lines: deque[Line] = deque(maxlen=COUNTED)
        self._failures: deque[tuple[Any, Any]] = deque(maxlen=FAILURES)
        """Turn and cause of each of the newest failed model calls."""
        self._lock = threading.Lock()

    def newest(self, wanted: CauseFilter, *, offset: int, limit: int) -> Causes | None:
        """Return a page of the selected causes, newest first. Return None while another call is counting. Blocking."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            for _, line in self._reader.lines():
                self._add(line)
            lines = list(self._lines)
        finally:
            self._lock.release()
        since = datetime.fromtimestamp(wanted.since, UTC).isoformat()[:19]
        groups: dict[tuple[str, ...], list[Line]] = defaultdict(list)
        for line in reversed(lines):
            if (
                line["timestamp"] >= since
                and (line["level"] == "error" or wanted.level == "warn")
                and wanted.kind in {"", line["kind"]}
                and wanted.channel in {"", line["channel"]}
            ):
                groups[line["level"], line["kind"], line["group"]].append(line)
        found = [
            Cause(len(some), len({line.get("chatKey", "") for line in some} - {""}), some[:LAST])
            for some in groups.values()
            if _has(some[0], wanted.words)
        ]
        found.sort(key=lambda one: str(one.last["timestamp"]), reverse=True)
        kinds, channels = (sorted({line[name] for line in lines} - {""}) for name in ("kind", "channel"))
        return Causes(found[offset : offset + limit], len(found), kinds, channels)

    def _add(self, line: Line) -> None:
        details = details_of(line)
        failure = (line.get("requestId"), f"{details.get('error')}: {details.get('cause')}")
        if line.get("kind") == "llm_response":
            self._failures.append(failure)
        elif line.get("kind") == "turn_end" and (failure[0], details.get("cause")) in self._failures:
            return  # the turn failed because of a model call, which is already counted
        words = {"message": line.get("message"), "error": details.get("error"), "cause": details.get("cause")}
        cause = str(words["error"] or words["cause"] or words["message"])
        kept = {name: line[name] for name in ("requestId", "chatKey") if line.get(name)}
        kept |= {name: str(line.get(name)) for name in ("timestamp", "level", "kind")}
        kept |= {name: str(said)[: MAX_WORDS + 1] for name, said in words.items() if said}
        kept["channel"] = str(line.get("chatKey") or "").partition(":")[0]
        kept["group"] = _VARIABLE.sub("#", cause[: 2 * MAX_WORDS])[:MAX_WORDS]
        self._lines.append(kept)


def _has(line: Line, words: str) -> bool:
    told = text.folded("\n".join(str(line.get(name, "")) for name in ("kind", "message", "error", "cause")))
    return all(word in told for word in text.folded(words).split())
