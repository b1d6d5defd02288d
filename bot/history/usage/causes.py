"""Counts errors and warnings of the log by cause, in tables of `bot.history.usage.sums`: for as many days as the log is kept."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEVELS = {"error": ("error",), "warn": ("error", "warn")}
"""The levels that are counted, by the least of them."""
NEEDLES = (b'"error"', b'"warn"')
LONGEST = 400
"""Characters that are kept of a line's words."""
TABLE = """CREATE TABLE causes (
    hour INTEGER, level TEXT, kind TEXT, cause TEXT, chat TEXT, count INTEGER NOT NULL, at TEXT NOT NULL, last TEXT NOT NULL,
    PRIMARY KEY (hour, level, kind, cause, chat)
) WITHOUT ROWID"""
_ADD = """INSERT INTO causes VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count,
    last = CASE WHEN excluded.at >= at THEN excluded.last ELSE last END, at = MAX(at, excluded.at)"""
_WHERE = "FROM causes WHERE hour >= :hour AND (level = 'error' OR :warn) GROUP BY level, kind, cause"
_NEWEST = f"""SELECT SUM(count), COUNT(DISTINCT NULLIF(chat, '')), MAX(at), last {_WHERE}
    ORDER BY MAX(at) DESC, level, kind, cause LIMIT :limit OFFSET :offset"""
_VARIABLE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9a-f]{8,}\b|\d+(?:[.,]\d+)*")
"""What differs between two lines of one cause: ids and numbers."""

Line = Mapping[str, Any]
Key = tuple[int, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Cause:
    """Lines of one cause: how many, in how many chats, and the newest of them."""

    count: int
    chats: int
    last: Line


class CauseCounts:
    """Counts of some lines, to be added to the table."""

    def __init__(self) -> None:
        self._found: dict[Key, tuple[int, str, str]] = {}

    def take(self, line: Line, hour: int) -> None:
        """Count a line, if it is of a level that counts. Lines come in order, the oldest first."""
        level = str(line.get("level"))
        if level not in LEVELS:
            return
        kind, cause = _cause(line)
        key = (hour, level, kind, cause, str(line.get("chatKey") or ""))
        count = self._found[key][0] if key in self._found else 0
        self._found[key] = (count + 1, str(line.get("timestamp")), _shortened(line))

    def add_to(self, db: sqlite3.Connection) -> None:
        """Add them, in the transaction that runs."""
        db.executemany(_ADD, ((*key, *counted) for key, counted in self._found.items()))


def are_counted(db: sqlite3.Connection) -> bool:
    """False where an earlier version has left the table out."""
    found = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'causes'")
    return found.fetchone() is not None


def newest(db: sqlite3.Connection, level: str, hour: int, offset: int, limit: int) -> tuple[list[Cause], int]:
    """The causes of a level and above since an hour, the one with the newest line first; and how many there are in all."""
    given = {"hour": hour, "warn": level == "warn", "limit": limit, "offset": offset}
    (total,) = db.execute(f"SELECT COUNT(*) FROM (SELECT 1 {_WHERE})", given).fetchone()  # noqa: S608 - constants
    rows = db.execute(_NEWEST, given).fetchall()
    return [Cause(count, chats, json.loads(last)) for count, chats, _, last in rows], total


def details_of(line: Line) -> dict[str, Any]:
    """The details of a line of the log."""
    details = line.get("details")
    return details if isinstance(details, dict) else {}


def _cause(line: Line) -> tuple[str, str]:
    found = details_of(line)
    told = str(found.get("error") or found.get("cause") or line.get("message"))
    return str(line.get("kind")), _VARIABLE.sub("#", told[: 2 * LONGEST])[:LONGEST]


def _shortened(line: Line) -> str:
    """The words of a line that are shown."""
    found = details_of(line)
    kept = {name: line.get(name) for name in ("timestamp", "level", "kind", "requestId") if line.get(name)}
    words = {"message": line.get("message"), "error": found.get("error"), "cause": found.get("cause")}
    return json.dumps(
        kept | {name: str(said)[: LONGEST + 1] for name, said in words.items() if said}, ensure_ascii=False
    )
