"""Files of messages: their names, and their bytes in bounded chunks."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import aiohttp

from bot import errors, text
from bot.contracts.channel import FILE_PIECE

HEADERS = {"Accept-Encoding": "identity"}
"""Files are not compressed: a small compressed one may unpack to any size."""
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
"""Failures of a connection, timeouts included."""
LONGEST_NAME = 200
"""Max characters of a file's name."""
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def file_name(name: str) -> str:
    """A file's name without controls, direction marks and line breaks, which would make it read as another name."""
    return text.head(_MARKS.sub("", text.clean(name)).strip(), LONGEST_NAME)


async def read_chunks(answer: aiohttp.ClientResponse, most: int, size: int | None) -> AsyncGenerator[bytes]:
    """The body of a response, as `contracts.channel.Files.fetch` gives it. `size` is its expected length, where known."""
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
    """Raises `errors.FileUnreachable` or `errors.FileGone` for any status but 200. Redirects are not followed: they would leak the
    token.
    """
    if status == 429 or status >= 500:
        raise errors.FileUnreachable(f"{who} answers {status}")
    if status != 200:
        raise errors.FileGone(f"{who} answers {status}")
