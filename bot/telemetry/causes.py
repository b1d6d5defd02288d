"""Counts the errors and warnings in the operator's log by cause. Counting happens on request, and the counts
are kept in memory.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bot.contracts.environment import Disk
from bot.telemetry.log_reader import LEVELS, LineFilter, LogReader
from bot.telemetry.usage import details_of

Level = Literal["error", "warn"]
MAX_WORDS = 400
"""Max characters of a log message that are kept."""
MAX_COUNTS = 20_000
"""Max number of counts. There is one count for each cause and hour, and the oldest counts are removed first."""
_VARIABLE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*")
"""Ids and numbers, which can differ between log lines with the same cause."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """Log lines with the same cause: the number of lines, the number of affected chats, and the newest line."""

    count: int
    chats: int
    last: Line


@dataclass(slots=True)
class _Count:
    """Number of log lines with one cause in one hour."""

    lines: int = 0
    chats: set[str] = field(default_factory=set)
    last: Line = field(default_factory=dict)


class CauseCounts:
    """Counts the log lines by cause. After the first call, each call reads only the new lines. Thread-safe."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._reader = LogReader(folder, disk, LineFilter(level=LEVELS["warn"]))
        self._counts: dict[tuple[str, str, str, str], _Count] = defaultdict(_Count)
        """Counts by (hour, level, kind, cause)."""
        self._lock = threading.Lock()

    def newest(
        self, level: Level, since: float, *, offset: int, limit: int
    ) -> tuple[list[Cause], int] | None:
        """Return the causes with at least the given level since the hour of `since`, newest first, and the
        total number of causes. Return None while another call is counting. Blocking.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            for _, line in self._reader.lines():
                self._count(line)
            for key in sorted(self._counts)[:-MAX_COUNTS]:
                del self._counts[key]
            first = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H")
            groups: dict[tuple[str, ...], list[_Count]] = defaultdict(list)
            for (hour, severity, *cause), count in self._counts.items():
                if hour >= first and (severity == "error" or level == "warn"):
                    groups[severity, *cause].append(count)
        finally:
            self._lock.release()
        found = list[Cause]()
        for counts in groups.values():
            chats = set[str]().union(*(one.chats for one in counts)) - {""}
            last = max((one.last for one in counts), key=lambda line: str(line.get("timestamp")))
            found.append(Cause(sum(one.lines for one in counts), len(chats), last))
        found.sort(key=lambda one: str(one.last.get("timestamp")), reverse=True)
        return found[offset : offset + limit], len(found)

    def _count(self, line: Line) -> None:
        details = details_of(line)
        words = {"message": line.get("message"), "error": details.get("error"), "cause": details.get("cause")}
        cause = str(words["error"] or words["cause"] or words["message"])
        cause = _VARIABLE.sub("#", cause[: 2 * MAX_WORDS])[:MAX_WORDS]
        hour = str(line.get("timestamp"))[:13]
        count = self._counts[hour, str(line.get("level")), str(line.get("kind")), cause]
        count.lines += 1
        count.chats.add(str(line.get("chatKey") or ""))
        kept = ("timestamp", "level", "kind", "requestId", "chatKey")
        count.last = {name: line[name] for name in kept if line.get(name)} | {
            name: str(said)[: MAX_WORDS + 1] for name, said in words.items() if said
        }
