"""Truncates unfinished Markdown so that it renders correctly: code and tables are cut at whole lines, and other
text is cut before the first mark that is still open. An open mark is held back until its block ends.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from bot import text

LONGEST_ROW = 400
"""Max characters of a line with `|` that is held back because it may be the header row of a table."""
LONGEST = 4_000
"""Max characters of a block that are searched for open marks. Marks in a longer block are shown as they are."""
MOST_MARKS = 100  # max marks at the end of a block that are held back
PASSES = 12  # max passes over a text; each pass holds back more of it

_FENCE = re.compile(r"^([ \t>]*)((?:[-+*]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*", re.MULTILINE)
_MARKS_ALONE = re.compile(r"[>\-+*#=_~`|: \t]*(?:\[[ xX]?\]?)?|[> \t]*\d{1,9}[.)]?")
"""Pattern of a last line of marks that could still become any construct."""
_BLOCK = re.compile(r"\n(?=[ \t>]*(?:\n|[-+*][ \t]|\d{1,9}[.)][ \t]|#))")
"""Pattern of the line break before a blank line, a list item or a heading. No mark spans such a line break."""
_DELIMITER = re.compile(r":?-+:?")
_MARK = re.compile(r"[*_~`!\[<\\&]|\b(?:https?|tg|mailto):")
_CLOSED = re.compile(
    r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)"  # code
    r"|\\[!-/:-@\[-`{-~]"  # an escaped mark
    r"|(?<=\s)[*_~]+(?=\s)|(?<=[^\W_])_+(?=[^\W_])|(?<!~)~(?=[^~])"  # marks that are plain characters
    r"|^[ \t>]*[-+*] (?:\[[ xX]\] )?"  # a list item
)
_LINK = re.compile(r"!?\[[^\[\]]*\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?: \"[^\"]*\")?\)|(?=[^(\[]))")
_ANGLED = re.compile(r"<[^<>\s]*(?:\|[^<>\n]*)?>|<(?=\s)")
_OPEN = re.compile(
    r"[`\[<]|(?:!|\\|(?<!\S)[*_~]+)$"
    r"|&[#\w]{0,31}$"  # an entity
    r"|(?:https?|tg|mailto):\S*$"  # a bare URL: half of a URL leads elsewhere
)


@dataclass(frozen=True, slots=True)
class RenderablePrefix:
    """The part of an unfinished text that can be shown (`words`). `closing` closes a code block, and ends
    the line if nothing may follow on that line. The first `sure` characters are final. Append-only
    displays may show these final characters.
    """

    words: str
    closing: str = ""
    sure: int = 0

    @property
    def closed(self) -> str:
        return self.words + self.closing


def beginning(written: str) -> RenderablePrefix:
    """Return the part of an unfinished text that can be shown."""
    end = len(written)
    for _ in range(PASSES):
        if not written[:end].strip():
            break
        opened = _open_fence(written[:end])
        held = _code(written[:end], *opened) if opened is not None else _prose(written[:end])
        if isinstance(held, RenderablePrefix):
            return held
        end = held
    return RenderablePrefix("")


def _open_fence(written: str) -> tuple[int, str, str] | None:
    """Return the start of the code block that is open at the end of the text, and the fence that closes it."""
    opened: tuple[int, str, str] | None = None
    for found in _FENCE.finditer(written):
        mark = found[3]
        if opened is None:
            opened = (found.start(), mark, found[1] + " " * len(found[2] or ""))
        elif mark.startswith(opened[1]) and found[0].strip(" \t>") == mark:
            opened = None
    return opened


def _code(written: str, start: int, mark: str, before: str) -> RenderablePrefix | int:
    """Return the whole lines of an open code block, or the position from which the text is held back."""
    head, _, body = written[start:].partition("\n")
    last = body[body.rfind("\n") + 1 :].strip(" \t>")
    if last and set(last) == {mark[0]}:
        body = body[: body.rfind("\n") + 1]  # the last line may be the closing fence
    body = body.rstrip()
    if not body.strip(" \t>\n"):
        return start
    words = written[: start + len(head) + 1] + body
    whole = words.rfind("\n") + 1  # a fence without a following line is no code block yet
    sure = whole if whole > start + len(head) + 1 else start
    return RenderablePrefix(words, f"\n{before}{mark}\n", sure)


def _prose(written: str) -> RenderablePrefix | int:
    """Return the text up to the first open mark, or the position from which the text is held back."""
    shown = written.rstrip()
    line = shown.rfind("\n") + 1
    if _FENCE.match(shown, line):
        return RenderablePrefix(shown, "\n", len(shown))  # the code block is closed
    if _MARKS_ALONE.fullmatch(shown, line):
        return line
    start = max((found.end() for found in _BLOCK.finditer(shown)), default=0)
    ended = len(shown) < len(written)
    rows = shown[start:].split("\n")
    if any("|" in above and _delimits(row) for above, row in itertools.pairwise(rows)):
        return RenderablePrefix(shown, "\n\n", len(shown)) if written[len(shown) :].startswith("\n") else line
    if "|" in _CLOSED.sub("", _ANGLED.sub("", rows[-1])) and len(rows[-1]) <= LONGEST_ROW:
        return line
    end = start + _end(shown[start:], ended=ended)
    return RenderablePrefix(shown, "", len(shown)) if end == len(shown) else end


def _delimits(row: str) -> bool:
    cells = row.lstrip(" \t>").rstrip(" \t").removeprefix("|").removesuffix("|").split("|")
    return all(_DELIMITER.fullmatch(cell.strip(" \t")) for cell in cells)


def _end(block: str, *, ended: bool) -> int:
    """Return the length of the part of a block before its first open mark. `ended`: a space follows the block."""
    if len(block) > LONGEST or _is_closed(f"{block} " if ended else block):
        return len(block)
    marks = [found.start() for found in _MARK.finditer(block)][-MOST_MARKS:]
    return next((end for end in reversed(marks) if _is_closed(block[:end])), 0)


def _is_closed(words: str) -> bool:
    left = _ANGLED.sub("x", _CLOSED.sub("x", words))
    while (shorter := _LINK.sub("x", left)) != left:
        left = shorter
    strong, single = left.count("**") + left.count("__"), left.replace("**", "").replace("__", "")
    paired = not strong % 2 and not left.count("~~") % 2
    return paired and not single.count("*") % 2 and not single.count("_") % 2 and _OPEN.search(left) is None


def has_begun(written: str, shown: RenderablePrefix) -> bool:
    """Return True if the shown part contains a complete sentence or line."""
    return "\n" in shown.words.strip() or text.has_sentence(written, len(shown.words) + 1)
