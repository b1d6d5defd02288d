"""Files that a browser gives the page, in pieces of one request each: so the limits of all requests hold for them too, and a piece
that was lost is sent again.

An upload is known to this process alone. After a restart the page begins it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal

from bot import errors, text
from bot.contracts.channel import FILE_PIECE
from bot.contracts.environment import Clock
from bot.contracts.inbound import Attachment
from channels.local import CHAT_ID
from channels.web.chat_files import ChatFile, ChatFiles, new_id
from channels.web.settings import KEYS

LARGEST = 20_000_000
"""Bytes of a file: as many as Telegram gives a bot."""
MOST_FILES = 10
"""Files of a message."""
OF_CHAT, IN_ALL = 3, 16
"""Uploads under way; of more the oldest are given up."""
_NAME = 200
"""Characters of a file's name."""
_KINDS: dict[str, Literal["photo", "video", "audio"]] = {"image": "photo", "video": "video", "audio": "audio"}
_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,80}")
# Controls, the marks that turn the direction of writing, and what separates folders: a name must read as it is written.
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069/\\\\]")
_REF = re.compile(rf"({CHAT_ID.pattern}):([0-9A-Z]{{26}})")


@dataclass(slots=True)
class Upload:
    """One that is under way: `have` bytes of `size` have come."""

    chat: str
    size: int
    have: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a piece is written."""


class Uploads:
    def __init__(self, received: ChatFiles, clock: Clock) -> None:
        self.received = received
        self._clock = clock
        self._under_way: OrderedDict[str, Upload] = OrderedDict()
        self._beginning = asyncio.Lock()

    async def begin(self, chat: str, name: str, mime: str, size: int) -> str:
        """The id of a file whose `size` bytes come now. Raises OSError."""
        # One at a time: of many that come at once each counts those before it.
        async with self._beginning:
            own = [id_ for id_, one in self._under_way.items() if one.chat == chat]
            for id_ in own[: max(0, len(own) + 1 - OF_CHAT)]:
                await self._drop(id_)
            for id_ in list(self._under_way)[: max(0, len(self._under_way) + 1 - IN_ALL)]:
                await self._drop(id_)
            id_ = new_id(self._clock.now())
            try:
                await asyncio.to_thread(self.received.begin, id_, _named(name), _typed(mime))
            except OSError:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self.received.drop, id_)
                raise
            self._under_way[id_] = Upload(chat, size)
        return id_

    def under_way(self, chat: str, id_: str) -> Upload | None:
        """An upload of this chat; None where there is none of that id."""
        found = self._under_way.get(id_)
        return found if found is not None and found.chat == chat else None

    async def add(self, id_: str, upload: Upload, data: bytes) -> bool:
        """Take the next piece; True once the file is whole. Raises OSError, after which the upload is given up."""
        async with upload.writing:
            if self._under_way.get(id_) is not upload:
                return False
            try:
                if data:
                    await asyncio.to_thread(self.received.add, id_, data)
                upload.have += len(data)
                if upload.have < upload.size:
                    return False
                await asyncio.to_thread(self.received.finish, KEYS.encode({"chat": upload.chat}), id_)
            except OSError:
                # Nobody knows how much of it there is, and on a full disk it is in the way.
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self.received.drop, id_)
                del self._under_way[id_]
                raise
            except asyncio.CancelledError:
                del self._under_way[id_]
                raise
            del self._under_way[id_]
        return True

    async def _drop(self, id_: str) -> None:
        """Let go of one that is under way, once nothing of it is being written."""
        upload = self._under_way[id_]
        async with upload.writing:
            if self._under_way.pop(id_, None) is not None:
                await asyncio.to_thread(self.received.drop, id_)

    async def remove(self, chat: str, id_: str) -> None:
        """Let go of a file, whole or under way. Raises OSError."""
        if self.under_way(chat, id_) is not None:
            await self._drop(id_)
        await asyncio.to_thread(self.received.remove, KEYS.encode({"chat": chat}), id_)

    # ------------------------------------------------------------ whole ones

    async def attachment(self, chat: str, id_: str) -> Attachment | None:
        """A file of a message; None where this chat has none of that id."""
        found = await asyncio.to_thread(self.received.about, KEYS.encode({"chat": chat}), id_)
        if found is None:
            return None
        file, mime = found
        kind = _KINDS.get(mime.partition("/")[0], "file")
        return Attachment(
            kind=kind, name=file.name or None, size=file.size, mime=mime or None, ref=f"{chat}:{id_}"
        )

    def shown(self, ref: object, name: object, size: object) -> ChatFile:
        """A file of a message as browsers are told of it, from what is on file of it. Blocks."""
        match = _REF.fullmatch(ref) if isinstance(ref, str) else None
        kept = self.received.find(KEYS.encode({"chat": match[1]}), match[2]) if match is not None else None
        told = name if isinstance(name, str) else ""
        return kept or ChatFile("", told, size if isinstance(size, int) else 0)

    async def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """As `contracts.channel.Files.fetch`."""
        match = _REF.fullmatch(attachment.ref or "")
        if match is None:
            raise errors.FileGone("the message names no file of the page")
        try:
            found = await asyncio.to_thread(self.received.open, KEYS.encode({"chat": match[1]}), match[2])
            if found is None:
                raise errors.FileGone("the page's file is not kept any more")
            _, file = found
            try:
                left = most
                while piece := await asyncio.to_thread(file.read, min(FILE_PIECE, left) or 1):
                    if not left:
                        raise errors.FileTooLarge(f"it has more than {most} bytes")
                    left -= len(piece)
                    yield piece
            finally:
                file.close()
        except OSError as failure:
            raise errors.FileUnreachable(f"the page's file cannot be read ({failure.strerror})") from None


def ref_id(file: Attachment) -> str:
    """The id of a file of a message; "" where it is none of the page's."""
    match = _REF.fullmatch(file.ref or "")
    return match[2] if match is not None else ""


def _named(name: str) -> str:
    return text.head(_MARKS.sub("", text.clean(name)).strip(), _NAME)


def _typed(mime: str) -> str:
    kind = mime.partition(";")[0].strip().lower()
    return kind if _TYPE.fullmatch(kind) else ""
