"""Pictures of any size in few bytes."""

from __future__ import annotations

import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 3, height: int = 2, *, more: bytes = b"") -> bytes:
    """A black one; `more` is a comment in it."""
    rows = zlib.compress((b"\0" + bytes(width)) * min(height, 1_000))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    comment = _chunk(b"tEXt", b"Comment\0" + more) if more else b""
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + comment + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    )


def jpeg(width: int, height: int) -> bytes:
    """Its beginning, with a thumbnail of another size in the part before."""
    inner = b"\xff\xd8\xff\xc0\x00\x11\x08" + struct.pack(">HH", 9, 9) + bytes(10)
    part = b"\xff\xe1" + struct.pack(">H", len(inner) + 2) + inner
    frame = b"\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(10)
    return b"\xff\xd8" + part + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(4)


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8X":
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + bytes(5)
    else:
        body = bytes(6) + struct.pack("<HH", width, height)
    data = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(data)) + data
