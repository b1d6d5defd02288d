"""The beginning of a Markdown text as it can be shown while the rest is still being written: nothing in it is half open."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, replace

from bot import text
from bot.core.long_blocks import delimits

LONGEST_LINK = 400
"""Characters after a `[`, or in a line that may be the head of a table, that are held back at the most."""
LONGEST_URL = 2_000
LONGEST_END = 2_600
"""Characters at the end of a block that what is half open there can have, but for links."""
TRIES = 12
"""Passes over a text: each holds back more than the one before."""

_FENCE = re.compile(r"^([ \t>]*)((?:[-+*]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*", re.MULTILINE)
_MARKS_ALONE = re.compile(r"[>\-+*#=_~`|: \t]*(?:\[[ xX]?\]?)?|[> \t]*\d{1,9}[.)]?")
"""A last line from which nobody can tell yet what it will be."""
_BRACKETS = re.compile(r"[()\[\]]")
_NO_CELLS = re.compile(r"`[^`\n]*`|<[^<>\n]*>|\\\|")
_BLOCK = re.compile(r"[ \t>]*(?:[-+*][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t])")
_ITEM = re.compile(r"^[ \t>]*(?:[-+*]|\d{1,9}[.)])[ \t]", re.MULTILINE)
_OPEN_END = re.compile(
    r"(?<!\\)&[#\w]{0,31}$"  # an entity
    r"|<[^\s<>|]{0,2000}$|<https?://[^<>\s|]{1,2000}\|[^<>\n]{0,500}$"  # an address between brackets
    r"|(?:https?|tg|mailto):\S{0,2000}$"  # an address: half of it leads elsewhere
    r"|(?<!\S)!$"  # an image
    r"|__[a-z][a-z0-9_]{0,30}$"  # a name
    r"|(?<!\\)(?:\\\\)*\\$",
    re.ASCII | re.IGNORECASE,
)
_EMPHASIS = "*_~"


@dataclass(frozen=True, slots=True)
class RenderablePrefix:
    """`words` is what of the text can be shown. Behind them `closing` closes the marks that are open in them, and ends the line
    where nothing may follow in it. The first `sure` characters are words as they will stay: no open mark is before them,
    so what only grows may have them.
    """

    words: str
    closing: str = ""
    sure: int = 0

    @property
    def closed(self) -> str:
        return self.words + self.closing


def beginning(written: str) -> RenderablePrefix:
    """Return the part that can be shown of a text of which this much was written."""
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
    """A list item or heading is only sure with some of its words."""
    sure = shown.words[: shown.sure].rstrip()
    line = sure.rfind("\n") + 1
    bare = _MARKS_ALONE.fullmatch(sure, line) is not None and _FENCE.match(sure, line) is None
    return replace(shown, sure=line) if bare else shown


class _Tail:
    """One pass over a text that ends anywhere. Only its last block matters, and whether that is code."""

    def __init__(self, written: str) -> None:
        self._text = written

    def read(self) -> RenderablePrefix | int:
        """Return the part that can be shown, or the place from which on the text has to be held back."""
        opened = self._open_fence()
        if opened is not None:
            return self._code(*opened)
        shown = self._text.rstrip()
        line = shown.rfind("\n") + 1
        if _FENCE.match(shown, line):
            return RenderablePrefix(shown, "\n", sure=len(shown))  # the end of code
        if _MARKS_ALONE.fullmatch(shown, line):
            return line
        first = self._paragraph(line)
        held = self._table(first, line, shown)
        if held is not None:
            return held
        return self._inline(self._block(first, line), shown)

    # ------------------------------------------------------------ code

    def _open_fence(self) -> tuple[int, str, str] | None:
        """Return the place at which the code begins that is open at the end, and that which closes it and stands before."""
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
            body = body[: body.rfind("\n") + 1]  # this may be its end
        body = body.rstrip()
        if not body.strip(" \t>\n"):
            return start
        words = self._text[: start + len(head) + 1] + body
        whole = words.rfind("\n") + 1  # a fence alone is no code yet
        return RenderablePrefix(
            words, f"\n{before}{mark}\n", sure=whole if whole > start + len(head) + 1 else start
        )

    # ------------------------------------------------------------ lines

    def _paragraph(self, line: int) -> int:
        """The begin of the paragraph whose last line begins at `line`."""
        while line:
            before = self._text.rfind("\n", 0, line - 1) + 1
            if not self._text[before : line - 1].strip(" \t>") or _FENCE.match(self._text, before):
                return line
            line = before
        return line

    def _block(self, first: int, line: int) -> int:
        """The begin of the last list item, heading or paragraph among the lines from `first` on."""
        while line > first:
            before = self._text.rfind("\n", 0, line - 1) + 1
            if _BLOCK.match(self._text, line) or self._text[before:line].lstrip(" \t>").startswith("#"):
                return line
            line = before
        return line

    def _table(self, first: int, line: int, shown: str) -> RenderablePrefix | int | None:
        """A table has whole rows alone; a line that may be the head of one is held back until the next says so."""
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
    """The marks of emphasis, code and links in one block, by the rules of CommonMark as far as they matter at its end."""

    def __init__(self, block: str) -> None:
        self._block = block
        self._open: list[tuple[str, int, int]] = []
        """Marks that may open emphasis: the sign, how many, and the place."""
        self._opened: Counter[str] = Counter()
        """The entries of that by sign: where there is none, none is looked for."""
        self._brackets: list[int] = []
        self._ends: dict[int, int] = {}
        """The ends of all brackets, by their begin, once one is asked for."""
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
        """With its open marks closed, the last one first."""
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
                    # What was opened inside and never closed are signs like any other.
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
        """Pass what closes a bracket; the place of that bracket where its link is not complete."""
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
    """The place where each bracket is closed, by that where it opens. One pass for all of them."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for found in _BRACKETS.finditer(block):
        if found[0] in "([":
            opened.append(found.start())
        elif opened:
            ends[opened.pop()] = found.start()
    return ends


def _run(block: str, at: int) -> int:
    """The length of the run of one sign."""
    end = at
    while end < len(block) and block[end] == block[at]:
        end += 1
    return end - at


def _escaped(before: str) -> bool:
    """True if what follows these words is escaped."""
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _in_code(block: str, at: int) -> bool:
    """True if a place is inside of code that began before it, closed or not."""
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
    """True if what can be shown of a text has a whole sentence, or a whole line."""
    return "\n" in shown.words.strip() or text.has_sentence(written, len(shown.words) + 1)
