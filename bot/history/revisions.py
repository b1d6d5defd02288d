"""Applies edits and removals while the archive is read: an edit replaces what it changes, a removal hides it.

Nothing in the archive is ever changed for that; lines are added. An edit is a line with `meta.edited`, of the same
message and role as the one before it. A removal is a line of role `system` with `meta.deleted`, whose `messageId` is
that of the message that is gone. Readers leave out what does not count any more, in whatever order the lines stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bot.contracts.archive import ArchiveLine

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
    return line.ts, str((line.meta or {}).get("requestId") or "")
