"""Shortens large tool results to their beginning, their end, and a note that names the artifact with the whole result.
Sizes are token estimates, computed from the text alone in units of 1/33 token (see `TOKEN`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot import text
from bot.contracts.tools import Omission

READER = "read_artifact"
"""Name of the tool that reads artifacts."""
TOKEN = 33
"""Units per token of a token estimate. A token is estimated as 3.3 ASCII characters or as one CJK character. Other
scripts lie between.
"""
ROOM = 2_500 * TOKEN
"""Max token estimate of one tool result in the model's context (2,500 tokens)."""
_ASCII, _OTHER, _WIDE = 10, 20, TOKEN
_NARROW_BYTES, _WIDE_BYTES = bytes(range(0x80)), bytes(range(0xE3, 0xF5))
_FIRST_WIDE = re.compile(rb"\xe2[\xba-\xbf]")
"""Pattern of the first two UTF-8 bytes of those wide characters (from U+2E80) that begin with the byte E2."""
_HEAD = 0.6
"""Share of the available size for the beginning of a text."""


def weight(words: str) -> int:
    """Return the token estimate of a text, in units of 1/33 token."""
    if words.isascii():
        return len(words) * _ASCII
    # Counting the first bytes of UTF-8 sequences is several times faster than examining characters.
    data = words.encode("utf-8", "surrogatepass")
    narrow = len(data) - len(data.translate(None, _NARROW_BYTES))
    wide = len(data) - len(data.translate(None, _WIDE_BYTES)) + len(_FIRST_WIDE.findall(data))
    return narrow * _ASCII + (len(words) - narrow - wide) * _OTHER + wide * _WIDE


def fitting(words: str, room: int) -> int:
    """Return the number of leading characters of a text whose token estimate is at most `room`."""
    fit, end = 0, min(len(words), max(0, room) // _ASCII)
    while fit < end:
        middle = (fit + end + 1) // 2
        more = weight(words[fit:middle])
        if more <= room:
            fit, room = middle, room - more
        else:
            end = middle - 1
    return fit


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Beginning and end of a text, and the number of omitted characters and line ends. `artifact` is None if the whole
    text was not stored.
    """

    head: str
    tail: str
    lines: int
    characters: int
    artifact: str | None

    def __str__(self) -> str:
        where = (
            f"whole result: artifact {self.artifact}, read it with {READER}"
            if self.artifact is not None
            else "they are lost, the whole result could not be kept"
        )
        note = f"[… {self.lines} lines, {self.characters} characters omitted; {where}]"
        return "\n".join(part for part in (self.head, note, self.tail) if part)

    @property
    def shown(self) -> tuple[str, Omission | None]:
        """Return the shortened text and a record of the omission. The record is None if no artifact exists."""
        content = str(self)
        if self.artifact is None:
            return content, None
        end = len(content) - len(self.tail)
        return content, Omission(self.artifact, self.lines, self.characters, len(self.head), end)

    def within(self, room: int) -> Excerpt:
        """Shorten the beginning and the end until the token estimate of the excerpt is at most `room`. The
        note about the omission is never shortened.
        """
        excess = weight(str(self)) - room
        if excess <= 0:
            return self
        # The two numbers in the note may become longer.
        rest = weight(self.head) + weight(self.tail) - excess - 12 * _ASCII
        first = text.border(self.head, fitting(self.head, int(rest * _HEAD)))
        backwards = self.tail[-max(1, max(0, rest) // _ASCII) :][::-1]
        behind = fitting(backwards, rest - weight(self.head[:first]))
        last = text.border_after(self.tail, len(self.tail) - behind)
        gone = self.head[first:] + self.tail[:last]
        lines, characters = self.lines + gone.count("\n"), self.characters + len(gone)
        return Excerpt(self.head[:first], self.tail[last:], lines, characters, self.artifact)


def excerpt(words: str, room: int, artifact: str | None) -> Excerpt:
    """Shorten a text to its beginning, a note and its end, with a token estimate of at most `room` in total.
    The note is never shortened.
    """
    most = max(1, room // _ASCII)
    if len(words) <= 2 * most:
        half = text.border(words, len(words) // 2)
        return Excerpt(words[:half], words[half:], 0, 0, artifact).within(room)
    begin, end = text.border(words, most), text.border_after(words, len(words) - most)
    whole = Excerpt(words[:begin], words[end:], words.count("\n", begin, end), end - begin, artifact)
    return whole.within(room)


def shown_by(content: str, left_out: Omission | None) -> Excerpt | None:
    """Return the excerpt that a shortened text consists of; None if the text is not shortened."""
    if left_out is None:
        return None
    head, tail = content[: left_out.begin], content[left_out.end :]
    return Excerpt(head, tail, left_out.lines, left_out.characters, left_out.artifact)
