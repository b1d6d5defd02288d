"""Lines as they come from a terminal, a pipe or a file, without blocking the loop."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator
from typing import TextIO


async def read_lines(stdin: TextIO) -> AsyncIterator[str]:
    """Every line without its end. Reads the descriptor itself, so that no thread holds `stdin` at exit."""
    try:
        descriptor = stdin.fileno()
    except (OSError, ValueError):  # in memory
        for line in stdin:
            yield line.rstrip("\r\n")
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while data := await _read(descriptor):
        *whole, rest = (rest + decoder.decode(data)).split("\n")
        for line in whole:
            yield line.rstrip("\r")
    if rest:
        yield rest


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a regular file: always readable, and no selector takes it
        return await asyncio.to_thread(os.read, descriptor, 1 << 16)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 1 << 16)
