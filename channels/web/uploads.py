"""Receives files from a browser in pieces, one request for each piece. The size limit of requests thus
applies to each piece, and a lost piece can be sent again.

The state of an upload is only in the memory of this process. After a restart the page begins the upload
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal

from bot import errors
from bot.contracts.channel import FILE_PIECE
from bot.contracts.environment import Clock
from bot.contracts.inbound import Attachment
from channels.http_client import file_name
from channels.local import CHAT_ID
from channels.web.chat_files import ChatFile, ChatFiles, new_id
from channels.web.settings import KEYS

LARGEST = 20_000_000
"""Max bytes of a file: the same as for Telegram's bots."""
MOST_FILES = 10
"""Max files of a message."""
OF_CHAT, IN_ALL = 3, 16
"""Max concurrent uploads of one chat, and of all chats. The oldest uploads are dropped first."""
_KINDS: dict[str, Literal["photo", "video", "audio"]] = {"image": "photo", "video": "video", "audio": "audio"}
_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,80}")
_REF = re.compile(rf"({CHAT_ID.pattern}):([0-9A-Z]{{26}})")


@dataclass(slots=True)
class Upload:
    """An upload in progress: `have` of `size` bytes were received."""

    chat: str
    size: int
    have: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock while a piece is written."""


class Uploads:
    def __init__(self, received: ChatFiles, clock: Clock) -> None:
        self.received = received
        self._clock = clock
        self._under_way: OrderedDict[str, Upload] = OrderedDict()
        self._beginning = asyncio.Lock()

    async def begin(self, chat: str, name: str, mime: str, size: int) -> str:
        """Begin an upload of `size` bytes and return its id. Raises OSError."""
        # Uploads begin one at a time, so that concurrent uploads count each other.
        async with self._beginning:
            own = [id_ for id_, one in self._under_way.items() if one.chat == chat]
            for id_ in own[: max(0, len(own) + 1 - OF_CHAT)]:
                await self._drop(id_)
            for id_ in list(self._under_way)[: max(0, len(self._under_way) + 1 - IN_ALL)]:
                await self._drop(id_)
            id_ = new_id(self._clock.now())
            try:
                await asyncio.to_thread(
                    self.received.begin, id_, file_name(name.replace("/", "").replace("\\", "")), _typed(mime)
                )
            except OSError:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(self.received.drop, id_)
                raise
            self._under_way[id_] = Upload(chat, size)
        return id_

    def under_way(self, chat: str, id_: str) -> Upload | None:
        """Return an upload in progress of this chat, or None."""
        found = self._under_way.get(id_)
        return found if found is not None and found.chat == chat else None

    async def add(self, id_: str, upload: Upload, data: bytes) -> bool:
        """Write the next piece; return True once the file is complete. An OSError ends the upload."""
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
                # It is unknown how much of the piece was written, and a full disk needs the space, so the file is removed.
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
        """Remove an upload in progress, after the piece that is being written."""
        upload = self._under_way[id_]
        async with upload.writing:
            if self._under_way.pop(id_, None) is not None:
                await asyncio.to_thread(self.received.drop, id_)

    async def remove(self, chat: str, id_: str) -> None:
        """Remove a file, complete or in progress. Raises OSError."""
        if self.under_way(chat, id_) is not None:
            await self._drop(id_)
        await asyncio.to_thread(self.received.remove, KEYS.encode({"chat": chat}), id_)

    # -- complete files --------------------------------------------------------------------------------------

    async def attachment(self, chat: str, id_: str) -> Attachment | None:
        """Return a complete file of this chat as an attachment of a message, or None."""
        found = await asyncio.to_thread(self.received.find, KEYS.encode({"chat": chat}), id_)
        if found is None:
            return None
        file, mime = found
        kind = _KINDS.get(mime.partition("/")[0], "file")
        return Attachment(
            kind=kind, name=file.name or None, size=file.size, mime=mime or None, ref=f"{chat}:{id_}"
        )

    def shown(self, ref: object, name: object, size: object) -> ChatFile:
        """Return a file of an archived message as a browser shows it. Blocks."""
        match = _REF.fullmatch(ref) if isinstance(ref, str) else None
        kept = self.received.find(KEYS.encode({"chat": match[1]}), match[2]) if match is not None else None
        if kept is not None:
            return kept[0]
        return ChatFile("", name if isinstance(name, str) else "", size if isinstance(size, int) else 0)

    async def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file, as `contracts.channel.Files.fetch` does."""
        match = _REF.fullmatch(attachment.ref or "")
        if match is None:
            raise errors.FileGone("the message names no file of the page")
        try:
            found = await asyncio.to_thread(self.received.open, KEYS.encode({"chat": match[1]}), match[2])
            if found is None:
                raise errors.FileGone("the page's file is not kept any more")
            _, _, file = found
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


def _typed(mime: str) -> str:
    kind = mime.partition(";")[0].strip().lower()
    return kind if _TYPE.fullmatch(kind) else ""
