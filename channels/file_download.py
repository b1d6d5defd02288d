"""Files that came with messages: their names, and their bytes in bounded chunks."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import aiohttp

from bot import errors, text
from bot.contracts.channel import FILE_PIECE

HEADERS = {"Accept-Encoding": "identity"}
"""Request headers that forbid compression: a small compressed file may unpack to any size."""
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
"""Exceptions of a failed connection, including timeouts."""
LONGEST_NAME = 200
"""Max characters of a file's name."""
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def file_name(name: str) -> str:
    """Return a file's name without control characters, direction marks and line breaks, which could make the
    name look like another one.
    """
    return text.head(_MARKS.sub("", text.clean(name)).strip(), LONGEST_NAME)


async def read_chunks(answer: aiohttp.ClientResponse, most: int, size: int | None) -> AsyncGenerator[bytes]:
    """Yield the body of a response in chunks, as `contracts.channel.Files.fetch` does. `size` is the
    expected length in bytes, if known.
    """
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise errors.FileUnreachable("the file is compressed")
    received = 0
    while piece := await answer.content.read(FILE_PIECE):
        if fits := piece[: max(0, most - received)]:
            yield fits
        received += len(piece)
        if received > most:
            raise errors.FileTooLarge(f"the file has more than {most} bytes")
    if size is not None and received != size:
        raise errors.FileUnreachable(f"received {received} of {size} bytes")


def check_status(status: int, who: str) -> None:
    """Raise `errors.FileUnreachable` or `errors.FileGone` for any status but 200. Redirects raise too:
    following a redirect would leak the token.
    """
    if status == 429 or status >= 500:
        raise errors.FileUnreachable(f"{who} answers {status}")
    if status != 200:
        raise errors.FileGone(f"{who} answers {status}")
