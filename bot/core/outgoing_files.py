"""Stores the files that outbox rows will send. A file's name is its SHA-256. A file is written to disk before its row is
queued, and deleted once no outbox row refers to it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import re
import unicodedata
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bot import errors, text
from bot.contracts.messages import OutgoingFile
from bot.core.chats import Chats
from bot.core.events import StoredFile
from bot.core.services import Services

LONGEST_NAME = 120  # Max characters of a file name that is sent to a platform
MOST_WAITING = 200_000_000  # Max total bytes of the files that wait to be sent
PIECE = 32_768
"""Number of bytes of a file that are searched for secrets at a time. The regex search of one piece blocks all Python threads."""
LONGEST_SECRET = 8_192
"""Number of bytes by which two searched pieces of a file overlap, so that no secret is split between them."""
_UNSAFE = re.compile(
    r'[\x00-\x1f\x7f-\x9f"\\/:*?<>|\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]'
)
"""Pattern of unsafe characters: they have a special meaning in paths or headers, or invisibly change the order of a text."""


def shown_name(name: str) -> str:
    """Return the name under which a file is sent. It has no unsafe characters and at most `LONGEST_NAME` characters. A
    shortened name keeps its extension.
    """
    name = _UNSAFE.sub("_", unicodedata.normalize("NFC", text.clean(name))).strip(" .")
    stem, dot, ending = name.rpartition(".")
    if len(name) > LONGEST_NAME and dot and len(ending) <= 20:
        return f"{text.head(stem, LONGEST_NAME - len(ending) - 1)}.{ending}"
    return text.head(name, LONGEST_NAME) or "file"


@dataclass(eq=False)
class OutgoingFiles:
    """Stores outgoing files in `.ship/outgoing`. The disk is only used on worker threads, because it blocks."""

    services: Services
    chats: Chats

    def __post_init__(self) -> None:
        self.folder = self.services.settings.home / "outgoing"
        self._alone = asyncio.Lock()
        """Lock whose holder stores files and queues their rows, or deletes a file that no row refers to."""
        self._started = False

    async def start(self) -> None:
        """Allow `sweep` to delete files. Call this after all chats with unsent rows are loaded."""
        self._started = True
        await self.sweep()

    async def check(self, channel: str, file: OutgoingFile) -> None:
        """Raise `errors.FileRefused` if a file has an invalid size or contains a secret, or if the channel cannot send files."""
        sender = self.services.channels[channel]
        if not sender.largest_file:
            raise errors.FileRefused("this chat cannot show files")
        most = min(self.services.settings.delivery.max_file_mb * 1_000_000, sender.largest_file)
        size = len(file.data)
        if not 0 < size <= most:
            raise errors.FileRefused(
                f"{file.name} has {size:,} bytes, and a file that is sent has 1 to {most:,}"
            )
        name, path = self.services.redact(file.name), self.services.redact(file.path)
        if (name, path) != (file.name, file.path) or await self._holds_secret(file.data):
            raise errors.FileRefused(f"{name} holds a secret of this installation")

    async def _holds_secret(self, data: bytes) -> bool:
        wide = {codecs.BOM_UTF16_LE: ["utf-16-le"], codecs.BOM_UTF16_BE: ["utf-16-be"]}.get(data[:2])

        def shows_secret(piece: bytes) -> bool:
            for encoding in wide or ("utf-8", "latin-1"):
                words = piece.decode(encoding, "replace")
                if self.services.redact(words) != words:
                    return True
                if "\ufffd" not in words[4:-4]:  # the ends are ignored, since a piece may cut a character
                    return False
            return False

        for begin in range(0, len(data), PIECE):
            if await asyncio.to_thread(shows_secret, data[begin : begin + PIECE + LONGEST_SECRET]):
                return True
        return False

    @contextlib.asynccontextmanager
    async def kept(self, files: Sequence[OutgoingFile]) -> AsyncIterator[list[StoredFile]]:
        """Store files, and keep them during the `with` block. The block queues the rows that refer to the files, and must
        not wait. Raises `errors.FileRefused`.
        """
        found = [
            StoredFile(shown_name(one.name), one.mime_type, len(one.data), await _digest(one.data), one.path)
            for one in files
        ]
        if found and sum(self._sizes().values()) + sum(one.size for one in found) > MOST_WAITING:
            raise errors.FileRefused("too many files wait for their platforms")
        async with self._alone:
            try:
                for one, file in zip(found, files, strict=True):
                    await asyncio.to_thread(self.services.disk.replace, self.folder / one.sha256, file.data)
            except OSError as error:
                words = "a file cannot be kept for sending"
                self.services.log.write("storage", words, level="error", cause=str(error))
                raise errors.FileRefused("the disk does not take the file") from error
            yield found

    async def load(self, stored: StoredFile) -> OutgoingFile:
        """Return the stored file of an outbox row. Raises `errors.FileRefused` if the file is missing or damaged."""
        try:
            data = await asyncio.to_thread(self.services.disk.read, self.folder / stored.sha256)
        except OSError as error:
            raise errors.FileRefused(f"the kept file cannot be read: {error.strerror}") from error
        if await _digest(data) != stored.sha256:
            raise errors.FileRefused("the kept file is gone or damaged")
        return OutgoingFile(stored.name, stored.mime_type, data, stored.path)

    async def sweep(self) -> None:
        """Delete files that no outbox row refers to."""
        if not self._started:
            return
        try:
            for name in await asyncio.to_thread(self.services.disk.names, self.folder):
                async with self._alone:
                    if name not in self._sizes():
                        await asyncio.to_thread(self.services.disk.remove, self.folder / name)
        except OSError as error:
            self.services.log.write("storage", "a file that was sent stays", level="warn", cause=str(error))

    def _sizes(self) -> dict[str, int]:
        rows = (row for chat in self.chats for row in chat.outbox.values())
        return {row.file.sha256: row.file.size for row in rows if row.file is not None}


async def _digest(data: bytes) -> str:
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
