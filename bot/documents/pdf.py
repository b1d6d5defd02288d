"""PDFs that people send: how many pages they have, and their text."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bot.documents import parser_process
from bot.errors import NoReadableText

SHOWN_BYTES = 7_000_000
"""Bytes of one that is shown: in base64 they fit into an artifact."""
PROTECTED = "it is protected by a password"
_PAGE_TOKENS = 1_600
"""Each page is shown as a picture too."""
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Pdf:
    pages: int
    text: str

    @property
    def tokens(self) -> int:
        """Its share of a request where it is shown."""
        return self.pages * _PAGE_TOKENS + len(self.text) // _CHARACTERS_PER_TOKEN


async def read(data: bytes, most: int) -> Pdf:
    """Pages and text of a PDF, of the text `most` characters. Raises `NoReadableText` where it cannot be read."""
    head, _, words = (
        (await parser_process.run(data, "pdf", str(most))).decode("utf-8", "replace").partition("\n")
    )
    facts = json.loads(head)
    if facts.get("protected"):
        raise NoReadableText(PROTECTED, "locked")
    return Pdf(facts["pages"], words)
