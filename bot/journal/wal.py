"""Reads SQLite's write-ahead log, to tell damage from an unfinished tail.

SQLite stops at the first frame whose checksum is wrong and says nothing: after a kill that is right, since what
follows was never acknowledged. But a kill leaves whole frames whole. A complete frame with a wrong checksum means
that the disk has changed or lost what was written, and an acknowledged change may have stood there.
"""

from __future__ import annotations

import struct
from pathlib import Path

HEADER = 32
FRAME = 24
_MAGIC = 0x377F0682


def damage(path: Path, good: int | None) -> str:
    """The damage of a log of which SQLite accepts `good` frames (None: not asked yet); "" where there is none.

    Reads the header and the frames behind the last good one.
    """
    data = path.read_bytes() if path.exists() else b""
    if len(data) < HEADER:
        return ""
    header = data[:HEADER]
    magic, _, size, _, salt_1, salt_2, sum_1, sum_2 = struct.unpack(">8I", header)
    if magic & ~1 != _MAGIC:
        return "its beginning cannot be read"
    order = ">" if magic & 1 else "<"
    if _checksum(header[:24], order, 0, 0) != (sum_1, sum_2):
        return "its beginning does not fit its checksum"
    if good is None:
        return ""
    return _behind(data, good, 65_536 if size == 1 else size, (salt_1, salt_2), order)


def _behind(data: bytes, good: int, size: int, salts: tuple[int, int], order: str) -> str:
    start = HEADER + good * (FRAME + size)
    sums = struct.unpack(">2I", data[24:HEADER])
    if good:
        sums = struct.unpack(">2I", data[start - size - 8 : start - size])
    while start + FRAME + size <= len(data):
        frame = data[start : start + FRAME + size]
        if struct.unpack(">2I", frame[8:16]) != salts:
            return ""  # left over from before the log was begun anew
        sums = _checksum(frame[:8], order, *sums)
        sums = _checksum(frame[FRAME:], order, *sums)
        if struct.unpack(">2I", frame[16:FRAME]) != sums:
            return f"frame {(start - HEADER) // (FRAME + size) + 1} does not fit its checksum"
        start += FRAME + size
    return ""


def _checksum(data: bytes, order: str, one: int, two: int) -> tuple[int, int]:
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
