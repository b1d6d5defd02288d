"""Runs the parsers of PDFs and pictures (`bot.documents.reader`) in a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from bot.errors import NoReadableText

SECONDS = 30.0
READER = Path(__file__).with_name("reader.py")


async def run(data: bytes, *what: str, reader: Path = READER, seconds: float = SECONDS) -> bytes:
    """The output of the program `reader`, asked `what` of a file. Raises `NoReadableText` where there is none, or not in that time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", str(reader), *what, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}
    )
    try:
        async with asyncio.timeout(seconds):
            told, _ = await process.communicate(data)
    except TimeoutError:
        raise NoReadableText from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if not told:
        raise NoReadableText
    return told
