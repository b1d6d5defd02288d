"""Text as people write it, in every script: graphemes, widths, sizes and safe cutting."""

from __future__ import annotations

import base64
import contextlib
import difflib
import html
import json
import math
import re
import unicodedata
from bisect import bisect, bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any
from urllib.parse import urlsplit

import regex

_GRAPHEME = regex.compile(r"[\U0001F1E6-\U0001F1FF]{2}(?![\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}])|\X")
"""A flag by itself: for one of many, the library would count all that stand before it."""
_APART = regex.compile(r"(?![\p{M}\p{Cf}\p{Grapheme_Extend}])\X\X")
"""Two characters between which there is a border whatever stands before them. It depends on that only where the first one is a mark
or a sign for formatting.
"""
_FENCE = regex.compile(r"^ {0,3}(```+|~~~+)[ \t]*([^\s`]*)[^\n]*$", regex.MULTILINE)
_SENTENCE_END = regex.compile(r"[.!?。！？؟।]['\"”’」』)]*(?:\s|(?<=[。！？」』]))")
_HEADING = regex.compile(r"\n(?=#{1,6} \S)")

REACH = 1_024
"""Characters before a place that are looked at to find the border of a grapheme."""
NAME = 32
"""Characters of the longest word that is looked at for the name that it means."""
ALIKE = 0.7
"""Min similarity to a name (`difflib`): `hlep` is for `help`, `deploy` not for `deny`."""
FENCE_ROOM = 48
"""Characters kept free in a part so that a code fence can be closed in it and opened in the next."""


def clean(text: str) -> str:
    """The text in characters that UTF-8 can carry: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    # Asked of every string that is written: a regex search would let go of the interpreter and wait to get it back.
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def literal(words: str) -> str:
    """Words that mean nothing to Markdown."""
    return re.sub(r"([\\`*_\[\]<>~|#!])", r"\\\1", words)


def deep(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its strings and keys changed, at every depth."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): deep(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [deep(item, change) for item in value]
    return value


def strings(value: Any) -> list[str]:
    """All strings and keys of a JSON value, in no order."""
    found: list[str] = []
    open_ = [value]
    while open_:
        item = open_.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            open_ += item
            open_ += item.values()
        elif isinstance(item, list):
            open_ += item
    return found


INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters beyond ASCII that no reader sees, as ranges for a class of a regular expression: those that Unicode calls
default ignorable, marks of direction, line separators and annotation marks.
"""
_VISIBLE = regex.compile(f"[^\\s{INVISIBLE}\u2800\ufffc]")
_BIDI = regex.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_STRINGS = regex.compile(
    r"(?r)(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
)
"""Strings for the terminal, looked for from their ends: of beginnings there may be any number that nothing ends, and each would be
followed as far as a string may reach.
"""
ESCAPES = regex.compile(r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b[ -/]{0,4}[0-~]")
"""Other sequences that a terminal obeys and does not show."""
_CONTROLS = regex.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"}


def strict_json(raw: str, parse_float: Callable[[str], float] | None = None) -> Any:
    """A JSON document without `NaN` and keys that stand twice. Raises ValueError, and RecursionError where it is nested too deeply."""
    return json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=parse_float)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def without_escapes(words: str) -> str:
    """Words without the sequences that a terminal obeys and does not show."""
    # A sign that ends any sequence in their place, so that what stood around one does not become another.
    return ESCAPES.sub("", _STRINGS.sub("\x18", words)).replace("\x18", "")


_NUMBERED = re.compile("&#0*([0-9]+)")


def unescaped(words: str) -> str:
    """Words with the entities of HTML as the characters that they stand for. Of a number as many digits are read as a character may
    have: the interpreter refuses to read thousands.
    """
    return html.unescape(_NUMBERED.sub(lambda found: f"&#{found[1][:8]}", words))


