"""Recognises the type of a file by its first bytes, and decodes text. The file's name is ignored."""

from __future__ import annotations

import codecs
import contextlib
import re
from typing import Literal

from bot.errors import NoReadableText
from bot.picture_head import is_picture, kind_of

FileType = Literal["text", "picture", "pdf", "office", "recording"]

SNIFF = 8_192  # Number of bytes at the start of a file that the tools read to recognise text
SAMPLE = 65_536  # Number of bytes at the start of a file that are read to detect the file's encoding
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAGIC = {
    b"BM": "BMP image",
    b"II*\0": "TIFF image",
    b"MM\0*": "TIFF image",
    b"%PDF-": "PDF document",
    b"PK\x03\x04": "ZIP archive or office document",
    b"\x1f\x8b": "gzip archive",
    b"\x7fELF": "program",
    b"SQLite format 3\0": "SQLite database",
}
_RECORDINGS = {
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"\x1a\x45\xdf\xa3": "audio/webm",
    b"fLaC": "audio/flac",
}
_LEGACY = ("gb18030", "big5", "cp932", "cp949", "cp1252")
"""Older encodings that are tried. Cyrillic encodings are missing, because short French texts would be read as Russian."""
_WESTERN = re.compile(
    r"(?<![^\x00-\x7f])(?:[^\W\x00-\x7f]|[°µ§£€©®±²³¼½¾«»¿¡…–—‘’“”„•·×ªº´¨]){1,2}(?![^\x00-\x7f])"
)
_WESTERN_SHARE = 0.7
"""Min share of non-ASCII characters that `_WESTERN` must match in a text decoded as cp1252. `_WESTERN` matches one or two
accented letters or signs between ASCII characters. Text of other encodings, decoded as cp1252, has longer runs.
"""


def binary_kind(head: bytes) -> str | None:
    """Return the name of the binary format of a file that begins with these bytes; None for text."""
    if (picture := kind_of(head)) is not None:
        return f"{picture.removeprefix('image/').upper()} image"
    has_zero = bom_encoding(head) is None and b"\0" in head
    for magic, kind in _MAGIC.items():
        if head.startswith(magic) and (has_zero or len(magic) > 2):
            return kind
    return "binary file" if has_zero else None


def bom_encoding(head: bytes) -> str | None:
    """Return the encoding that a byte order mark at the beginning of a file shows; None if there is no such mark."""
    return next((name for bom, name in _BOMS if head.startswith(bom)), None)


def is_utf8(head: bytes) -> bool:
    """Return True if the bytes are valid UTF-8. The last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def python_name(name: str) -> str | None:
    """Return Python's name for the text encoding `name`; None if Python does not know the encoding."""
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(name)
        if codec._is_text_encoding:  # noqa: SLF001 - `open` uses it too
            return codec.name
    return None


def may_be_text(head: bytes) -> bool:
    """Return False if a file that begins with these bytes cannot be text. Much faster than `decode`."""
    if bom_encoding(head) is not None:
        return True
    if binary_kind(head) not in {None, "binary file"}:
        return False
    if b"\0" in head:
        # In UTF-16, ASCII characters have zero bytes only at even or only at odd positions.
        return 0 in (head[::2].count(0), head[1::2].count(0))
    return is_utf8(head) or _CONTROLS.search(head) is None


def decode(data: bytes) -> str | None:
    """Decode text in UTF-8, UTF-16, UTF-32 or a common older encoding. Return None for other data. Takes up to 0.3 s."""
    head = data[:SAMPLE]
    name = bom_encoding(head)
    if name is None and may_be_text(head):
        name = "utf-8" if is_utf8(head) and b"\0" not in head else _detected(head)
    try:
        words = data.decode(name) if name is not None else "\0"
    except UnicodeDecodeError:
        return None
    return words if "\0" not in words else None


def _detected(head: bytes) -> str | None:
    import chardet  # the import takes 0.2 s, because it loads models

    names = ("utf-16-le", "utf-16-be") if b"\0" in head else _LEGACY
    name = chardet.detect(head, include_encodings=names, compat_names=False)["encoding"]
    try:
        words = codecs.getincrementaldecoder(name or "ascii")().decode(head)
    except UnicodeDecodeError:
        return None
    if name == "cp1252":
        beyond = sum(one > "\x7f" for one in words)
        if sum(map(len, _WESTERN.findall(words))) < _WESTERN_SHARE * beyond:
            return None
    return name if all(one.isprintable() or one in "\t\n\r\f\x1b\u3000\xa0" for one in words) else None


def type_of(head: bytes) -> FileType:
    """Return the type of a file by its first bytes. A file of unknown type counts as "text"; `decode` may later refuse it."""
    if head.startswith(b"PK\x03\x04"):
        return "office"
    if head.startswith(b"%PDF-"):
        return "pdf"
    return "picture" if is_picture(head) else "text"


def check_text(head: bytes) -> None:
    """Raise `NoReadableText` if a file that begins with these bytes cannot be text."""
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise NoReadableText("it is protected, or in an old Office format", "old_office")
    if not may_be_text(head):
        raise NoReadableText


def recording_type(head: bytes) -> str:
    """Return the MIME type of a sound recording by its first bytes. Raises `NoReadableText` for any other file."""
    if head[4:8] == b"ftyp":
        return "audio/mp4"
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    if head[:1] == b"\xff" and head[1:2] >= b"\xe0":
        return "audio/mpeg"
    for magic, kind in _RECORDINGS.items():
        if head.startswith(magic):
            return kind
    raise NoReadableText
