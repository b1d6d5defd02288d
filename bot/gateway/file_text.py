"""The text of a file's bytes, told by what they are: encoded text, or an office file. Its name is not looked at."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping

from bot.gateway import office_text
from bot.gateway.office_text import NoReadableText
from bot.gateway.pictures import is_picture
from bot.tools import text_encoding

__all__ = ["Decoder", "NoReadableText", "sound_type"]

_MARK = 16
"""Bytes by which a picture or a recording is known."""
LOOKED_AT = 65_536
"""Bytes by which a file is told: its first piece."""
_PDF = b"%PDF-"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
OLD_OFFICE = "it is protected, or in an old Office format"
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
SURE = 0.7
"""The share of the characters beyond ASCII that have to be usual ones of an encoding."""


class Decoder:
    """The bytes of one file, as they come in pieces. Raises `NoReadableText` as soon as they show to hold none; of text there are at most
    `most` bytes, of what text is packed in as many as come. Of what is `spoken` nothing but a recording is taken.
    """

    def __init__(self, most: int, *, spoken: bool = False) -> None:
        self._most = most
        self._spoken = spoken
        self._bytes = bytearray()
        self._looked = False

    @property
    def packed(self) -> bool:
        """True if the text is a small part of the bytes, as in an office file."""
        return self._bytes.startswith(office_text.MAGIC)

    @property
    def pictured(self) -> bool:
        """True if it is a picture, which has no text."""
        return is_picture(bytes(self._bytes[:_MARK]))

    @property
    def documented(self) -> bool:
        """True if it is a PDF, which is read elsewhere (`bot.gateway.pdf`)."""
        return self._bytes.startswith(_PDF)

    @property
    def sound(self) -> str | None:
        """The MIME type of the recording that it is; None where it is none, or is not to be heard."""
        return sound_type(bytes(self._bytes[:_MARK])) if self._spoken else None

    @property
    def data(self) -> bytes:
        return bytes(self._bytes)

    @property
    def size(self) -> int:
        """The bytes so far."""
        return len(self._bytes)

    def take(self, piece: bytes) -> None:
        self._bytes += piece
        if not self._looked and len(self._bytes) >= LOOKED_AT:
            self._look()

    def end(self) -> str:
        """The whole text. Takes long: not for the event loop's thread."""
        self._look()
        data = bytes(self._bytes)
        if self._spoken or self.pictured or self.documented:
            raise NoReadableText
        return office_text.text_of(data, self._most) if self.packed else _decoded(data)

    def _look(self) -> None:
        self._looked = True
        if self._spoken:
            if self.sound is None:
                raise NoReadableText
            return
        head = bytes(self._bytes[:LOOKED_AT])
        if head.startswith(_OLE):
            raise NoReadableText(OLD_OFFICE, "old_office")
        if self.packed or self.pictured or self.documented:
            return
        if text_encoding.no_text(head[: text_encoding.SNIFF]) not in {
            None,
            "binary file",
        }:
            raise NoReadableText
        plain = text_encoding.is_utf8(head) and b"\0" not in head
        if not plain and _utf16(head) is None and legacy_encoding(head) is None:
            raise NoReadableText


def _decoded(data: bytes) -> str:
    name = next((name for bom, name in _BOMS.items() if data.startswith(bom)), None)
    name = (
        name or _utf16(data[:LOOKED_AT]) or ("utf-8" if _is_utf8(data) else legacy_encoding(data[:LOOKED_AT]))
    )
    try:
        words = data.decode(name or "utf-8")
    except UnicodeError:
        raise NoReadableText from None
    if "\0" in words:
        raise NoReadableText
    return words


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _utf16(head: bytes) -> str | None:
    """The encoding of text in UTF-16 without a mark at its beginning: each line end and each character of ASCII has a zero byte,
    always on the same side.
    """
    if head.startswith(tuple(_BOMS)):
        return "utf-16"
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


def legacy_encoding(head: bytes) -> str | None:
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


def sound_type(head: bytes) -> str | None:
    """The MIME type of the recording that begins with these bytes; None where it is none."""
    if head.startswith(b"OggS"):
        return "audio/ogg"
    if head[4:8] == b"ftyp":
        return "audio/mp4"
    if head.startswith(b"ID3") or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return "audio/mpeg"
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "audio/webm"
    return "audio/flac" if head.startswith(b"fLaC") else None
