"""Reads the operator's log, including compressed days, and counts its errors and warnings by cause."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.contracts.environment import Disk
from bot.system import ulid_time
from bot.telemetry.log import PACKED, day_files
from bot.telemetry.usage import UsageTotals, details_of, epoch_ms

LEVELS = {"debug": 10, "info": 20, "action": 25, "warn": 30, "error": 40}
READ = 1024 * 1024
"""Max bytes that are read at once. `newest` searches only this many bytes at the end of the log."""
Line = dict[str, Any]
_ALL = -1
"""Marks a compressed file as completely read. A compressed file never grows."""
LAST = 10
"""Max log lines that are kept for each cause. The newest lines are kept."""
MAX_WORDS = 400
"""Max characters that are kept of a log message."""
COUNTED = 20_000
"""Max log lines that are counted. The newest lines are counted; they take about 15 MB of memory."""
_VARIABLE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*")
"""Pattern of ids and numbers. Ids and numbers are ignored when the causes of log lines are compared."""


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Selects log lines by chat, request, level and time."""

    chat: str | None = None
    request: str | None = None
    level: int = 0
    since: str = ""

    def __call__(self, line: Line) -> bool:
        return (
            self.chat in {None, line.get("chatKey")}
            and self.request in {None, line.get("requestId")}
            and LEVELS.get(str(line.get("level")), 0) >= self.level
            and str(line.get("timestamp")) >= self.since
        )

    def may_select(self, raw: bytes) -> bool:
        """Return False if unparsed text certainly has no selected line. This check is ten times as fast as parsing."""
        named = json.dumps(self.request or self.chat or "", ensure_ascii=False)[1:-1].encode()
        return named in raw and (
            self.level < LEVELS["warn"]
            or b'"error"' in raw
            or (self.level == LEVELS["warn"] and b'"warn"' in raw)
        )


