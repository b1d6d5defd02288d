"""Streams the bytes of a file from a platform in bounded chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp

from bot import errors
from bot.contracts.channel import FILE_PIECE

HEADERS = {"Accept-Encoding": "identity"}
"""A file comes as it is: packed, a small one may be of any size."""
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
"""Failures of a connection, time-outs among them."""


async def read_chunks(answer: aiohttp.ClientResponse, most: int, size: int | None) -> AsyncGenerator[bytes]:
    """The body of an answer, as `contracts.channel.Files.fetch` gives it; it has to have `size` bytes where that is known."""
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise errors.FileUnreachable("the file came packed")
    came = 0
    while piece := await answer.content.read(FILE_PIECE):
        if fits := piece[: max(0, most - came)]:
            yield fits
        came += len(piece)
        if came > most:
            raise errors.FileTooLarge(f"the file has more than {most} bytes")
    if size is not None and came != size:
        raise errors.FileUnreachable(f"{came} of {size} bytes came")


def check_status(status: int, who: str) -> None:
    """Raises `errors.FileUnreachable` or `errors.FileGone` for any status but 200. A redirect is not followed: it would
    pass the token on.
    """
    if status == 429 or status >= 500:
        raise errors.FileUnreachable(f"{who} answers {status}")
    if status != 200:
        raise errors.FileGone(f"{who} answers {status}")
