"""Truncates unfinished Markdown so that it renders correctly: the result contains no half-written construct."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, replace

from bot import text
from bot.core.long_blocks import delimits

LONGEST_LINK = 400
"""Max characters held back after a `[` or in the possible header row of a table."""
LONGEST_URL = 2_000
LONGEST_END = 2_600
"""Max characters held back at the end of the text for other unfinished constructs."""
TRIES = 12
"""Max passes over a text; each pass holds back more of it."""

_FENCE = re.compile(r"^([ \t>]*)((?:[-+*]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*", re.MULTILINE)
_MARKS_ALONE = re.compile(r"[>\-+*#=_~`|: \t]*(?:\[[ xX]?\]?)?|[> \t]*\d{1,9}[.)]?")
"""Pattern of a last line of marks that could still become any construct."""
_BRACKETS = re.compile(r"[()\[\]]")
_NO_CELLS = re.compile(r"`[^`\n]*`|<[^<>\n]*>|\\\|")
_BLOCK = re.compile(r"[ \t>]*(?:[-+*][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t])")
_ITEM = re.compile(r"^[ \t>]*(?:[-+*]|\d{1,9}[.)])[ \t]", re.MULTILINE)
_OPEN_END = re.compile(
    r"(?<!\\)&[#\w]{0,31}$"  # an entity
    r"|<[^\s<>|]{0,2000}$|<https?://[^<>\s|]{1,2000}\|[^<>\n]{0,500}$"  # a URL in angle brackets
    r"|(?:https?|tg|mailto):\S{0,2000}$"  # a bare URL: half of a URL leads elsewhere
    r"|(?<!\S)!$"  # an image
    r"|__[a-z][a-z0-9_]{0,30}$"  # a name
    r"|(?<!\\)(?:\\\\)*\\$",
    re.ASCII | re.IGNORECASE,
)
_EMPHASIS = "*_~"


@dataclass(frozen=True, slots=True)
class RenderablePrefix:
    """The part of an unfinished text that can be shown (`words`). `closing` closes the open marks, and ends
    the line if nothing may follow on that line. The first `sure` characters are final, because no open
    mark precedes them. Append-only displays may show these final characters.
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
    for _ in range(TRIES):
        if not written[:end].strip():
            break
        held = _Tail(written[:end]).read()
        if isinstance(held, RenderablePrefix):
            return _without_bare_marks(held)
        end = held
    return RenderablePrefix("")


def _without_bare_marks(shown: RenderablePrefix) -> RenderablePrefix:
    """Remove a list item or heading at the end that has no text yet."""
    sure = shown.words[: shown.sure].rstrip()
    line = sure.rfind("\n") + 1
    bare = _MARKS_ALONE.fullmatch(sure, line) is not None and _FENCE.match(sure, line) is None
    return replace(shown, sure=line) if bare else shown


