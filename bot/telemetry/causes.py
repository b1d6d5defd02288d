"""Counts errors and warnings of the operator's log by cause, on request; the counts stay in memory."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from bot.contracts.environment import Disk
from bot.telemetry.log_reader import LEVELS, LineFilter, LogReader
from bot.telemetry.usage import details_of

Level = Literal["error", "warn"]
MAX_WORDS = 400
"""Max characters that are kept of a message."""
MAX_COUNTS = 20_000
"""Max counts, one for each cause and hour; the oldest are removed first."""
_VARIABLE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*")
"""Ids and numbers, which differ between lines of one cause."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """Lines of one cause: their number, the number of their chats, and the newest line."""

    count: int
    chats: int
    last: Line


class Counted:
    """The lines of one cause within an hour."""

    def __init__(self) -> None:
        self.count = 0
        self.chats = set[str]()
        self.last: Line = {}

    def take(self, line: Line) -> None:
        self.count += 1
        self.chats.add(str(line.get("chatKey") or ""))
        self.last = line


class CauseCounts:
    """Counts the lines of the log; each further call reads only new lines. Thread-safe."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._reader = LogReader(folder, disk, LineFilter(level=LEVELS["warn"]))
        self._found: dict[tuple[str, str, str, str], Counted] = defaultdict(Counted)
        self._lock = threading.Lock()

    def newest(
        self, level: Level, since: float, *, offset: int, limit: int
    ) -> tuple[list[Cause], int] | None:
        """Return the causes of at least a level since the hour of `since`, newest first, and their total number. None while another call
        is counting. Blocking.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._catch_up()
            return self._newest(level, since, offset, limit)
        finally:
            self._lock.release()

    def _catch_up(self) -> None:
        for _, line in self._reader.lines():
            found = details_of(line)
            told = str(found.get("error") or found.get("cause") or line.get("message"))
            cause = _VARIABLE.sub("#", told[: 2 * MAX_WORDS])[:MAX_WORDS]
            hour = str(line.get("timestamp"))[:13]
            self._found[hour, str(line.get("level")), str(line.get("kind")), cause].take(_shortened(line))
        if len(self._found) > MAX_COUNTS:
            for key in sorted(self._found)[:-MAX_COUNTS]:
                del self._found[key]

    def _newest(self, level: Level, since: float, offset: int, limit: int) -> tuple[list[Cause], int]:
        groups: dict[tuple[str, ...], list[Counted]] = defaultdict(list)
        for (hour, of, *cause), counted in self._found.items():
            if _begin(hour) > since - 3_600 and (of == "error" or level == "warn"):
                groups[of, *cause].append(counted)
        found = list[Cause]()
        for several in groups.values():
            chats = set[str]().union(*(one.chats for one in several)) - {""}
            last = max((one.last for one in several), key=lambda line: str(line.get("timestamp")))
            found.append(Cause(sum(one.count for one in several), len(chats), last))
        found.sort(key=lambda one: str(one.last.get("timestamp")), reverse=True)
        return found[offset : offset + limit], len(found)


def _begin(hour: str) -> float:
    try:
        return datetime.fromisoformat(f"{hour}:00:00+00:00").timestamp()
    except ValueError:
        return 0.0


def _shortened(line: Line) -> Line:
    """The parts of a line that are shown."""
    found = details_of(line)
    kept = {
        name: line.get(name)
        for name in ("timestamp", "level", "kind", "requestId", "chatKey")
        if line.get(name)
    }
    words = {"message": line.get("message"), "error": found.get("error"), "cause": found.get("cause")}
    return kept | {name: str(said)[: MAX_WORDS + 1] for name, said in words.items() if said}
