"""Runs the parsers of PDFs, office files and pictures (`bot.documents.reader`) in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

from bot.errors import NoReadableText
from bot.picture_head import MOST_BYTES, SHRUNK, SIDE, picture_of

SECONDS = 30.0
READER = Path(__file__).with_name("reader.py")
LARGEST = 16_000_000  # Max bytes of a picture. Larger pictures are refused instead of being shrunk.
PDF_BYTES = 7_000_000
"""Max bytes of a PDF that the model gets as a file. A PDF of this size, encoded in base64, fits into an artifact."""
_WHY: dict[str, str] = {
    "locked": "it is protected by a password",
    "too_much": "it is larger inside than what can be read",
}
_PAGE_TOKENS = 1_600
"""Estimated tokens of a PDF page's picture. The provider shows each page to the model as a picture and as text."""
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Pdf:
    pages: int
    text: str

    @property
    def tokens(self) -> int:
        """Return the estimated tokens that the PDF needs in a request if it is sent as a file."""
        return self.pages * _PAGE_TOKENS + len(self.text) // _CHARACTERS_PER_TOKEN


async def read_pdf(data: bytes, most: int) -> Pdf:
    """Return a PDF's number of pages and at most `most` characters of its text. Raises `NoReadableText`."""
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
    """Return the picture in a form that the provider accepts: as a small JPEG if the provider does not accept its format, if
    its sides are too long or if it has more than `most` bytes, otherwise unchanged. Raises `NoReadableText`.
    """
    picture = picture_of(data)
    if picture and max(picture.width, picture.height) <= SIDE and len(data) <= min(most, MOST_BYTES):
        return data
    return await run(data, "picture", str(SHRUNK))


async def run(data: bytes, *what: str, reader: Path = READER, seconds: float = SECONDS) -> bytes:
    """Run the program `reader` on a file and return its output. Raises `NoReadableText` after `seconds` seconds, or if the
    program writes nothing.
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