class _Tail:
    """One pass over an unfinished text. Only the last block matters, and whether that block is code."""

    def __init__(self, written: str) -> None:
        self._text = written

    def read(self) -> RenderablePrefix | int:
        """Return the part that can be shown, or the position from which the text is held back."""
        opened = self._open_fence()
        if opened is not None:
            return self._code(*opened)
        shown = self._text.rstrip()
        line = shown.rfind("\n") + 1
        if _FENCE.match(shown, line):
            return RenderablePrefix(shown, "\n", sure=len(shown))  # the code block is closed
        if _MARKS_ALONE.fullmatch(shown, line):
            return line
        first = self._paragraph(line)
        held = self._table(first, line, shown)
        if held is not None:
            return held
        return self._inline(self._block(first, line), shown)

    # ------------------------------------------------------------ code

    def _open_fence(self) -> tuple[int, str, str] | None:
        """Return the start of the code block that is open at the end of the text, and the fence that closes it."""
        opened: tuple[int, str, str] | None = None
        for found in _FENCE.finditer(self._text):
            mark = found[3]
            if opened is None:
                before = found[1] + " " * len(found[2] or "")
                opened = (found.start(), mark, before)
            elif mark.startswith(opened[1]) and found[0].strip(" \t>") == mark:
                opened = None
        return opened

    def _code(self, start: int, mark: str, before: str) -> RenderablePrefix | int:
        head, _, body = self._text[start:].partition("\n")
        last = body[body.rfind("\n") + 1 :].strip(" \t>")
        if last and set(last) == {mark[0]}:
            body = body[: body.rfind("\n") + 1]  # the last line may be the closing fence
        body = body.rstrip()
        if not body.strip(" \t>\n"):
            return start
        words = self._text[: start + len(head) + 1] + body
        whole = words.rfind("\n") + 1  # a fence without a following line is no code block yet
        return RenderablePrefix(
            words, f"\n{before}{mark}\n", sure=whole if whole > start + len(head) + 1 else start
        )

    # ------------------------------------------------------------ lines

    def _paragraph(self, line: int) -> int:
        """Return the start of the paragraph whose last line begins at `line`."""
        while line:
            before = self._text.rfind("\n", 0, line - 1) + 1
            if not self._text[before : line - 1].strip(" \t>") or _FENCE.match(self._text, before):
                return line
            line = before
        return line

    def _block(self, first: int, line: int) -> int:
        """Return the start of the last list item, heading or paragraph after line `first`."""
        while line > first:
            before = self._text.rfind("\n", 0, line - 1) + 1
            if _BLOCK.match(self._text, line) or self._text[before:line].lstrip(" \t>").startswith("#"):
                return line
            line = before
        return line

    def _table(self, first: int, line: int, shown: str) -> RenderablePrefix | int | None:
        """Show only the complete rows of a table. A possible header row is held back until the next line
        shows whether it is one.
        """
        lines = shown[first:].split("\n")
        at = first
        for above, row in itertools.pairwise(lines):
            at += len(above) + 1
            if "|" in above and at < line and delimits(row):
                whole = self._text[len(shown) :].startswith("\n")
                return RenderablePrefix(shown, "\n\n", sure=len(shown)) if whole else line
        last = lines[-1]
        if len(lines) > 1 and "|" in lines[-2] and delimits(last):
            whole = self._text[len(shown) :].startswith("\n")
            return RenderablePrefix(shown, "\n\n", sure=len(shown)) if whole else line
        if len(last) <= LONGEST_LINK and "|" in _NO_CELLS.sub("", last):
            return line
        return None

    # ------------------------------------------------------------ inside a block

    def _inline(self, start: int, shown: str) -> RenderablePrefix | int:
        if self._is_indented_code(start):
            return RenderablePrefix(shown, "\n\n", sure=shown.rfind("\n") + 1)
        block = shown[start:]
        trimmed = block.rstrip(_EMPHASIS)
        if len(trimmed) < len(block) and not _escaped(trimmed):
            return start + len(trimmed)
        ended = block if len(shown) == len(self._text) else f"{block} "
        open_end = _OPEN_END.search(ended, max(0, len(ended) - LONGEST_END))
        if open_end is not None and not _in_code(block, open_end.start()):
            return start + open_end.start()
        return _Inline(block).read(shown[:start])

    def _is_indented_code(self, start: int) -> bool:
        if not self._text.startswith(("    ", "\t"), start) or _ITEM.search(self._text, 0, start):
            return False
        return not self._text[: max(0, start - 1)].rpartition("\n")[2].strip(" \t>")


