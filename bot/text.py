"""Functions for text in any script: graphemes, display width, size limits and safe cutting."""

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
r"""Pattern of a grapheme. A flag is matched first, because `\X` counts all flags before the current flag,
which takes quadratic time in a sequence of flags.
"""
_APART = regex.compile(r"(?![\p{M}\p{Cf}\p{Grapheme_Extend}])\X\X")
"""Pattern of two characters that have a grapheme border between them, whatever precedes them. The first is not a mark
or format character, because the border after a mark or format character also depends on earlier characters.
"""
_FENCE = regex.compile(r"^ {0,3}(```+|~~~+)[ \t]*([^\s`]*)[^\n]*$", regex.MULTILINE)
_SENTENCE_END = regex.compile(r"[.!?。！？؟।]['\"”’」』)]*(?:\s|(?<=[。！？」』]))")
_HEADING = regex.compile(r"\n(?=#{1,6} \S)")

REACH = 1_024  # max characters that are searched backwards for a grapheme border
NAME = 32  # max characters of a word that is compared with known names
ALIKE = 0.7
"""Min similarity to a known name (as `difflib` measures it). `hlep` counts as `help`; `deploy` does not count as `deny`."""
FENCE_ROOM = 48
"""Number of characters that each part reserves for opening a code fence at its start and closing one at its end."""


def clean(text: str) -> str:
    """Return a text that UTF-8 can encode. Surrogate pairs are joined, and U+FFFD replaces lone surrogates."""
    if text.isascii():
        return text
    # Every string that is written passes through this function. A regex search would release the GIL and wait for it.
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def literal(words: str) -> str:
    """Return a text in which Markdown syntax is escaped."""
    return re.sub(r"([\\`*_\[\]<>~|#!])", r"\\\1", words)


def deep(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value in which `change` is applied to every string and key."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): deep(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [deep(item, change) for item in value]
    return value


def strings(value: Any) -> list[str]:
    """Return all strings and keys of a JSON value, in no particular order."""
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
"""Invisible characters outside ASCII, as ranges for a regex class: default ignorable characters, direction marks, line
separators and annotation marks.
"""
_VISIBLE = regex.compile(f"[^\\s{INVISIBLE}\u2800\ufffc]")
_BIDI = regex.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_STRINGS = regex.compile(
    r"(?r)(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
)
"""Pattern of terminal control strings (OSC, DCS and similar). The pattern is searched backwards. A forward search would be
quadratic if many strings have no end.
"""
ESCAPES = regex.compile(r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b[ -/]{0,4}[0-~]")
"""Pattern of terminal escape sequences that are not control strings (`_STRINGS`)."""
_CONTROLS = regex.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "\u2028\u2029\x85"})


