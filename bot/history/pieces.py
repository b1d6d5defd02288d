"""Lines of a file of any size, read in pieces: forwards, or backwards from its end."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from bot.contracts.environment import OpenFile

PIECE = 64 * 1024
"""Bytes that are read at once. A line that is longer is put together of several."""


def lines(file: OpenFile, start: int = 0) -> Iterator[bytes]:
    """Every line behind the first `start` bytes without its newline, first to last; what stands behind the last newline
    too, where it is not empty.
    """
    line: list[bytes] = []
    for piece in _pieces(file, file.size, start):
        first, *others = piece.split(b"\n")
        line.append(first)
        if others:
            yield b"".join(line)
            yield from others[:-1]
            line = [others[-1]]
    if any(line):
        yield b"".join(line)


def lines_backwards(file: OpenFile, size: int | None = None) -> Iterator[bytes]:
    """The lines of the first `size` bytes (all, where that is None), last to first; the last one is empty where the
    file ends with a newline.
    """
    at = file.size if size is None else size
    line: list[bytes] = []  # its pieces, last to first
    while at > 0:
        begin = max(0, at - PIECE)
        first, *others = file.read(begin, at - begin).split(b"\n")
        at = begin
        if others:
            line.append(others.pop())
            yield b"".join(reversed(line))
            yield from reversed(others)
            line = []
        line.append(first)
    if line:
        yield b"".join(reversed(line))


def count_lines(file: OpenFile, size: int) -> int:
    """Count the lines in the first `size` bytes, an unfinished last one included."""
    count, end = 0, b"\n"
    for piece in _pieces(file, size):
        count += piece.count(b"\n")
        end = piece[-1:]
    return count + (end != b"\n")


def characters(file: OpenFile, start: int) -> Iterator[str]:
    """The text behind the first `start` bytes; what is no UTF-8 in it as U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in _pieces(file, file.size, start):
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _pieces(file: OpenFile, size: int, start: int = 0) -> Iterator[bytes]:
    at = start
    while at < size and (piece := file.read(at, min(PIECE, size - at))):
        yield piece
        at += len(piece)
