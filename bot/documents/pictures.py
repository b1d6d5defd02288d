"""Recognises pictures that can be shown to a model, by their first bytes, and reads their size in pixels.
Pictures are not decompressed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.documents import parser_process

MOST_BYTES = 3_750_000
"""Max bytes of a picture. In base64 this is 5 MB, the limit of the provider."""
SIDE = 8_000
"""Max pixels of a picture's side."""
LARGEST = 16_000_000
"""Max bytes of a picture that is made smaller. A larger picture is refused."""
_SHRUNK = 1_568
"""Max pixels of the longer side. The provider shrinks larger pictures to this size."""
_PIXELS_PER_TOKEN = 750
_MOST_TOKENS = 1_600
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_HEIF = frozenset({b"avif", b"heic", b"heim", b"heis", b"heix", b"hevc", b"hevx", b"mif1", b"msf1"})
"""Picture formats that phones use. Such a picture is converted to JPEG before the model sees it."""
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
        scale = min(1.0, _SHRUNK / max(self.width, self.height))
        return min(_MOST_TOKENS, round(self.width * scale * self.height * scale / _PIXELS_PER_TOKEN) + 1)


def is_picture(head: bytes) -> bool:
    """Return True if the bytes are the beginning of a picture that can be shown, directly or after conversion."""
    return _kind(head) is not None or (head[4:8] == b"ftyp" and head[8:12] in _HEIF)


async def fitting(data: bytes, most: int) -> bytes:
    """Return the picture in a format and size that the provider accepts, in `most` bytes if possible. Raises
    `NoReadableText`.
    """
    picture = picture_of(data)
    if picture and max(picture.width, picture.height) <= SIDE and len(data) <= min(most, MOST_BYTES):
        return data
    return await parser_process.run(data, "picture", str(_SHRUNK))


def picture_of(data: bytes) -> Picture | None:
    """Return the picture in these bytes; None if the bytes are not a picture or if the picture's beginning
    is damaged.
    """
    kind = _kind(data)
    sides = _SIDES[kind](data) if kind is not None else None
    if kind is None or sides is None or min(sides) < 1:
        return None
    return Picture(kind, *sides)


def _kind(head: bytes) -> str | None:
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
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return None
        mark = data[at + 1]
        if mark in _START_OF_FRAME:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        # The first byte of a marker may be repeated any number of times.
        at += (
            1 if mark == 0xFF else 2 if mark in _ALONE else 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
        )
    return None


_SIDES: Mapping[str, Callable[[bytes], tuple[int, int] | None]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}
