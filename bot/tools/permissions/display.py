"""Shows a tool call to the person who approves it. Hidden characters become visible, and every omission is marked."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable

from bot import text
from bot.words import names, say

HIDING = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are invisible or that change how other characters are shown."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters of other categories that are invisible. Variation selectors are handled elsewhere."""
TAIL = 400
_MARK = "\ue000"
"""Private-use character that marks placeholders in a text. `visible` escapes it in all other text."""
_LABEL = re.compile(f"{_MARK}([A-Za-z_]{{1,40}}){_MARK}")
_LABELS = frozenset(names("fields"))
_WHEN = re.compile(f"(?<={_MARK}when{_MARK}: ).+")
_LEFT_OUT = re.compile(f"{_MARK}([0-9]{{1,12}}){_MARK}")


def visible(words: str) -> str:
    """Return the text with escapes for invisible characters and for characters that reorder text."""
    return "".join(sign if sign == "\n" or _shows(sign) else _escaped(sign) for sign in words)


def quoted(words: str) -> str:
    """Return the text escaped for use inside backticks."""
    return visible(words).replace("`", "\\u0060")


def named(name: str) -> str:
    """Return a name that somebody chose, escaped and shortened for use inside backticks."""
    return quoted(text.preview(name, 60))


def shortened(words: str, limit: int) -> str:
    """Return visible text shortened to about `limit` characters. A placeholder says how much was omitted; `in_words`
    translates it.
    """
    if len(words) <= limit:
        return words
    head = text.head(words, limit - TAIL)
    tail = words[text.border_after(words, len(words) - TAIL) :]
    missing = len(words) - len(head) - len(tail)
    return f"{head}\n{_MARK}{missing}{_MARK}\n{tail}"


def label(name: str) -> str:
    """Return a placeholder for the name of a built-in tool's argument. `in_words` translates it."""
    return f"{_MARK}{name}{_MARK}" if name in _LABELS else name


def changed_lines(old: str, new: str, around: int = 10**6) -> str:
    """Return a unified diff of two texts with `around` lines of context."""
    lines = difflib.unified_diff(old.split("\n"), new.split("\n"), n=around, lineterm="")
    return "\n".join([*lines][3:])


def in_words(shown: str, times: Callable[[str], str] = str) -> str:
    """Return the text in which words of the current language replace the placeholders of `shortened` and `label`.
    `times` formats due times.
    """
    told = _WHEN.sub(lambda mark: times(mark[0]), shown)
    labelled = _LABEL.sub(lambda mark: say(f"fields.{mark[1]}") if mark[1] in _LABELS else mark[1], told)
    return _LEFT_OUT.sub(lambda mark: say("marks.left_out", count=int(mark[1])), labelled)


def _shows(sign: str) -> bool:
    if sign in _BLANK or "\ufe00" <= sign <= "\ufe0e" or "\U000e0100" <= sign <= "\U000e01ef":
        return False
    return unicodedata.category(sign) not in HIDING and (sign == " " or not sign.isspace())


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
