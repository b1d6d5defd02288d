"""Recognises pictures by their first bytes and reads their size in pixels. Pictures are not decompressed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

SHRUNK = 1_568
"""Max pixels of the longer side. The provider shrinks larger pictures to this size."""
_PIXELS_PER_TOKEN = 750
_MOST_TOKENS = 1_600
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EXIF, _ORIENTATION, _ON_ITS_SIDE = 0xE1, 0x0112, range(5, 9)
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers that are not followed by a length."""


@dataclass(frozen=True, slots=True)
class Picture:
    type: str
    width: int
    height: int

    @property
    def tokens(self) -> int:
        """Return the number of tokens of a request that the picture takes."""
        scale = min(1.0, SHRUNK / max(self.width, self.height))
        return min(_MOST_TOKENS, round(self.width * scale * self.height * scale / _PIXELS_PER_TOKEN) + 1)


def picture_of(data: bytes) -> Picture | None:
    """Return the picture in these bytes; None if the bytes are not a picture or if the picture's beginning
    is damaged.
    """
    kind = kind_of(data)
    sides = _SIDES[kind](data) if kind is not None else None
    if kind is None or sides is None or min(sides) < 1:
        return None
    return Picture(kind, *sides)


def kind_of(head: bytes) -> str | None:
    """Return the MIME type of the picture that begins with these bytes, or None."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def _png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif(data: bytes) -> tuple[int, int] | None:
    return (
        (int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
        if len(data) > 10
        else None
    )


def _webp(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at, lies = 2, False
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return None
        mark = data[at + 1]
        if mark in _START_OF_FRAME:
            height, width = int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
            return (height, width) if lies else (width, height)
        if mark == _EXIF and data[at + 4 : at + 10] == b"Exif\0\0":
            lies = _lies(data[at + 10 : at + 2 + int.from_bytes(data[at + 2 : at + 4])])
        # The first byte of a marker may be repeated any number of times.
        at += (
            1 if mark == 0xFF else 2 if mark in _ALONE else 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
        )
    return None


def _lies(exif: bytes) -> bool:
    """Return True if a photo lies on its side, so that it is shown with its sides swapped."""
    order: Literal["little", "big"] = "little" if exif[:2] == b"II" else "big"
    first = int.from_bytes(exif[4:8], order)
    end = first + 2 + 12 * int.from_bytes(exif[first : first + 2], order)
    for at in range(first + 2, min(end, len(exif)), 12):
        if int.from_bytes(exif[at : at + 2], order) == _ORIENTATION:
            return int.from_bytes(exif[at + 8 : at + 10], order) in _ON_ITS_SIDE
    return False


_SIDES: Mapping[str, Callable[[bytes], tuple[int, int] | None]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}
