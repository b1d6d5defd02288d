"""Cuts unfinished Markdown so that the beginning renders correctly. Code blocks and tables are cut at whole lines. Other
text is cut before its first unclosed mark, such as `**`, until the mark is closed or its block ends.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from bot import text

LONGEST_ROW = 400
"""Max characters of a last line with `|` that is held back, because the line may be the header row of a table."""
LONGEST = 4_000
"""Max characters of a block that is searched for unclosed marks. A longer block is shown with its unclosed marks."""
MOST_MARKS = 100  # max marks at which a cut is tried, counted from the end of a block
PASSES = 12  # max passes over a text; each pass cuts the text shorter

_FENCE = re.compile(r"^([ \t>]*)((?:[-+*]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*", re.MULTILINE)
_MARKS_ALONE = re.compile(r"[>\-+*#=_~`|: \t]*(?:\[[ xX]?\]?)?|[> \t]*\d{1,9}[.)]?")
"""Pattern of a last line that has only marks. The next characters decide which Markdown construct the line becomes."""
_BLOCK = re.compile(r"\n(?=[ \t>]*(?:\n|[-+*][ \t]|\d{1,9}[.)][ \t]|#))")
"""Pattern of the line break before a blank line, list item or heading. No mark continues after such a line break."""
_DELIMITER = re.compile(r":?-+:?")
_MARK = re.compile(r"[*_~`!\[<\\&]|\b(?:https?|tg|mailto):")
_CLOSED = re.compile(
    r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)"  # inline code
    r"|\\[!-/:-@\[-`{-~]"  # an escaped mark
    r"|(?<=\s)[*_~]+(?=\s)|(?<=[^\W_])_+(?=[^\W_])|(?<!~)~(?=[^~])"  # marks that Markdown shows as plain characters
    r"|^[ \t>]*[-+*] (?:\[[ xX]\] )?"  # the bullet of a list item
)
_LINK = re.compile(r"!?\[[^\[\]]*\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?: \"[^\"]*\")?\)|(?=[^(\[]))")
_ANGLED = re.compile(r"<[^<>\s]*(?:\|[^<>\n]*)?>|<(?=\s)")
_OPEN = re.compile(
    r"[`\[<]|(?:!|\\|(?<!\S)[*_~]+)$"
    r"|&[#\w]{0,31}$"  # an HTML entity
    r"|(?:https?|tg|mailto):\S*$"  # a bare URL, because a link to half of a URL would lead elsewhere
)


@dataclass(frozen=True, slots=True)
class RenderablePrefix:
    """The beginning of an unfinished text that can be shown now (`words`). `closing` closes an open code block, or ends a
    line after which no text may follow. The first `sure` characters of `words` never change, so append-only displays may
    show them.
    """

    words: str
    closing: str = ""
    sure: int = 0


def beginning(written: str) -> RenderablePrefix:
    """Return the longest beginning of an unfinished text that renders correctly."""
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
    """Return the code block that is open at the end of the text: its offset, its fence, and the indentation before the fence."""
    opened: tuple[int, str, str] | None = None
    for found in _FENCE.finditer(written):
        mark = found[3]
        if opened is None:
            opened = (found.start(), mark, found[1] + " " * len(found[2] or ""))
        elif mark.startswith(opened[1]) and found[0].strip(" \t>") == mark:
            opened = None
    return opened


def _code(written: str, start: int, mark: str, before: str) -> RenderablePrefix | int:
    """Return the complete lines of an open code block; if it has no complete line, the offset at which to cut the text."""
    head, _, body = written[start:].partition("\n")
    last = body[body.rfind("\n") + 1 :].strip(" \t>")
    if last and set(last) == {mark[0]}:
        body = body[: body.rfind("\n") + 1]  # the last line may be the closing fence
    body = body.rstrip()
    if not body.strip(" \t>\n"):
        return start
    words = written[: start + len(head) + 1] + body
    whole = words.rfind("\n") + 1  # a fence without a complete line after it may still change
    sure = whole if whole > start + len(head) + 1 else start
    return RenderablePrefix(words, f"\n{before}{mark}\n", sure)


def _prose(written: str) -> RenderablePrefix | int:
    """Return the text if it has no unclosed mark at its end; otherwise the offset at which to cut the text."""
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
    """Return True if the shown beginning contains a complete sentence or line."""
    return "\n" in shown.words.strip() or text.has_sentence(written, len(shown.words) + 1)
