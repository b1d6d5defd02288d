"""Functions that build pictures of any size, and PDFs with any number of pages."""

from __future__ import annotations

import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 3, height: int = 2, *, more: bytes = b"") -> bytes:
    """Return a black picture; `more` is a comment in the file."""
    rows = zlib.compress((b"\0" + bytes(width)) * min(height, 1_000))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    comment = _chunk(b"tEXt", b"Comment\0" + more) if more else b""
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + comment + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    )


def jpeg(width: int, height: int) -> bytes:
    """Return the beginning of a picture file in which a thumbnail of another size precedes the picture."""
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


def pdf(*pages: str, more: bytes = b"") -> bytes:
    """Return a PDF with these texts, one per page; `more` is a comment in the file."""
    count = len(pages)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {count}/Kids[{' '.join(f'{4 + 2 * at} 0 R' for at in range(count))}]>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for at, words in enumerate(pages):
        shown = f"BT /F 12 Tf 20 20 Td ({words}) Tj ET".encode() if words else b""
        objects += [
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Resources<</Font<</F 3 0 R>>>>/Contents {5 + 2 * at} 0 R>>".encode(),
            b"<</Length %d>>stream\n%s\nendstream" % (len(shown), shown),
        ]
    data, places = b"%PDF-1.4\n" + (b"%" + more + b"\n" if more else b""), []
    for number, one in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return (
        data
        + b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (
            size,
            table,
            size,
            len(data),
        )
    )
