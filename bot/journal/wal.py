"""Reads SQLite's write-ahead log, to tell damage from an unfinished tail.

SQLite stops at the first frame whose checksum is wrong and says nothing: after a kill that is right, since what
follows was never acknowledged. But an acknowledged change ends with a frame that commits it. Where one stands behind a
frame that does not fit, the disk has changed or lost what was written. A change that was cut off has none, and may have
frames that do not fit: SQLite mends the checksums of those that it wrote twice when it commits.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

HEADER = 32
FRAME = 24
_MAGIC = 0x377F0682


def damage(path: Path, good: int | None) -> str:
    """The damage of a log of which SQLite accepts `good` frames (None: not asked yet); "" where there is none.

    Reads the header and the frames behind the last good one.
    """
    try:
        with path.open("rb") as log:
            return _damage(log, good)
    except FileNotFoundError:
        return ""  # whoever closes the journal last takes it away, at any moment


def _damage(log: BinaryIO, good: int | None) -> str:
    header = log.read(HEADER)
    if len(header) < HEADER:
        return ""
    magic, _, size, _, _, _, sum_1, sum_2 = struct.unpack(">8I", header)
    if magic & ~1 != _MAGIC:
        return "its beginning cannot be read"
    order = ">" if magic & 1 else "<"
    if _checksum(header[:24], order, 0, 0) != (sum_1, sum_2):
        return "its beginning does not fit its checksum"
    if good is None:
        return ""
    frames = _Frames(log, 65_536 if size == 1 else size)
    sums = frames.head(good - 1)[16:] if good else header[24:]
    last = frames.last_commit(good, header[16:24])
    wrong = frames.first_wrong(good, last, header[16:24], struct.unpack(">2I", sums), order)
    return "" if wrong is None else f"frame {wrong + 1} does not fit its checksum"


class _Frames:
    """The whole frames of a log."""

    def __init__(self, log: BinaryIO, size: int) -> None:
        self._log = log
        self._size = size
        self._count = (os.fstat(log.fileno()).st_size - HEADER) // (FRAME + size)

    def head(self, number: int) -> bytes:
        self._log.seek(HEADER + number * (FRAME + self._size))
        return self._log.read(FRAME)

    def last_commit(self, first: int, salts: bytes) -> int:
        """The last frame that commits a change; one before the `first` where there is none. Frames with other salts are
        left over from before the log was begun anew.
        """
        for number in range(self._count - 1, first - 1, -1):
            head = self.head(number)
            if head[8:16] == salts and head[4:8] != bytes(4):
                return number
        return first - 1

    def first_wrong(
        self, first: int, last: int, salts: bytes, sums: tuple[int, int], order: str
    ) -> int | None:
        """The first frame whose salts or checksum do not fit."""
        for number in range(first, last + 1):
            head = self.head(number)
            sums = _checksum(head[:8], order, *sums)
            sums = _checksum(self._log.read(self._size), order, *sums)
            if head[8:16] != salts or struct.unpack(">2I", head[16:]) != sums:
                return number
        return None


def _checksum(data: bytes, order: str, one: int, two: int) -> tuple[int, int]:
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