def for_terminal(words: str) -> str:
    """Words of others, safe to print: sequences that a terminal obeys and marks that turn the order of a line around are
    left out, other control characters replaced; tabs and line breaks stay.
    """
    if words.isascii() and words.isprintable():
        return words
    if not words.isascii():
        words = _BIDI.sub("", words).replace("\u2028", "\n").replace("\u2029", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", without_escapes(words))


def one_line(dumped: str) -> str:
    """JSON in which no string has a character that some readers take for the end of a line."""
    if not dumped.isascii():
        for sign, escaped in _BREAKS.items():
            if sign in dumped:
                dumped = dumped.replace(sign, escaped)
    return dumped


_HOST = regex.compile(
    r"(?:[\p{L}\p{N}_-]{1,63}[.\u3002\uff0e\uff61]){1,10}(?P<top>\p{L}[\p{L}\p{N}-]{1,62})(?![\p{L}\p{N}_-])"
    r"|(?<![\p{L}\p{N}._-])(?:localhost|(?:\p{N}{1,3}\.){3}\p{N}{1,3})(?![\p{L}\p{N}_-]|\.\p{N})",
    regex.IGNORECASE,
)
_NO_TOP = frozenset(
    [
        "c",
        "cfg",
        "conf",
        "css",
        "csv",
        "cpp",
        "dart",
        "exe",
        "gif",
        "go",
        "h",
        "hpp",
        "htm",
        "html",
        "ini",
        "java",
        "jpeg",
        "jpg",
        "js",
        "json",
        "jsonl",
        "jsx",
        "kt",
        "lock",
        "log",
        "pdf",
        "php",
        "png",
        "ts",
        "tsx",
        "txt",
        "toml",
        "tmp",
        "svg",
        "sql",
        "wasm",
        "xml",
        "yaml",
        "yml",
    ]
)
"""Endings of file names that no host has."""
_ALIKE = regex.compile(r"[\p{Cyrillic}\p{Greek}\p{Armenian}\p{Cherokee}]")
_UNSEEN = regex.compile(f"[{INVISIBLE}]")
_MARKS = r"[\p{M}\uff9e\uff9f]"
_CROWDED = regex.compile(f"({_MARKS}{{32}}){_MARKS}+")
"""More marks over one letter than any script has."""


def normalized(words: str) -> str:
    """Words in the plain form of their characters (NFKC), of the marks over one letter the first 32: to put marks in order takes the
    square of their number.
    """
    return words if words.isascii() else unicodedata.normalize("NFKC", _CROWDED.sub(r"\1", words))


def real_host(label: str, url: str) -> str | None:
    """The host of a link that is to be shown beside its words; None where they do not hide it. They do where they look like
    an address elsewhere, and where it is easily taken for another one: with a name before it, or in letters that look alike.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host:
        return None
    shown = host
    if not host.isascii():
        with contextlib.suppress(UnicodeError):
            shown = host.encode("idna").decode("ascii")
    if "@" in parts.netloc or _looks_alike(host):
        return shown
    seen = _UNSEEN.sub("", normalized(label)).casefold()
    named = [found[0].replace("\u3002", ".") for found in _HOST.finditer(seen) if found["top"] not in _NO_TOP]
    # Of an address the host alone counts, not what stands in its path.
    if seen.strip() in {url.casefold(), url.casefold().rstrip("/")}:
        return None
    hosts = {host.casefold(), _written(host).casefold()}
    return None if all(any(_within(one, name) for one in hosts) for name in named) else shown


def _within(host: str, named: str) -> bool:
    """True if a host is the named one, or inside of it."""
    named = named.removeprefix("www.")
    return host in {named, f"www.{named}"} or host.endswith(f".{named}")


def _looks_alike(host: str) -> bool:
    """True if a host, as it is shown, can be mistaken for one in Latin letters."""
    top = host.rpartition(".")[2]
    # Where its end is written in the same letters, nobody takes it for another one.
    return top.isascii() and not top.startswith("xn--") and _ALIKE.search(_written(host)) is not None


def _written(host: str) -> str:
    with contextlib.suppress(UnicodeError):
        return host.encode("ascii").decode("idna")
    return host


def visible(words: str) -> bool:
    """True if a text has a character that a reader sees."""
    first = words[:1]
    return (first.isascii() and first.isalnum()) or _VISIBLE.search(words) is not None


def without_direction(words: str) -> str:
    """Words without marks that turn their order around."""
    return words if words.isascii() else _BIDI.sub("", words)


def name(words: str) -> str:
    """Reduce words to what can be the name of a person, a channel or a group: a few words of letters. Whoever bears it has chosen it."""
    return head(" ".join(regex.sub(r"[^\p{L}\p{M}\p{N}.'’_-]+", " ", words).split()[:4]), 30)


def utf16_len(text: str) -> int:
    """Length in UTF-16 code units, the unit of Telegram's limits and offsets."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def graphemes(text: str) -> list[str]:
    """The characters that a reader sees."""
    return _GRAPHEME.findall(text)


def width(text: str) -> int:
    """Cells of a terminal that a text takes: a wide character takes two."""
    if text.isascii():
        return len(text)
    return sum(2 if _is_wide(shown) else 1 for shown in graphemes(text))


def _is_wide(shown: str) -> bool:
    return unicodedata.east_asian_width(shown[0]) in {"W", "F"} or "\ufe0f" in shown


def dollars(usd: float) -> str:
    """A sum of money, with two digits that say something however small it is: `$12.35`, `$0.012`."""
    decimals = 2 if usd >= 0.1 or usd <= 0 else 1 - math.floor(math.log10(usd))
    return f"${usd:,.{decimals}f}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of these names that a misspelt word probably means; None where none is like it."""
    if len(word) > NAME:
        return None
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=ALIKE)), None)


