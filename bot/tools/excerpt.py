"""Shortens results that are too large for the model: head, tail, and a pointer to the whole.

Sizes are counted in weight, a rough measure of tokens that needs nothing but the text. All of it is pure: the same
text, room and artifact give the same bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot import text
from bot.contracts.tools import Omission

READER = "read_artifact"
"""The tool that reads what was put away."""
TOKEN = 33
"""Weight of one token: 3.3 ASCII characters, one CJK character, and in between for other scripts."""
ROOM = 2_500 * TOKEN
"""Weight of one result in the view at the most."""
_ASCII, _OTHER, _WIDE = 10, 20, TOKEN
_NARROW_BYTES, _WIDE_BYTES = bytes(range(0x80)), bytes(range(0xE3, 0xF5))
_FIRST_WIDE = re.compile(rb"\xe2[\xba-\xbf]")
"""The characters from U+2E80 on, where the wide ones begin, whose first byte others have too."""
_HEAD = 0.6
"""The part of the room that the head gets."""


def weight(words: str) -> int:
    """The weight of a text."""
    if words.isascii():
        return len(words) * _ASCII
    # By the first byte of each character in UTF-8: several times as fast as a look at the characters.
    data = words.encode("utf-8", "surrogatepass")
    narrow = len(data) - len(data.translate(None, _NARROW_BYTES))
    wide = len(data) - len(data.translate(None, _WIDE_BYTES)) + len(_FIRST_WIDE.findall(data))
    return narrow * _ASCII + (len(words) - narrow - wide) * _OTHER + wide * _WIDE


def over(words: str, room: int) -> bool:
    """True if a text weighs more than `room`; quick for texts of any size."""
    return len(words) * _ASCII > room or weight(words) > room


def fitting(words: str, room: int) -> int:
    """Return how many characters of the beginning of a text weigh `room` at the most."""
    return _count(words[: max(0, room) // _ASCII], room)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Head and tail of a text, and how many characters and line ends stood between. `artifact` is None where the
    whole could not be kept.
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
        """The text that stands for the whole, and what is not in it where that is kept."""
        content = str(self)
        if self.artifact is None:
            return content, None
        end = len(content) - len(self.tail)
        return content, Omission(self.artifact, self.lines, self.characters, len(self.head), end)

    def within(self, room: int) -> Excerpt:
        """The same with less of head and tail, so that it weighs `room`; where that is too little even for the note,
        the note alone.
        """
        excess = weight(str(self)) - room
        if excess <= 0:
            return self
        # The note may grow: each number by as many digits as what is left out now can add.
        rest = weight(self.head) + weight(self.tail) - excess - 12 * _ASCII
        return _cut(self.head, self.tail, rest, self)


def excerpt(words: str, room: int, artifact: str | None) -> Excerpt:
    """A text as head, note and tail, weighing `room` at the most (or the note alone)."""
    most = max(1, room // _ASCII)
    if len(words) <= 2 * most:
        half = text.border(words, len(words) // 2)
        return Excerpt(words[:half], words[half:], 0, 0, artifact).within(room)
    begin, end = text.border(words, most), text.border_after(words, len(words) - most)
    whole = Excerpt(words[:begin], words[end:], words.count("\n", begin, end), end - begin, artifact)
    return whole.within(room)


def shown_by(content: str, left_out: Omission | None) -> Excerpt | None:
    """Return the excerpt that a text shows; None if it shows the whole."""
    if left_out is None:
        return None
    head, tail = content[: left_out.begin], content[left_out.end :]
    return Excerpt(head, tail, left_out.lines, left_out.characters, left_out.artifact)


def _cut(head: str, tail: str, rest: int, old: Excerpt) -> Excerpt:
    """Head and tail cut until they weigh `rest` together."""
    first = text.border(head, fitting(head, int(rest * _HEAD)))
    behind = _count(tail[-max(1, max(0, rest) // _ASCII) :][::-1], rest - weight(head[:first]))
    last = text.border_after(tail, len(tail) - behind)
    gone = head[first:] + tail[:last]
    return Excerpt(
        head[:first], tail[last:], old.lines + gone.count("\n"), old.characters + len(gone), old.artifact
    )


def _count(words: str, room: int) -> int:
    """The number of leading characters that fit into `room`."""
    fit, end = 0, len(words)
    while fit < end:
        middle = (fit + end + 1) // 2
        more = weight(words[fit:middle])
        if more <= room:
            fit, room = middle, room - more
        else:
            end = middle - 1
    return fit