@dataclass
class LogReader:
    """Reads log lines. Each call returns only lines that no earlier call has returned."""

    folder: Path
    disk: Disk
    wanted: LineFilter = LineFilter()
    unreadable: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    """For each file, the number of bytes read so far. The key is the file's name without `.gz`."""

    def lines(self) -> Iterator[tuple[str, Line]]:
        """Yield the selected lines as (text, object), oldest first."""
        for day, path in self._files():
            if day.isoformat() >= self.wanted.since[:10]:
                yield from self._of(path)

    def newest(self, count: int) -> list[tuple[str, Line]]:
        """Return the newest selected lines in the last `READ` bytes of the newest file, oldest first. A later
        call of `lines` continues after these lines.
        """
        files = [path for _, path in self._files()]
        for path in files:
            packed = path.suffix == PACKED
            self._places[path.name.removesuffix(PACKED)] = _ALL if packed else self.disk.size(path)
        if not files or files[-1].suffix == PACKED:
            return []
        with files[-1].open("rb") as file:
            begin = file.seek(max(0, self._places[files[-1].name] - READ))
            self._places[files[-1].name] = begin + len(file.readline() if begin else b"")
        return list(deque(self._of(files[-1]), count))

    def of_request(self, request_id: str) -> Iterator[tuple[str, Line]]:
        """Yield the selected lines of a request. The search covers the days from the time in the request's id to a day after
        the request's end. If no line is found there, all days are searched.
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
        """Yield the selected lines of a file. Skip lines that an earlier call has read."""
        name, packed = path.name.removesuffix(PACKED), path.suffix == PACKED
        if (place := self._places.get(name, 0)) == _ALL:
            return
        try:
            with gzip.open(path) if packed else path.open("rb") as file:
                file.seek(place)
                rest = b""  # the last line may be incomplete, because it is still being written
                while block := file.read(READ):
                    whole, end, rest = (rest + block).rpartition(b"\n")
                    for raw in whole.split(b"\n") if self.wanted.may_select(whole) else ():
                        if (line := self._parsed(raw)) is not None:
                            yield line
                    place += len(whole) + len(end)
                    self._places[name] = place
        except FileNotFoundError:
            return  # the file was deleted or compressed after it was listed
        except (EOFError, gzip.BadGzipFile, zlib.error):
            self.unreadable += 1
        if packed:
            self._places[name] = _ALL

    def _parsed(self, raw: bytes) -> tuple[str, Line] | None:
        """Return a parsed line; None if the line is unreadable or not selected."""
        if not self.wanted.may_select(raw):
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
    try:
        return datetime.fromtimestamp(ulid_time(request_id.upper()), UTC).date()
    except ValueError:
        return None


SHOWN = (
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
    "waitMs",
)
"""Details of a log line that describe a step."""
_ENDS = {"llm_response": "callId", "tool_result": "toolUseId"}
_PAIRED = {"llm_request": "callId", "tool_call": "toolUseId", "approval": "approval", **_ENDS}
"""For each kind of log line that begins or ends a step, the name of the detail that contains the step's id."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a turn. `end` is in milliseconds since the person's message, `duration` in milliseconds. `arguments` is "" for steps
    other than tool calls. `open` is True if the step had not ended when the log was read; then `end` is the step's begin.
    """

    kind: str
    level: str
    words: str
    end: float
    duration: float | None
    usage: UsageTotals
    arguments: str = ""
    open: bool = False


def steps_of(lines: Sequence[Line]) -> list[Step]:
    """Return the steps of a turn's log lines. The line at which a model call or tool call begins is a step only if the call has
    not ended. The duration of a turn's begin or of a retry is the wait before it.
    """
    queued = next((ms for line in lines if (ms := details_of(line).get("queueMs"))), 0)
    starts = [epoch_ms(line) - queued for line in lines if line.get("kind") == "turn_start"]
    began, found, open_ = min([*starts, *map(epoch_ms, lines)]), list[Step](), dict[str, tuple[float, Step]]()
    for line in lines:
        kind, details, end = str(line.get("kind")), details_of(line), epoch_ms(line) - began
        if line.get("level") == "debug":
            continue
        usage, key = UsageTotals(), str(details.get(_PAIRED.get(kind, "")))
        usage.take(line)
        duration = line.get("duration")
        if kind == "llm_retry":
            duration = details.get("waitMs")
            end += duration or 0
        elif kind == "turn_start":
            duration, queued = queued or None, 0  # a turn that continues after a kill begins twice
        words = [f"step {line['step']}:"] if "step" in line else []
        words.append(str(line.get("message")))
        words += [f"{name}={details[name]}" for name in SHOWN if details.get(name) not in (None, "")]
        arguments = str(details.get("input") or "") if kind == "tool_call" else ""
        step = Step(kind, str(line.get("level")), " ".join(words), end, duration, usage, arguments)
        if kind in _PAIRED and kind not in _ENDS and "decision" not in details:
            open_.setdefault(key, (end, step))
            found += [step] if kind == "approval" else []
            continue
        if key in open_:
            begin, first = open_.pop(key)
            took = end - begin if step.duration is None else step.duration
            step = replace(step, duration=took, arguments=first.arguments)
        found.append(step)
    return [*found, *(replace(step, open=True) for _, step in open_.values() if step.kind != "approval")]


@dataclass(frozen=True, slots=True)
class Cause:
    """Log lines with the same cause. `count` is the number of lines and `chats` the number of affected chats.
    `lines` has the newest lines, newest first.
    """

    count: int
    chats: int
    lines: Sequence[Line]


class CauseCounts:
    """Counts the newest log lines by cause. Only one thread may call the methods at a time."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._reader = LogReader(folder, disk, LineFilter(level=LEVELS["warn"]))
        self._lines: deque[Line] = deque(maxlen=COUNTED)

    def update(self) -> None:
        """Read the whole log. Each later call reads only the new lines."""
        for _, line in self._reader.lines():
            details = details_of(line)
            words = {
                "error": details.get("error"),
                "cause": details.get("cause"),
                "message": line.get("message"),
            }
            cause = next((str(one) for one in words.values() if one), "")
            kept = {name: line[name] for name in ("requestId", "chatKey") if line.get(name)}
            kept |= {name: str(line.get(name)) for name in ("timestamp", "level", "kind")}
            kept |= {name: str(said)[: MAX_WORDS + 1] for name, said in words.items() if said}
            kept["group"] = _VARIABLE.sub("#", cause[: 2 * MAX_WORDS])[:MAX_WORDS]
            self._lines.append(kept)

    def newest(self, level: str, since: float, *, offset: int, limit: int) -> tuple[list[Cause], int]:
        """Return a page of the causes of errors since a time (epoch seconds), newest first, and the number of all causes. With
        the level `warn`, include the causes of warnings.
        """
        begin = datetime.fromtimestamp(since, UTC).isoformat()[:19]
        groups: dict[tuple[str, ...], list[Line]] = defaultdict(list)
        for line in reversed(self._lines):
            if line["timestamp"] >= begin and level in {"warn", line["level"]}:
                groups[line["level"], line["kind"], line["group"]].append(line)
        found = [
            Cause(len(some), len({line.get("chatKey") for line in some} - {None}), some[:LAST])
            for some in groups.values()
        ]
        found.sort(key=lambda one: str(one.lines[0]["timestamp"]), reverse=True)
        return found[offset : offset + limit], len(found)
