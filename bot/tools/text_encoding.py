"""Detects the encoding of a file, and tells text from other bytes."""

from __future__ import annotations

import codecs
import contextlib

SNIFF = 8_192
"""Bytes that are looked at."""
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
    if encoding(head) is None and b"\0" in head:
        return next((kind for magic, kind in _PICTURES.items() if head.startswith(magic)), "binary file")
    for magic, kind in _PICTURES.items():
        if len(magic) > 2 and head.startswith(magic):
            return kind
    return None


def encoding(head: bytes) -> str | None:
    """The encoding that the mark at the beginning names; None where there is no mark."""
    return next((name for mark, name in _BOMS if head.startswith(mark)), None)


def is_utf8(head: bytes) -> bool:
    """True if bytes may be the beginning of a text in UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=False)
    except UnicodeDecodeError:
        return False
    return True


def known(name: str) -> str | None:
    """The encoding of text that has this name; None where there is none."""
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(name)
        if codec._is_text_encoding:  # noqa: SLF001 - what `open` asks, too
            return codec.name
    return None
