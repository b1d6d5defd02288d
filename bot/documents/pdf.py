"""PDFs that people send: how many pages they have, and their text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

from bot.errors import NoReadableText

SHOWN_BYTES = 7_000_000
"""Bytes of one that is shown: in base64 they fit into an artifact."""
PROTECTED = "it is protected by a password"
SECONDS = 30.0
_PAGE_TOKENS = 1_600
"""Each page is shown as a picture too."""
_CHARACTERS_PER_TOKEN = 3
READER = Path(__file__).with_name("pdf_reader.py")


@dataclass(frozen=True, slots=True)
class Pdf:
    pages: int
    text: str

    @property
    def tokens(self) -> int:
        """Its share of a request where it is shown."""
        return self.pages * _PAGE_TOKENS + len(self.text) // _CHARACTERS_PER_TOKEN


async def read(data: bytes, most: int, *, reader: Path = READER, seconds: float = SECONDS) -> Pdf:
    """Pages and text of a PDF, of the text `most` characters, by the program `reader`. Raises `NoReadableText` where it cannot be read, or
    not in that time.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", str(reader), str(most), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}
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
    head, _, words = told.decode("utf-8", "replace").partition("\n")
    if not head:
        raise NoReadableText
    facts = json.loads(head)
    if facts.get("protected"):
        raise NoReadableText(PROTECTED, "locked")
    return Pdf(facts["pages"], words)
