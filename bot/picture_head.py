"""Recognises pictures by their first bytes, and reads their size in pixels without decompressing them."""

from __future__ import annotations

from dataclasses import dataclass

SHRUNK = 1_568  # Max pixels of the longer side. The provider shrinks a larger picture to this size.
_PIXELS_PER_TOKEN = 750
_MOST_TOKENS = 1_600
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
MOST_BYTES = 3_750_000  # Max bytes of a picture. In base64 this is 5 MB, which is the provider's limit.
SIDE = 8_000  # Max pixels of each side of a picture
_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_HEIF = frozenset({b"avif", b"heic", b"heim", b"heis", b"heix", b"hevc", b"hevx", b"mif1", b"msf1"})
"""Picture formats of phones. Such a picture is converted to JPEG for the model."""


@dataclass(frozen=True, slots=True)
class Picture:
    type: str
    width: int
    height: int

    @property
    def tokens(self) -> int:
        """Return the number of tokens that the picture takes in a request."""
        scale = min(1.0, SHRUNK / max(self.width, self.height))
        return min(_MOST_TOKENS, round(self.width * scale * self.height * scale / _PIXELS_PER_TOKEN) + 1)


def picture_of(data: bytes) -> Picture | None:
    """Return the picture in these bytes; None if they are not a picture or the beginning is damaged."""
    kind = kind_of(data)
    sides = None
    if kind == "image/png" and data[12:16] == b"IHDR":
        sides = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    elif kind == "image/gif":
        sides = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif kind == "image/webp":
        sides = _webp(data)
    elif kind == "image/jpeg":
        sides = _jpeg(data)
    return Picture(kind, *sides) if kind is not None and sides is not None and min(sides) > 0 else None


def kind_of(head: bytes) -> str | None:
    """Return the MIME type of the picture that begins with these bytes; None if they begin no picture."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def is_picture(head: bytes) -> bool:
    """Return True if the bytes begin a picture that the model can see, directly or after conversion."""
    return kind_of(head) is not None or (head[4:8] == b"ftyp" and head[8:12] in _HEIF)


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if mark in _START_OF_FRAME:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        # The first byte of a marker may be repeated any number of times.
        at += 1 if mark == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
