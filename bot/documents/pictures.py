"""Pictures that can be shown to a model, directly or after a change in the process that reads documents."""

from __future__ import annotations

from bot.documents import parser_process
from bot.picture_head import SHRUNK, kind_of, picture_of

MOST_BYTES = 3_750_000
"""Max bytes of a picture. In base64 this is 5 MB, the limit of the provider."""
SIDE = 8_000
"""Max pixels of a picture's side."""
LARGEST = 16_000_000
"""Max bytes of a picture that is made smaller. A larger picture is refused."""
_HEIF = frozenset({b"avif", b"heic", b"heim", b"heis", b"heix", b"hevc", b"hevx", b"mif1", b"msf1"})
"""Picture formats that phones use. Such a picture is converted to JPEG before the model sees it."""


def is_picture(head: bytes) -> bool:
    """Return True if the bytes are the beginning of a picture that can be shown, directly or after conversion."""
    return kind_of(head) is not None or (head[4:8] == b"ftyp" and head[8:12] in _HEIF)


async def fitting(data: bytes, most: int) -> bytes:
    """Return the picture in a format and size that the provider accepts, in `most` bytes if possible. Raises
    `NoReadableText`.
    """
    picture = picture_of(data)
    if picture and max(picture.width, picture.height) <= SIDE and len(data) <= min(most, MOST_BYTES):
        return data
    return await parser_process.run(data, "picture", str(SHRUNK))
