"""Counts the errors and warnings in the operator's log by cause. Counting happens on request, and the counts
are kept in memory.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bot import text
from bot.contracts.environment import Disk
from bot.telemetry.log_reader import LEVELS, LineFilter, LogReader
from bot.telemetry.usage import details_of

Level = Literal["error", "warn"]
LAST = 10
"""Max newest log lines that are kept of a cause."""
LISTED = 1_000
"""Max number of counts that keep more than their newest log line."""
MAX_WORDS = 400
"""Max characters of a log message that are kept."""
MAX_COUNTS = 20_000
"""Max number of counts. There is one count for each cause and hour, and the oldest counts are removed first."""
FAILURES = 100
"""Max failed calls of the model in which the cause of a turn's end is looked for."""
_VARIABLE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*")
"""Ids and numbers, which can differ between log lines with the same cause."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CauseFilter:
    """Selects causes of at least a level, by kind and channel of their lines and by the `words` of the newest
    line, since the hour of `since`.
    """

    level: Level = "error"
    since: float = 0.0
    kind: str = ""
    channel: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Log lines with the same cause: the number of lines, the number of affected chats, and the newest lines,
    newest first.
    """

    count: int
    chats: int
    lines: Sequence[Line]

    @property
    def last(self) -> Line:
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class Causes:
    """A page of `total` causes, newest first, and the kinds and channels of all counted lines."""

    page: Sequence[Cause]
    total: int
    kinds: Sequence[str]
    channels: Sequence[str]


@dataclass(slots=True)
class _Count:
    """Number of log lines with one cause in one hour, and the newest of the lines, oldest first."""

    lines: int = 0
    chats: set[str] = field(default_factory=set)
    last: deque[Line] = field(default_factory=lambda: deque(maxlen=LAST))


class CauseCounts:
    """Counts the log lines by cause. After the first call, each call reads only the new lines. Thread-safe."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._reader = LogReader(folder, disk, LineFilter(level=LEVELS["warn"]))
        self._counts: dict[tuple[str, str, str, str, str], _Count] = defaultdict(_Count)
        """Counts by (hour, level, kind, channel, cause)."""
        self._failures: deque[tuple[Any, Any]] = deque(maxlen=FAILURES)
        """Turn and cause of the newest failed calls of the model."""
        self._lock = threading.Lock()

    def newest(self, wanted: CauseFilter, *, offset: int, limit: int) -> Causes | None:
        """Return a page of the selected causes, newest first. Return None while another call is counting. Blocking."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            for _, line in self._reader.lines():
                self._count(line)
            counted = sorted(self._counts)
            for key in counted[:-MAX_COUNTS]:
                del self._counts[key]
            for key in counted[-MAX_COUNTS:-LISTED]:
                last = self._counts[key].last
                while len(last) > 1:
                    last.popleft()
            first = datetime.fromtimestamp(wanted.since, UTC).strftime("%Y-%m-%dT%H")
            groups: dict[tuple[str, ...], list[_Count]] = defaultdict(list)
            for (hour, severity, kind, channel, cause), count in self._counts.items():
                if (
                    hour >= first
                    and (severity == "error" or wanted.level == "warn")
                    and wanted.kind in {"", kind}
                    and wanted.channel in {"", channel}
                ):
                    groups[severity, kind, cause].append(count)
            found = [one for counts in groups.values() if _has(one := _joined(counts), wanted.words)]
            kinds, channels = (sorted({key[at] for key in self._counts} - {""}) for at in (2, 3))
        finally:
            self._lock.release()
        found.sort(key=lambda one: str(one.last.get("timestamp")), reverse=True)
        return Causes(found[offset : offset + limit], len(found), kinds, channels)

    def _count(self, line: Line) -> None:
        details = details_of(line)
        failure = (line.get("requestId"), f"{details.get('error')}: {details.get('cause')}")
        if line.get("kind") == "llm_response":
            self._failures.append(failure)
        elif line.get("kind") == "turn_end" and (failure[0], details.get("cause")) in self._failures:
            return  # the turn failed with the model's call, which is counted
        words = {"message": line.get("message"), "error": details.get("error"), "cause": details.get("cause")}
        cause = str(words["error"] or words["cause"] or words["message"])
        cause = _VARIABLE.sub("#", cause[: 2 * MAX_WORDS])[:MAX_WORDS]
        hour = str(line.get("timestamp"))[:13]
        chat = str(line.get("chatKey") or "")
        channel = chat.partition(":")[0]
        count = self._counts[hour, str(line.get("level")), str(line.get("kind")), channel, cause]
        count.lines += 1
        count.chats.add(chat)
        kept = ("timestamp", "level", "kind", "requestId", "chatKey")
        count.last.append(
            {name: line[name] for name in kept if line.get(name)}
            | {name: str(said)[: MAX_WORDS + 1] for name, said in words.items() if said}
        )


def _joined(counts: Sequence[_Count]) -> Cause:
    chats = set[str]().union(*(one.chats for one in counts)) - {""}
    lines = sorted(
        (line for one in counts for line in one.last),
        key=lambda line: str(line.get("timestamp")),
        reverse=True,
    )
    return Cause(sum(one.lines for one in counts), len(chats), lines[:LAST])


def _has(cause: Cause, words: str) -> bool:
    told = text.folded(
        "\n".join(str(cause.last.get(name, "")) for name in ("kind", "message", "error", "cause"))
    )
    return all(word in told for word in text.folded(words).split())
