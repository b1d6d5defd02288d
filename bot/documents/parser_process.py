"""Runs the parsers of PDFs, office files and pictures (`bot.documents.reader`) in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

from bot.errors import FileCode, NoReadableText
from bot.picture_head import MOST_BYTES, SHRUNK, SIDE, picture_of

SECONDS = 30.0
READER = Path(__file__).with_name("reader.py")
LARGEST = 16_000_000
"""Max bytes of a picture that is made smaller. A larger picture is refused."""
PDF_BYTES = 7_000_000
"""Max bytes of a PDF that is shown to the model. In base64 such a PDF fits into an artifact."""
_WHY: dict[FileCode, str] = {
    "locked": "it is protected by a password",
    "too_much": "it is larger inside than what can be read",
}
_PAGE_TOKENS = 1_600
"""Number of tokens of a PDF page as a picture. The provider shows the model a picture of each page in
addition to the text.
"""
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Pdf:
    pages: int
    text: str

    @property
    def tokens(self) -> int:
        """Return the number of tokens of a request that the PDF takes when it is shown to the model."""
        return self.pages * _PAGE_TOKENS + len(self.text) // _CHARACTERS_PER_TOKEN


async def read_pdf(data: bytes, most: int) -> Pdf:
    """Return the number of pages and at most `most` characters of text. Raises `NoReadableText`."""
    facts, words = await _read("pdf", data, most)
    return Pdf(facts["pages"], words)


async def read_office(data: bytes, most: int) -> str:
    """Return at most `most` characters of an office file's text. Raises `NoReadableText`."""
    return (await _read("office", data, most))[1]


async def _read(kind: str, data: bytes, most: int) -> tuple[dict[str, int], str]:
    head, _, words = (await run(data, kind, str(most))).decode("utf-8", "replace").partition("\n")
    facts = json.loads(head)
    if (code := facts.get("code")) is not None:
        raise NoReadableText(_WHY[code], code)
    return facts, words


async def fitting(data: bytes, most: int) -> bytes:
    """Return the picture in a format and size that the provider accepts, in `most` bytes if possible. Raises
    `NoReadableText`.
    """
    picture = picture_of(data)
    if picture and max(picture.width, picture.height) <= SIDE and len(data) <= min(most, MOST_BYTES):
        return data
    return await run(data, "picture", str(SHRUNK))


async def run(data: bytes, *what: str, reader: Path = READER, seconds: float = SECONDS) -> bytes:
    """Return the output that the program `reader` gives for a file. Raises `NoReadableText` if there is no
    output within `seconds`.
    """
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
