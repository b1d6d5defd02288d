"""Text as people write it: graphemes, widths, sizes and safe cutting, in every script."""

from __future__ import annotations

import base64
from collections.abc import Callable

import regex

_GRAPHEME = regex.compile(r"\X")
_FENCE = regex.compile(r"^ {0,3}(```+|~~~+)[ \t]*([^\s`]*)[^\n]*$", regex.MULTILINE)
_SENTENCE_END = regex.compile(r"[.!?。！？؟।]['\"”’」』)]*(?:\s|(?<=[。！？」』]))")

REACH = 1_024
"""How many characters before a place are looked at to say whether a grapheme ends there."""
FENCE_ROOM = 48
"""Characters kept free in a part so that a code fence can be closed in it and opened in the next."""


def clean(text: str) -> str:
    """What UTF-8 can carry: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    # Asked of every string that is written: a regex search would let go of the interpreter and wait to get it back.
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def utf16_len(text: str) -> int:
    """Length in UTF-16 code units, the unit of Telegram's limits and offsets."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def graphemes(text: str) -> list[str]:
    """What a reader sees as single characters."""
    return _GRAPHEME.findall(text)


def head(text: str, limit: int) -> str:
    """The first `limit` characters at the most, not ending inside a grapheme."""
    if len(text) <= limit:
        return text
    return text[: _grapheme_border(text, limit)]


def border(text: str, at: int) -> int:
    """The last grapheme border that is not behind `at`. Only the neighbourhood is looked at, so that this costs the
    same in a text of any size; a grapheme of more than `REACH` characters has borders inside.
    """
    if at >= len(text):
        return len(text)
    if at <= 0 or (text[at - 1 : at + 1].isascii() and text[at - 1 : at + 1] != "\r\n"):
        return max(0, at)
    begin = max(0, at - REACH)
    for match in _GRAPHEME.finditer(text[begin : at + 1]):
        if begin + match.end() > at:
            return at if match.start() == 0 < begin else begin + match.start()
    return at


def border_after(text: str, at: int) -> int:
    """The first grapheme border that is not before `at`."""
    while at < len(text) and border(text, at) != at:
        at += 1
    return min(at, len(text))


def preview(text: str, limit: int = 200) -> str:
    """One line for a log or a list: white space folded, cut with `…` where it is longer."""
    folded = " ".join(text[: limit * 4].split())
    if len(folded) <= limit and len(text) <= limit * 4:
        return folded
    return head(folded, limit - 1) + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Head and tail of a text with a note of what was left out between; at most `limit` characters."""
    if len(text) <= limit:
        return text
    note = f"\n[… {len(text) - limit:,} characters left out …]\n"
    room = limit - len(note)
    if room <= 0:
        return head(text, limit)
    start = head(text, room * 2 // 3)
    tail_from = len(text) - (room - len(start))
    border = next(
        (m.end() for m in _GRAPHEME.finditer(text, max(0, tail_from - 64)) if m.end() >= tail_from), tail_from
    )
    return start + note + text[border:]


def _grapheme_border(text: str, end: int, start: int = 0) -> int:
    """The last grapheme border in (start, end]; `end` itself where one grapheme is longer than that."""
    if end >= len(text):
        return len(text)
    border = start
    for match in _GRAPHEME.finditer(text, start):
        if match.end() > end:
            break
        border = match.end()
    return border if border > start else end


def _soft_border(text: str, start: int, end: int) -> int:
    """The best place to cut in the second half of text[start:end]: paragraph, line, sentence, word."""
    floor = start + (end - start) // 2
    for mark in ("\n\n", "\n"):
        at = text.rfind(mark, floor, end)
        if at >= 0:
            return at + len(mark)
    ends = [m.end() for m in _SENTENCE_END.finditer(text, floor, end)]
    if ends:
        return ends[-1]
    at = text.rfind(" ", floor, end)
    return at + 1 if at >= 0 else _grapheme_border(text, end, start)


def _fit(text: str, start: int, limit: int, size: Callable[[str], int]) -> int:
    """The largest end for which size(text[start:end]) <= limit, at least one character on."""
    end = min(len(text), start + limit)
    while end > start + 1 and (over := size(text[start:end]) - limit) > 0:
        end = max(start + 1, end - (over + 1) // 2)
    return end


def split(text: str, limit: int, size: Callable[[str], int] = len) -> list[str]:
    """Markdown text as parts of at most `limit` (measured by `size`), cut at the best border there is.

    `size` of a text is never less than its number of characters.

    No part begins or ends inside a grapheme (unless one alone is over the limit); a code fence that is cut
    is closed in one part and opened again, with its language, in the next; parts are never blank, and blank
    text has none.
    """
    parts: list[str] = []
    start, prefix = 0, ""
    while start < len(text):
        # Measured only where it can fit: measuring all that is left for each part would be quadratic.
        if len(prefix) + len(text) - start <= limit and size(prefix + text[start:]) <= limit:
            parts.append(prefix + text[start:])
            break
        room = limit - size(prefix) - (FENCE_ROOM if limit > 4 * FENCE_ROOM else 0)
        end = _fit(text, start, max(1, room), size)
        end = _soft_border(text, start, end) if end < len(text) else end
        chunk = prefix + text[start:end]
        fence = _open_fence(chunk)
        prefix = ""
        if fence and limit > 4 * FENCE_ROOM:
            mark, language = fence
            chunk = chunk.rstrip("\n") + "\n" + mark
            prefix = f"{mark}{language}\n"
        parts.append(chunk)
        start = end
    return [part.strip("\n") for part in parts if part.strip()]


def _open_fence(text: str) -> tuple[str, str] | None:
    """Mark and language of the code fence that is still open at the end of a text."""
    fence: tuple[str, str] | None = None
    for match in _FENCE.finditer(text):
        mark, language = match.group(1), match.group(2)
        if fence is None:
            fence = (mark[:8], language[:20])
        elif mark.startswith(fence[0]) and not language:
            fence = None
    return fence


def encodings(secret: str) -> set[str]:
    """A secret as it may appear elsewhere: plain, URL-encoded, base64 (inside a longer text too), hex."""
    from urllib.parse import quote, quote_plus

    raw = secret.encode("utf-8", "replace")
    found = {secret, quote(secret, safe=""), quote_plus(secret), raw.hex(), raw.hex().upper()}
    for lead in range(3):
        # Inside a longer text the secret starts at one of three bit offsets: the whole characters between
        # its first and last full groups are the same whatever stands around it.
        padded = base64.b64encode(b"\0" * lead + raw).decode("ascii")
        begin = (0, 2, 3)[lead]
        stop = (len(raw) + lead) * 8 // 6
        core = padded[begin:stop]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= 8}
