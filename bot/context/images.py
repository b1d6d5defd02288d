"""Reads the size of an image from its first bytes."""

from __future__ import annotations

import base64
import binascii
import struct

LOOKED_AT = 256 * 1024  # characters of base64; a JPEG's size may stand behind a preview
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The segments of a JPEG that hold its size."""


def size(data: str) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, WebP or JPEG in base64; None for what is none of these."""
    try:
        raw = base64.b64decode(data[: LOOKED_AT - LOOKED_AT % 4], validate=True)
        found = _png(raw) or _gif(raw) or _webp(raw) or _jpeg(raw)
    except (ValueError, binascii.Error, struct.error, IndexError):
        return None
    return found if found is not None and min(found) > 0 else None


def _png(raw: bytes) -> tuple[int, int] | None:
    if not raw.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    width, height = struct.unpack_from(">II", raw, 16)
    return width, height


def _gif(raw: bytes) -> tuple[int, int] | None:
    if not raw.startswith((b"GIF87a", b"GIF89a")):
        return None
    width, height = struct.unpack_from("<HH", raw, 6)
    return width, height


def _webp(raw: bytes) -> tuple[int, int] | None:
    if raw[:4] != b"RIFF" or raw[8:12] != b"WEBP":
        return None
    kind = raw[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", raw, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", raw, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    return None


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    if not raw.startswith(b"\xff\xd8"):
        return None
    at = 2
    while raw[at] == 0xFF:
        if raw[at + 1] in _FRAMES:
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        at += 2 + struct.unpack_from(">H", raw, at + 2)[0]
    return None