def head(text: str, limit: int) -> str:
    """The first `limit` characters at the most, not ending inside a grapheme."""
    if len(text) <= limit:
        return text
    return text[: border(text, limit) or limit]


def border(text: str, at: int) -> int:
    """The last grapheme border that is not behind `at`. Only the neighbourhood is looked at, so that this costs the
    same in a text of any size; a grapheme of more than `REACH` characters has borders inside.
    """
    if at >= len(text):
        return len(text)
    if at <= 0 or _APART.fullmatch(text, at - 1, at + 1):
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
    return start + note + text[border_after(text, len(text) - (room - len(start))) :]


def _soft_border(text: str, start: int, end: int, prefix: str) -> int:
    """The best place to cut in the second half of text[start:end]: heading, paragraph, line, sentence, word. `prefix` opens the
    code that it begins in.
    """
    floor = start + (end - start) // 2
    if headings := [m.end() for m in _HEADING.finditer(text, floor, end)]:
        fences = list(_fences(prefix + text[start:end]))
        for heading in reversed(headings):
            before = bisect(fences, heading - start + len(prefix), key=itemgetter(0))
            if not before or fences[before - 1][1] is None:
                return heading
    for mark in ("\n\n", "\n"):
        at = text.rfind(mark, floor, end)
        if at >= 0:
            return at + len(mark)
    ends = [m.end() for m in _SENTENCE_END.finditer(text, floor, end)]
    if ends:
        return ends[-1]
    at = text.rfind(" ", floor, end)
    if at >= 0:
        return at + 1
    return at if (at := border(text, end)) > start else end


def has_sentence(text: str, end: int) -> bool:
    """True if a sentence ends before `end`."""
    found = _SENTENCE_END.search(text)
    return found is not None and found.end() <= end


def _fit(prefix: str, text: str, start: int, limit: int, size: Callable[[str], int]) -> int:
    """The largest end for which size(prefix + text[start:end]) <= limit, at least one character on."""
    end = min(len(text), start + limit)
    if size(prefix + text[start:end]) <= limit:
        return end
    ends = range(start + 2, end)
    return start + 1 + bisect_right(ends, limit, key=lambda at: size(prefix + text[start:at]))


OF_WORD = r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{N}]"
"""A number, or a letter of a script with spaces between words, for a regular expression."""
_OF_WORD = regex.compile(OF_WORD)
_NAME_WITH_MARKS = re.compile(r"__[a-z][a-z0-9_]*__")
"""`__init__`: a program's name, though the rules of Markdown make it bold."""


def emphasis(source: str, start: int, end: int) -> tuple[bool, bool]:
    """True, True if the marks source[start:end] may open emphasis, and close it. As in CommonMark, but for three things: inside of a
    word or a sum, and around a program's name, they are no marks, and scripts without spaces between words need none.
    """
    before, after = source[start - 1 : start] or " ", source[end : end + 1] or " "
    if _OF_WORD.fullmatch(before) and _OF_WORD.fullmatch(after):
        return False, False
    named = _NAME_WITH_MARKS.finditer(source, max(0, start - NAME), end + NAME) if end - start == 2 else ()
    if any(name.start() <= start < name.end() for name in named):
        return False, False
    spaced, ended = after.isspace(), before.isspace()
    left = not spaced and (not _is_sign(after) or ended or _is_sign(before) or _is_wide(before))
    right = not ended and (not _is_sign(before) or spaced or _is_sign(after) or _is_wide(after))
    if source[start] == "_":
        return left and (not right or _is_sign(before)), right and (not left or _is_sign(after))
    return left, right