def strict_json(raw: str, parse_float: Callable[[str], float] | None = None) -> Any:
    """Parse JSON, but refuse `NaN` and duplicate keys. Raises ValueError, and RecursionError if the nesting is too deep."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
            raise ValueError(f'the key "{twice}" twice in one object')
        return value

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    return json.loads(raw, object_pairs_hook=unique, parse_constant=refuse, parse_float=parse_float)


def without_escapes(words: str) -> str:
    """Return a text without terminal escape sequences."""
    # CAN (0x18) ends any sequence, so the text around a removed string cannot form a new sequence.
    return ESCAPES.sub("", _STRINGS.sub("\x18", words)).replace("\x18", "")


_NUMBERED = re.compile("&#0*([0-9]+)")


def unescaped(words: str) -> str:
    """Return a text with HTML entities decoded. A numeric entity is cut to 8 digits first, because Python refuses to
    parse thousands of digits.
    """
    return html.unescape(_NUMBERED.sub(lambda found: f"&#{found[1][:8]}", words))


def for_terminal(words: str) -> str:
    """Return foreign text in a form that is safe to print on a terminal. Escape sequences and bidirectional marks are
    removed. Other control characters are replaced; tabs and line breaks stay.
    """
    if words.isascii() and words.isprintable():
        return words
    if not words.isascii():
        words = _BIDI.sub("", words).replace("\u2028", "\n").replace("\u2029", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", without_escapes(words))


def one_line(dumped: str) -> str:
    """Escape the characters in JSON text that some readers treat as line breaks. Return the JSON."""
    return dumped if dumped.isascii() else dumped.translate(_BREAKS)


_HOST = regex.compile(
    r"(?:[\p{L}\p{N}_-]{1,63}[.\u3002\uff0e\uff61]){1,10}(?P<top>\p{L}[\p{L}\p{N}-]{1,62})(?![\p{L}\p{N}_-])"
    r"|(?<![\p{L}\p{N}._-])(?:localhost|(?:\p{N}{1,3}\.){3}\p{N}{1,3})(?![\p{L}\p{N}_-]|\.\p{N})",
    regex.IGNORECASE,
)
_EXTENSION = re.compile(
    "c|cfg|conf|css|csv|cpp|dart|exe|gif|go|h|hpp|htm|html|ini|java|jpeg|jpg|js|json|jsonl|jsx|kt|"
    "lock|log|pdf|php|png|ts|tsx|txt|toml|tmp|svg|sql|wasm|xml|yaml|yml"
)
"""File name extensions. A name such as `notes.txt` does not count as a host."""
_UNSEEN = regex.compile(f"[{INVISIBLE}]")
_MARKS = r"[\p{M}\uff9e\uff9f]"
_CROWDED = regex.compile(f"({_MARKS}{{32}}){_MARKS}+")
"""Pattern of more than 32 marks above one letter. No script uses so many."""


def normalized(words: str) -> str:
    """Return a text in the Unicode form NFKC, with at most 32 marks on one letter. Sorting more marks would take
    quadratic time.
    """
    return words if words.isascii() else unicodedata.normalize("NFKC", _CROWDED.sub(r"\1", words))


def real_host(label: str, url: str) -> str | None:
    """Return the host of a link if the link's label hides the host; otherwise None. The host is then shown beside the
    label. A label hides the host if it names another host. A host that follows a user name, or that has letters outside
    ASCII (`xn--`), always counts as hidden.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host:
        return None
    if not host.isascii() or "xn--" in host:
        with contextlib.suppress(UnicodeError):
            return host.encode("idna").decode("ascii")
    seen = _UNSEEN.sub("", normalized(label)).casefold()
    # Only the host of an address is compared. Names in its path do not matter.
    if "@" in parts.netloc or seen.strip() in {url.casefold(), url.casefold().rstrip("/")}:
        return host if "@" in parts.netloc else None
    named = [found for found in _HOST.finditer(seen) if not _EXTENSION.fullmatch(found["top"] or "")]
    for found in named:
        other = found[0].replace("\u3002", ".").removeprefix("www.")
        if host not in {other, f"www.{other}"} and not host.endswith(f".{other}"):
            return host
    return None


def visible(words: str) -> bool:
    """Return True if a text contains a visible character."""
    first = words[:1]
    return (first.isascii() and first.isalnum()) or _VISIBLE.search(words) is not None


def without_direction(words: str) -> str:
    """Return a text without bidirectional marks."""
    return words if words.isascii() else _BIDI.sub("", words)


def name(words: str) -> str:
    """Return a name that a person, channel or group chose for itself, without symbols, cut to four words and 30
    characters.
    """
    return head(" ".join(regex.sub(r"[^\p{L}\p{M}\p{N}.'’_-]+", " ", words).split()[:4]), 30)


