"""Collects the archive lines that a history query asks for, newest first, up to the query's limit.

Edits and removals are applied while reading: an edit replaces a line, a removal hides a line. The files
themselves are append-only. An edit is a line with `meta.edited` and the same message id and role as the
original. A removal is a `system` line with `meta.deleted` and the `messageId` of the removed message. The
order of lines does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from bot import errors, text
from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.storage import jsonl

_MARKS = (b'"edited":', b'"deleted":')


@dataclass(slots=True)
class Revisions:
    """Removed message ids of a chat, and the newest edit of each message."""

    removed: dict[str, ArchiveLine] = field(default_factory=dict)
    edits: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def note(self, line: ArchiveLine) -> None:
        """Record an archive line, provided that the line is an edit or a removal."""
        if line.message_id is None:
            return
        if is_removal(line):
            self.removed.setdefault(line.message_id, line)
        elif is_edit(line):
            key = (line.message_id, line.role)
            self.edits[key] = max(self.edits.get(key, (0, "")), moment_of(line))

    def join(self, other: Revisions) -> None:
        """Add the edits and removals of another file of the same chat."""
        self.removed = other.removed | self.removed
        for key, moment in other.edits.items():
            self.edits[key] = max(self.edits.get(key, (0, "")), moment)

    def shows(self, line: ArchiveLine) -> bool:
        """Return True if no removal hides the line and no newer edit replaces it."""
        if line.message_id is None:
            return True
        if line.message_id in self.removed:
            return False
        newest = self.edits.get((line.message_id, line.role))
        return newest is None or (is_edit(line) and moment_of(line) == newest)


def may_revise(raw: bytes) -> bool:
    """Return False for raw bytes that cannot be an edit or a removal and thus need no parsing."""
    return any(mark in raw for mark in _MARKS)


def revisions(lines: Iterable[ArchiveLine | None]) -> Revisions:
    """Return the edits and removals among the archive lines of one chat."""
    found = Revisions()
    for line in lines:
        if line is not None:
            found.note(line)
    return found


def is_removal(line: ArchiveLine) -> bool:
    return line.role == "system" and (line.meta or {}).get("deleted") is True


def is_edit(line: ArchiveLine) -> bool:
    return (line.meta or {}).get("edited") is True


def moment_of(line: ArchiveLine) -> tuple[int, str]:
    """Return the sort key of an edit: its time, then its order of arrival."""
    return line.ts, line.request_id


_IDS = ("chatId", "userId", "messageId")
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999  # epoch ms of the years 1 to 9999


def read_line(raw: bytes) -> ArchiveLine | None:
    """Parse one archive line, written by this or another program. Returns None if the line is malformed or
    its time is beyond the calendar's range (e.g. in microseconds).
    """
    line = _read(raw)
    return line if line is not None and is_dated(line) else None


def is_dated(line: ArchiveLine) -> bool:
    """Return True if the archive line's time is within the calendar's range."""
    return _FIRST <= line.ts <= _LAST


def _read(raw: bytes) -> ArchiveLine | None:
    try:
        return ArchiveLine.model_validate_json(raw)
    except ValidationError:
        pass
    value = jsonl.loads(raw)
    if value is None:
        return None
    for key in _IDS:  # other programs write ids as numbers
        if isinstance(value.get(key), int):
            value[key] = str(value[key])
    value.setdefault("chatId", "")
    try:
        value.setdefault("channel", ChatKey.parse(str(value.get("chatKey"))).channel)
    except errors.IdentityInvalid:
        # The chatKey has another format, so channel and chat id identify the chat.
        value["chatKey"] = f"{value.get('channel')}:chat:{value['chatId']}"
    try:
        # Escaped lone surrogates are valid JSON but not valid text.
        return ArchiveLine.model_validate_json(text.clean(json.dumps(value, ensure_ascii=False)))
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class LineRange:
    """Time range (epoch ms) of a file's readable lines and the number of unreadable lines. `first > last` if
    no line is readable.
    """

    first: int
    last: int
    unreadable: int


class Window:
    """Collects one page of a query from a chat's files, which are scanned newest first."""

    def __init__(self, query: HistoryQuery, revisions: Revisions | None = None) -> None:
        self._query = query
        self._revisions = revisions
        self._keyword = query.keyword.casefold() if query.keyword else ""
        # Searched text in the form in which it appears in raw JSON; "" if JSON may escape it.
        self._stands = (
            self._keyword if self._keyword.isprintable() and not {'"', "\\"} & {*self._keyword} else ""
        )
        self._found: list[ArchiveLine] = []
        self._total = 0
        self._unreadable = 0
        self._stopped = False

    @property
    def full(self) -> bool:
        """Return True if older lines can change neither the page nor the number of matches."""
        return not self._query.counted and self.filled

    def scan(self, raws: Iterable[bytes]) -> LineRange | None:
        """Scan a file's lines, newest first. Returns the file's time range, or None if any line was skipped
        or not reached.
        """
        first, last, unreadable, passed = 1, 0, 0, False
        for raw in raws:
            if not raw.strip():
                continue
            if self._passes(raw):
                passed = True
                continue
            line = read_line(raw)
            if line is None:
                unreadable += 1
                continue
            if first > last:
                first = last = line.ts
            first, last = min(first, line.ts), max(last, line.ts)
            if self._matches(line):
                self._take(line)
                # A text search reads the rest of the file to count matches.
                if self.full and not self._keyword:
                    self._unreadable += unreadable
                    self.stop()
                    return None
        self._unreadable += unreadable
        return None if passed else LineRange(first, last, unreadable)

    def _passes(self, raw: bytes) -> bool:
        """Return True if a raw line cannot contain the searched text and thus needs no parsing."""
        return (
            bool(self._stands)
            and b"\\u" not in raw
            and self._stands not in raw.decode(errors="replace").casefold()
        )

    @property
    def filled(self) -> bool:
        """Return True if the page is full. Older lines are then only counted."""
        return self._total >= self._query.offset + self._query.limit

    def passes(self, span: LineRange) -> bool:
        """Return True if a file is outside the time range of the query, so that it need not be read."""
        query = self._query
        outside = (
            span.first > span.last
            or (query.before is not None and span.first >= query.before)
            or (query.after is not None and span.last < query.after)
        )
        if outside:
            self._unreadable += span.unreadable
        return outside

    def stop(self) -> None:
        """End the scan early; the number of matches is then incomplete."""
        self._stopped = True

    def page(self) -> HistoryPage:
        return HistoryPage(self._found[::-1], self._total, self._unreadable, counted=not self._stopped)

    def _take(self, line: ArchiveLine) -> None:
        if self._query.offset <= self._total < self._query.offset + self._query.limit:
            self._found.append(line)
        self._total += 1

    def _matches(self, line: ArchiveLine) -> bool:
        query: Any = self._query
        if line.role not in ({query.role} if query.role else {"user", "assistant"}):
            return False
        if query.before is not None and line.ts >= query.before:
            return False
        if query.after is not None and line.ts < query.after:
            return False
        if self._keyword and self._keyword not in line.text.casefold():
            return False
        if self._revisions is not None and not self._revisions.shows(line):
            return False
        return query.skip is None or not query.skip(line)