class _Inline:
    """Parses emphasis, code and links at the end of one block by the CommonMark rules."""

    def __init__(self, block: str) -> None:
        self._block = block
        self._open: list[tuple[str, int, int]] = []
        """Marks that may open emphasis: character, count, position."""
        self._opened: Counter[str] = Counter()
        """How often each mark character occurs in `_open`; avoids searches that would find nothing."""
        self._brackets: list[int] = []
        self._ends: dict[int, int] = {}
        """Position of the closing bracket for each opening bracket, computed on first use."""
        self._at = 0

    def read(self, before: str) -> RenderablePrefix | int:
        block = self._block
        while self._at < len(block):
            sign = block[self._at]
            if sign == "\\":
                self._at += 2
            elif sign == "`":
                if (held := self._code(before)) is not None:
                    return held
            elif sign in _EMPHASIS:
                self._emphasis(sign)
            elif sign == "[":
                self._brackets.append(self._at - (self._at > 0 and block[self._at - 1] == "!"))
                self._at += 1
            elif sign == "]":
                if (held := self._link()) is not None:
                    return len(before) + held
            else:
                self._at += 1
        late = [at for at in self._brackets if len(block) - at <= LONGEST_LINK]
        if late:
            return len(before) + late[0]
        return self._closed(before, block, "")

    def _closed(self, before: str, words: str, closing: str) -> RenderablePrefix:
        """Return the text with its open marks closed, the last opened mark first."""
        closing += "".join(sign * count for sign, count, _ in reversed(self._open))
        sure = min((at for _, _, at in self._open), default=len(words))
        return RenderablePrefix(before + words, closing, sure=len(before) + sure)

    def _code(self, before: str) -> RenderablePrefix | int | None:
        block, start = self._block, self._at
        count = _run(block, start)
        at = start + count
        while (at := block.find("`", at)) >= 0:
            if (length := _run(block, at)) == count:
                self._at = at + length
                return None
            at += length
        words = block.rstrip("`").rstrip()
        if len(words) <= start + count:
            return len(before) + start
        closed = self._closed(before, words, "`" * count)
        return RenderablePrefix(closed.words, closed.closing, sure=min(closed.sure, len(before) + start))

    def _emphasis(self, sign: str) -> None:
        block, start = self._block, self._at
        count = _run(block, start)
        self._at += count
        opens, closes = text.emphasis(block, start, self._at)
        if sign == "~" and count != 2:
            return
        while closes and count and self._opened[sign]:
            for place in range(len(self._open) - 1, -1, -1):
                other, many, at = self._open[place]
                if other == sign:
                    used = 2 if sign == "~" or min(many, count) >= 2 else 1
                    count -= used
                    # Marks opened inside and never closed are plain characters.
                    self._opened.subtract(one for one, _, _ in self._open[place:])
                    del self._open[place:]
                    if many > used:
                        self._opens(sign, many - used, at)
                    break
        if opens and count:
            self._opens(sign, count, start)

    def _opens(self, sign: str, count: int, at: int) -> None:
        self._open.append((sign, count, at))
        self._opened[sign] += 1

    def _link(self) -> int | None:
        """Move past a closing bracket; return the start of the link if the link is incomplete."""
        block, start = self._block, self._brackets.pop() if self._brackets else None
        self._at += 1
        if start is None:
            return None
        rest = block[self._at : self._at + 1]
        if not rest:
            return start
        if rest not in {"(", "["}:
            return None
        self._ends = self._ends or _ends(block)
        end = self._ends.get(self._at, len(block))
        longest = min(len(block), self._at + LONGEST_URL)
        if rest == "[" and block.find("\n", self._at, min(end, longest)) >= 0:
            return None
        if end < longest:
            self._at = end + 1
            return None
        return start if len(block) - self._at < LONGEST_URL else None


def _ends(block: str) -> dict[int, int]:
    """Return the position of the closing bracket for each opening bracket, computed in one pass."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for found in _BRACKETS.finditer(block):
        if found[0] in "([":
            opened.append(found.start())
        elif opened:
            ends[opened.pop()] = found.start()
    return ends


def _run(block: str, at: int) -> int:
    """Return how often the character at this position is repeated."""
    end = at
    while end < len(block) and block[end] == block[at]:
        end += 1
    return end - at


def _escaped(before: str) -> bool:
    """Return True if the character after this text is escaped by a backslash."""
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _in_code(block: str, at: int) -> bool:
    """Return True if a position is inside inline code, whether or not the code is closed."""
    start = 0
    while 0 <= (start := block.find("`", start)) < at:
        count = _run(block, start)
        close = start + count
        while (close := block.find("`", close)) >= 0 and _run(block, close) != count:
            close += _run(block, close)
        if close < 0 or close > at:
            return True
        start = close + count
    return False


def has_begun(written: str, shown: RenderablePrefix) -> bool:
    """Return True if the shown part contains a complete sentence or line."""
    return "\n" in shown.words.strip() or text.has_sentence(written, len(shown.words) + 1)