def utf16_len(text: str) -> int:
    """Return the length of a text in UTF-16 code units. Telegram measures limits and offsets in this unit."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def graphemes(text: str) -> list[str]:
    """Split a text into grapheme clusters."""
    return _GRAPHEME.findall(text)


def width(text: str) -> int:
    """Return the number of terminal cells that a text takes. A wide character takes two cells."""
    if text.isascii():
        return len(text)
    return sum(2 if _is_wide(shown) else 1 for shown in graphemes(text))


def _is_wide(shown: str) -> bool:
    return unicodedata.east_asian_width(shown[0]) in {"W", "F"} or "\ufe0f" in shown


def dollars(usd: float) -> str:
    """Return US dollars as text with at least two significant digits: `$12.35`, `$0.012`."""
    decimals = 2 if usd >= 0.1 or usd <= 0 else 1 - math.floor(math.log10(usd))
    return f"${usd:,.{decimals}f}"


def byte_count(size: float) -> str:
    """Return a number of bytes as text: `12 MB`, `1.5 GB`. A kilobyte is 1,024 bytes."""
    if size < 1_000:
        return f"{size:.0f} {'byte' if round(size) == 1 else 'bytes'}"
    units = ["kB", "MB", "GB", "TB"]
    while (size := size / 1_024) >= 1_000 and len(units) > 1:
        units.pop(0)
    return f"{size:.1f} {units[0]}" if size < 10 else f"{size:,.0f} {units[0]}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a misspelt word; None if none is similar enough."""
    if len(word) > NAME:
        return None
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=ALIKE)), None)


def head(text: str, limit: int) -> str:
    """Return the beginning of a text, up to `limit` characters. The cut is between graphemes."""
    if len(text) <= limit:
        return text
    return text[: border(text, limit) or limit]


def border(text: str, at: int) -> int:
    """Return the last grapheme border at or before `at`. The search takes constant time, because a grapheme of more
    than `REACH` characters is split.
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
    """Return the first grapheme border at or after `at`."""
    while at < len(text) and border(text, at) != at:
        at += 1
    return min(at, len(text))


def preview(text: str, limit: int = 200) -> str:
    """Return a text as one line of at most `limit` characters. One space replaces each run of white space, and `…`
    replaces the part that does not fit.
    """
    folded = " ".join(text[: limit * 4].split())
    if len(folded) <= limit and len(text) <= limit * 4:
        return folded
    return head(folded, limit - 1) + "…"


HIDING = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are invisible or that change how other characters are shown."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Invisible characters of other categories. Variation selectors are handled elsewhere."""


def escaped(words: str) -> str:
    """Return the text with escapes for invisible characters and for characters that reorder text."""
    return "".join(
        sign
        if sign == "\n" or _shows(sign)
        else f"\\u{ord(sign):04x}"
        if ord(sign) < 0x10000
        else f"\\U{ord(sign):08x}"
        for sign in words
    )


def _shows(sign: str) -> bool:
    if sign in _BLANK or "\ufe00" <= sign <= "\ufe0e" or "\U000e0100" <= sign <= "\U000e01ef":
        return False
    return unicodedata.category(sign) not in HIDING and (sign == " " or not sign.isspace())


def quoted(words: str) -> str:
    """Return the text escaped for use inside backticks."""
    return escaped(words).replace("`", "\\u0060")


def named(name: str) -> str:
    """Return a name that somebody chose, escaped and shortened for use inside backticks."""
    return quoted(preview(name, 60))


def shorten_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters. If it is too long, a note replaces its middle."""
    if len(text) <= limit:
        return text
    note = f"\n[… {len(text) - limit:,} characters left out …]\n"
    room = limit - len(note)
    if room <= 0:
        return head(text, limit)
    start = head(text, room * 2 // 3)
    return start + note + text[border_after(text, len(text) - (room - len(start))) :]


def _soft_border(text: str, start: int, end: int, prefix: str) -> int:
    """Return the best position for a cut in the second half of text[start:end]: before a heading; otherwise after a
    paragraph, a line, a sentence or a word. `prefix` opens the code block in which the text begins.
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
    """Return True if a sentence ends before the position `end`."""
    return (found := _SENTENCE_END.search(text)) is not None and found.end() <= end


