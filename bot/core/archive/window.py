"""Collects the lines of a chat that a query asks for, from the newest to the oldest, up to its limit.

Applies edits and removals while the archive is read: an edit replaces what it changes, a removal hides it.

Nothing in the archive is ever changed for that; lines are added. An edit is a line with `meta.edited`, of the same
message and role as the one before it. A removal is a line of role `system` with `meta.deleted`, whose `messageId` is
that of the message that is gone. Readers leave out what does not count any more, in whatever order the lines stand.
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
from bot.core import jsonl

_MARKS = (b'"edited":', b'"deleted":')


@dataclass(slots=True)
class Revisions:
    """The removals in the lines of a chat, by the id of the message, and the newest edit of each message."""

    removed: dict[str, ArchiveLine] = field(default_factory=dict)
    edits: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def note(self, line: ArchiveLine) -> None:
        """Take in one line more."""
        if line.message_id is None:
            return
        if is_removal(line):
            self.removed.setdefault(line.message_id, line)
        elif is_edit(line):
            key = (line.message_id, line.role)
            self.edits[key] = max(self.edits.get(key, (0, "")), moment_of(line))

    def join(self, other: Revisions) -> None:
        """Take in the lines of another file of the chat."""
        self.removed = other.removed | self.removed
        for key, moment in other.edits.items():
            self.edits[key] = max(self.edits.get(key, (0, "")), moment)

    def shows(self, line: ArchiveLine) -> bool:
        """True if a line still counts."""
        if line.message_id is None:
            return True
        if line.message_id in self.removed:
            return False
        newest = self.edits.get((line.message_id, line.role))
        return newest is None or (is_edit(line) and moment_of(line) == newest)


def may_revise(raw: bytes) -> bool:
    """True if bytes may hold an edit or a removal: most do not, and need not be read for that."""
    return any(mark in raw for mark in _MARKS)


def revisions(lines: Iterable[ArchiveLine | None]) -> Revisions:
    """Collect the revisions in the lines of one chat."""
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
    """Of two edits in one moment the one that came in later is the newer."""
    return line.ts, line.request_id


_IDS = ("chatId", "userId", "messageId")
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999  # milliseconds of the years 1 to 9999


def read_line(raw: bytes) -> ArchiveLine | None:
    """One line of the archive, ours or somebody else's; None where it cannot be read, or has a time that no calendar
    has, as where somebody wrote microseconds.
    """
    line = _read(raw)
    return line if line is not None and is_dated(line) else None


def is_dated(line: ArchiveLine) -> bool:
    """True if a line has a time that a calendar has."""
    return _FIRST <= line.ts <= _LAST


def _read(raw: bytes) -> ArchiveLine | None:
    try:
        return ArchiveLine.model_validate_json(raw)
    except ValidationError:
        pass
    value = jsonl.loads(raw)
    if value is None:
        return None
    for key in _IDS:  # others write ids as numbers
        if isinstance(value.get(key), int):
            value[key] = str(value[key])
    value.setdefault("chatId", "")
    try:
        value.setdefault("channel", ChatKey.parse(str(value.get("chatKey"))).channel)
    except errors.IdentityInvalid:
        # A key of another grammar: the channel and its id tell the chat.
        value["chatKey"] = f"{value.get('channel')}:chat:{value['chatId']}"
    try:
        # Escaped lone surrogates are JSON, but no text that may go any further.
        return ArchiveLine.model_validate_json(text.clean(json.dumps(value, ensure_ascii=False)))
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class LineRange:
    """Times (ms) of a file's readable lines (none: `first > last`), and the number of unreadable ones."""

    first: int
    last: int
    unreadable: int


class Window:
    """Collects the page that a query asks for while it is shown the files of a chat, newest first."""

    def __init__(self, query: HistoryQuery, revisions: Revisions | None = None) -> None:
        self._query = query
        self._revisions = revisions
        self._keyword = query.keyword.casefold() if query.keyword else ""
        # In the JSON of a line it stands as it is.
        self._stands = (
            self._keyword if self._keyword.isprintable() and not {'"', "\\"} & {*self._keyword} else ""
        )
        self._found: list[ArchiveLine] = []
        self._total = 0
        self._unreadable = 0
        self._stopped = False

    @property
    def full(self) -> bool:
        """True if older lines say nothing more: they need not be counted."""
        return not self._query.counted and self.filled

    def scan(self, raws: Iterable[bytes]) -> LineRange | None:
        """Take in the lines of a file, newest first; what it holds, where it was read to its beginning."""
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
                # Where text is looked for, the rest of a file is read for the count of what has it.
                if self.full and not self._keyword:
                    self._unreadable += unreadable
                    self.stop()
                    return None
        self._unreadable += unreadable
        return None if passed else LineRange(first, last, unreadable)

    def _passes(self, raw: bytes) -> bool:
        """True of a line that surely has not the text that is looked for: it need not be read."""
        return (
            bool(self._stands)
            and b"\\u" not in raw
            and self._stands not in raw.decode(errors="replace").casefold()
        )

    @property
    def filled(self) -> bool:
        """True if older lines are only counted."""
        return self._total >= self._query.offset + self._query.limit

    def passes(self, span: LineRange) -> bool:
        """True if a file can be left out because nothing in it is of the time that is asked for."""
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
        """Not everything is looked at."""
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
