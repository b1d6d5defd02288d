"""Detects the encoding of a text by its bytes, and tells text from other bytes."""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable, Mapping

SURE = 0.7
"""The share of the characters beyond ASCII that have to be usual ones of an encoding."""
SNIFF = 8_192
"""Bytes that are looked at."""
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "PNG image",
    b"\xff\xd8\xff": "JPEG image",
    b"GIF87a": "GIF image",
    b"GIF89a": "GIF image",
    b"BM": "BMP image",
    b"II*\0": "TIFF image",
    b"MM\0*": "TIFF image",
    b"%PDF-": "PDF document",
    b"PK\x03\x04": "ZIP archive or office document",
    b"\x1f\x8b": "gzip archive",
    b"\x7fELF": "program",
    b"SQLite format 3\0": "SQLite database",
}


def no_text(head: bytes) -> str | None:
    """Return the kind of a file that begins with these bytes; None if it is text."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP image"
    if marked(head) is None and b"\0" in head:
        return next((kind for magic, kind in _PICTURES.items() if head.startswith(magic)), "binary file")
    for magic, kind in _PICTURES.items():
        if len(magic) > 2 and head.startswith(magic):
            return kind
    return None


def marked(head: bytes) -> str | None:
    """The encoding that the mark at the beginning names; None where there is no mark."""
    return next((name for mark, name in _BOMS if head.startswith(mark)), None)


def is_utf8(head: bytes, *, whole: bool = False) -> bool:
    """True if bytes may be the beginning of a text in UTF-8, or are a `whole` one."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def python_name(name: str) -> str | None:
    """The encoding of text that has this name; None where there is none."""
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(name)
        if codec._is_text_encoding:  # noqa: SLF001 - what `open` asks, too
            return codec.name
    return None


def utf16(head: bytes) -> str | None:
    """The encoding of text in UTF-16 without a mark at its beginning: each line end and each character of ASCII has a zero byte,
    always on the same side.
    """
    zeros = [head[side::2].count(0) for side in (0, 1)]
    if 0 not in zeros or zeros == [0, 0]:
        return None
    name = "utf-16-le" if zeros[1] else "utf-16-be"
    words = codecs.getincrementaldecoder(name)("replace").decode(head)
    usual = sum(one.isprintable() or one in "\t\n\r\f" for one in words)
    return name if usual == len(words) and "\ufffd" not in words else None


# ------------------------------------------------------------ encodings of before Unicode

_CJK_MARKS = frozenset("、。，；：？！“”‘’（）《》〈〉【】「」『』…—·￥％～・　＂＇")
_WESTERN_MARKS = frozenset("°µ§£€©®±²³¼½¾«»¿¡…–—‘’“”„•·×ªº´¨")
# The 60 or so syllables of which half of any Korean text is made.
_KOREAN = frozenset(
    "이다는을의가에지고하기로은도사한를리자어서시나인대아정해그일수과있으라보부스전상주제적것들만게되"
)


def legacy(head: bytes) -> str | None:
    """The encoding in which these bytes are usual text; None where there is none. `head` may end within a character."""
    if _CONTROLS.search(head):
        return None
    scores = {name: _score(head, name, usual) for name, usual in _ENCODINGS.items()}
    name = max(scores, key=lambda one: scores[one])
    return name if scores[name] >= SURE else None


def _score(head: bytes, name: str, usual: Callable[[str], float]) -> float:
    try:
        words = codecs.getincrementaldecoder(name)().decode(head)
    except UnicodeDecodeError:
        return 0.0
    return usual(words)


def _share(words: str, usual: Callable[[str], bool]) -> float:
    beyond = [one for one in words if one > "\x7f"]
    return sum(map(usual, beyond)) / len(beyond) if beyond else 0.0


def _first_byte(one: str, encoding: str) -> int:
    try:
        raw = one.encode(encoding)
    except UnicodeEncodeError:
        return 0
    return raw[0] if len(raw) > 1 else 0


def _fullwidth(one: str) -> bool:
    return one in _CJK_MARKS or "\uff01" <= one <= "\uff5e"


def _chinese(words: str) -> float:
    def usual(one: str) -> bool:
        # The first level of either standard has the characters in daily use.
        common = 0xB0 <= _first_byte(one, "gb2312") <= 0xD7 or 0xA4 <= _first_byte(one, "big5") <= 0xC6
        return _fullwidth(one) or ("\u4e00" <= one <= "\u9fff" and common)

    return _share(words, usual)


def _japanese(words: str) -> float:
    def usual(one: str) -> bool:
        kana = "\u3041" <= one <= "\u30fe"
        return kana or _fullwidth(one) or 0x88 <= _first_byte(one, "cp932") <= 0x97

    return _share(words, usual)


def _korean(words: str) -> float:
    """Chinese text is hangul too by half of its bytes, but never of the usual syllables."""
    syllables = [one for one in words if "\uac00" <= one <= "\ud7a3"]
    if sum(one in _KOREAN for one in syllables) < len(syllables) / 5:
        return 0.0
    return _share(words, lambda one: "\uac00" <= one <= "\ud7a3" or _fullwidth(one))


def _western(words: str) -> float:
    """Letters with accents stand among plain ones, two in a row at the most."""
    alone = sum(map(len, re.findall(r"(?<![^\x00-\x7f])[^\x00-\x7f]{1,2}(?![^\x00-\x7f])", words)))
    beyond = sum(one > "\x7f" for one in words)
    known = _share(words, lambda one: one in _WESTERN_MARKS or one.isalpha())
    return min(known, alone / beyond) - 0.01 if beyond else 0.0


_ENCODINGS: Mapping[str, Callable[[str], float]] = {
    "cp949": _korean,
    "gb18030": _chinese,
    "cp932": _japanese,
    "cp1252": _western,
}
"""Of two that fit as well, the first."""