def _fit(prefix: str, text: str, start: int, limit: int, size: Callable[[str], int]) -> int:
    """Return the largest `end` for which size(prefix + text[start:end]) <= limit, but at least start + 1."""
    end = min(len(text), start + limit)
    if size(prefix + text[start:end]) <= limit:
        return end
    ends = range(start + 2, end)
    return start + 1 + bisect_right(ends, limit, key=lambda at: size(prefix + text[start:at]))


OF_WORD = r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{N}]"
"""Regex class of numbers, and of letters of scripts that separate words by spaces."""
_OF_WORD = regex.compile(OF_WORD)
_NAME_WITH_MARKS = re.compile(r"__[a-z][a-z0-9_]*__")
"""Pattern of names such as `__init__`. Markdown would show them in bold."""


def emphasis(source: str, start: int, end: int) -> tuple[bool, bool]:
    """Return two values: True if the marks source[start:end] may open emphasis, and True if they may close it. Three
    cases differ from CommonMark. Marks inside a word or number are plain text. Marks around a dunder name are plain
    text. In scripts without spaces, marks need no spaces around them.
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
"""Pattern of spans that must not be cut (escapes, inline code, links), and of emphasis marks. An open emphasis is
closed before a cut and opened again after it.
"""
_BLOCK = re.compile(r"\n(?=[ \t>]*(?:\n|[-+*][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|\||```|~~~))")
_AHEAD = 16_384  # max characters that are searched for the end of an emphasis, inline code or link
_OPEN = 20


def _cut(window: str, at: int) -> tuple[int, str]:
    """If the cut is inside a span that must not be cut, move the cut to before the span. Return the new position, and
    the emphasis marks that are open there and are closed later in the text.
    """
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
    """Split Markdown into parts whose `size` is at most `limit`. `size` must never return less than the number of
    characters of a text.

    Links and inline code are never cut; a grapheme is cut only if it alone exceeds the limit. Code fences and emphasis are
    closed at the end of a part and opened again in the next part; a fence keeps its language. Parts without a visible character
    are dropped.
    """
    parts: list[str] = []
    start, prefix = 0, ""
    while start < len(text):
        # Measuring the rest for each part would take quadratic time, so it is measured only if it can fit.
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
    """Return a text in which a code fence that is still open at the end is closed."""
    fence = _open_fence(text)
    return text if fence is None else f"{text.rstrip()}\n{fence[0]}"


def _open_fence(text: str) -> tuple[str, str] | None:
    fence = None
    for _, fence in _fences(text):  # noqa: B007 - the last value is used
        pass
    return fence


def _fences(text: str) -> Iterator[tuple[int, tuple[str, str] | None]]:
    fence: tuple[str, str] | None = None
    for match in _FENCE.finditer(text):
        mark, language = match.group(1), match.group(2)
        if fence is None:
            fence = (mark[:8], language[:20])
        elif mark.startswith(fence[0]) and not language:
            fence = None
        yield match.start(), fence


def encodings(secret: str) -> set[str]:
    """Return the forms in which a secret may occur in a text: plain, URL-encoded, hex and base64 (also as a part of a
    longer text in base64).
    """
    from urllib.parse import quote, quote_plus

    raw = secret.encode("utf-8", "replace")
    found = {secret, quote(secret, safe=""), quote_plus(secret), raw.hex(), raw.hex().upper()}
    for lead in range(3):
        # In the base64 of a longer text, a secret starts at one of three bit offsets. The surrounding text affects only
        # the first and the last group of characters.
        padded = base64.b64encode(b"\0" * lead + raw).decode("ascii")
        begin = (0, 2, 3)[lead]
        stop = (len(raw) + lead) * 8 // 6
        core = padded[begin:stop]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= 8}


def folded(words: str) -> str:
    """Return a name in a form that is equal for names that differ only in case or Unicode form."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", words).casefold())