def _is_sign(char: str) -> bool:
    return unicodedata.category(char)[0] in {"P", "S"}


_INLINE = re.compile(
    r"\\.|(?<!`)(`+)(?!`).{1,500}?(?<!`)\1(?!`)|!?\[[^\[\]]{0,500}\]\([^()\s]{1,2000}\)|<https?://[^<>\n]{1,2000}>"
    r"|(?P<mark>\*+|_+|~~|\|\|)",
    re.DOTALL,
)
"""Beginnings that no part of a message may end in, and the marks that can be closed there and opened again."""
_BLOCK = re.compile(r"\n(?=[ \t>]*(?:\n|[-+*][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|\||```|~~~))")
_AHEAD = 16_384
"""Characters behind a cut in which the end of an open mark is looked for."""
_OPEN = 20


def _cut(window: str, at: int) -> tuple[int, str]:
    """A cut at `at`, or before what must not be cut there, and the marks of emphasis that are open at it and close behind it."""
    begin = max((found.end() for found in _BLOCK.finditer(window, 0, at)), default=0)
    behind = _BLOCK.search(window, at - 1)
    opened: list[re.Match[str]] = []
    around: list[re.Match[str]] = []
    for found in _INLINE.finditer(window, begin, behind.start() if behind else len(window)):
        mark = found["mark"]
        opens, closes = emphasis(window, *found.span()) if mark else (False, False)
        if found.start() < at < found.end() + opens:
            at = found.start()
        same = [one for one in opened if one[0] == mark]
        if closes and same:
            del opened[opened.index(same[-1]) :]
            around += same[-1:] if same[-1].start() < at <= found.start() else []
        elif opens:
            opened = [*opened[-_OPEN:], found]
    return at, "".join(one[0] for one in sorted(around, key=lambda one: one.start()))


def split(text: str, limit: int, size: Callable[[str], int] = len) -> list[str]:
    """Markdown text as parts of at most `limit` (measured by `size`), cut at the best border there is.

    `size` of a text is never less than its number of characters.

    No part begins or ends inside a grapheme (unless one alone is over the limit), or inside a link or the code of a line; a code
    fence that is cut is closed in one part and opened again, with its language, in the next, and so are marks of emphasis;
    in each part there is something to see.
    """
    parts: list[str] = []
    start, prefix = 0, ""
    while start < len(text):
        # Measured only where it can fit: measuring all that is left for each part would be quadratic.
        if len(prefix) + len(text) - start <= limit and size(prefix + text[start:]) <= limit:
            parts.append(prefix + text[start:])
            break
        room = limit - (FENCE_ROOM if limit > 4 * FENCE_ROOM else 0)
        end = _fit(prefix, text, start, room, size)
        end = _soft_border(text, start, end, prefix) if end < len(text) else end
        chunk = prefix + text[start:end]
        fence = _open_fence(chunk) if limit > 4 * FENCE_ROOM else None
        if fence:
            mark, language = fence
            chunk = chunk.rstrip("\n") + "\n" + mark
            prefix = f"{mark}{language}\n"
        elif limit > 4 * FENCE_ROOM:
            at, marks = _cut(chunk + text[end : end + _AHEAD], len(chunk))
            if at > len(prefix):
                end, chunk = end - len(chunk) + at, chunk[:at]
            chunk, prefix = chunk.rstrip() + marks[::-1] if marks else chunk, marks
        parts.append(chunk)
        start = end
    return [part.strip("\n") for part in parts if visible(part)]


def with_code_closed(text: str) -> str:
    """A text in which the code at its end is closed, so that more can follow."""
    fence = _open_fence(text)
    return text if fence is None else f"{text.rstrip()}\n{fence[0]}"


def _open_fence(text: str) -> tuple[str, str] | None:
    """Mark and language of the code fence that is still open at the end of a text."""
    fence = None
    for _, fence in _fences(text):  # noqa: B007 - the last one counts
        pass
    return fence


def _fences(text: str) -> Iterator[tuple[int, tuple[str, str] | None]]:
    """The place of each fence, with what is open behind it."""
    fence: tuple[str, str] | None = None
    for match in _FENCE.finditer(text):
        mark, language = match.group(1), match.group(2)
        if fence is None:
            fence = (mark[:8], language[:20])
        elif mark.startswith(fence[0]) and not language:
            fence = None
        yield match.start(), fence


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
