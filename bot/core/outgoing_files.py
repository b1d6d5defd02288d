"""Files to send, from the moment a message is queued until its outbox row has ended. A file is named by its
SHA-256. It is on disk before the event that names it, and stays while an outbox row refers to it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from bot import errors, text
from bot.contracts.channel import Channel, SendsFiles
from bot.contracts.environment import Disk, Log, Redact
from bot.contracts.outbound import OutgoingFile
from bot.core.chats import Chats
from bot.core.events import StoredFile

LONGEST_NAME = 120
"""Max characters of a file name."""
PIECE = 32_768
"""Bytes of a file that are searched for secrets at once, since a regex search holds the interpreter lock."""
LONGEST_SECRET = 8_192
"""Bytes by which two pieces overlap."""
_UNSAFE = re.compile(
    r'[\x00-\x1f\x7f-\x9f"\\/:*?<>|\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]'
)
"""Pattern for characters that have a meaning in paths or headers, and for characters that reorder text."""


def shown_name(name: str) -> str:
    """Return a file's name as sent to platforms: in any script, on one line, with its extension even if the
    name is shortened.
    """
    name = _UNSAFE.sub("_", unicodedata.normalize("NFC", text.clean(name))).strip(" .")
    stem, dot, ending = name.rpartition(".")
    if len(name) > LONGEST_NAME and dot and len(ending) <= 20:
        return f"{text.head(stem, LONGEST_NAME - len(ending) - 1)}.{ending}"
    return text.head(name, LONGEST_NAME) or "file"


@dataclass(frozen=True, slots=True)
class OutgoingLimits:
    """Max bytes of one file, and max bytes of all waiting files."""

    file: int = 20_000_000
    total: int = 200_000_000


@dataclass(eq=False)
class OutgoingFiles:
    """Store of outgoing files in `folder`. `disk` may block; it is used on other threads."""

    folder: Path
    channels: Mapping[str, Channel]
    chats: Chats
    _: KW_ONLY
    disk: Disk
    redact: Redact
    log: Log
    limits: OutgoingLimits

    def __post_init__(self) -> None:
        self._keeping = Counter[str]()
        """Numbers of pending uses of files whose rows are about to be queued, by file name."""
        self._alone = asyncio.Lock()
        """Lock that is taken while a file is written or deleted."""
        self._started = False

    async def start(self) -> None:
        """Begin deleting files without an outbox row. Call this after all chats with open rows are loaded."""
        self._started = True
        await self.sweep()

    async def check(self, channel: str, file: OutgoingFile) -> None:
        """Raise `errors.FileRefused` for a file that must not be sent or that this channel cannot receive."""
        sender = self.channels[channel]
        if not isinstance(sender, SendsFiles):
            raise errors.FileRefused("this chat cannot show files")
        most, size = min(self.limits.file, sender.largest_file), len(file.data)
        if not 0 < size <= most:
            raise errors.FileRefused(
                f"{file.name} has {size:,} bytes, and a file that is sent has 1 to {most:,}"
            )
        name, path = self.redact(file.name), self.redact(file.path)
        if (name, path) != (file.name, file.path) or await self._holds_secret(file.data):
            raise errors.FileRefused(f"{name} holds a secret of this installation")

    async def _holds_secret(self, data: bytes) -> bool:
        """Return True if a file contains one of our secrets as text in a usual encoding."""
        wide = {codecs.BOM_UTF16_LE: ["utf-16-le"], codecs.BOM_UTF16_BE: ["utf-16-be"]}.get(data[:2])

        def shows_secret(piece: bytes) -> bool:
            for encoding in wide or ("utf-8", "latin-1"):
                words = piece.decode(encoding, "replace")
                if self.redact(words) != words:
                    return True
                if "\ufffd" not in words[4:-4]:  # letters at both ends may be incomplete
                    return False
            return False

        for begin in range(0, len(data), PIECE):
            if await asyncio.to_thread(shows_secret, data[begin : begin + PIECE + LONGEST_SECRET]):
                return True
        return False

    @contextlib.asynccontextmanager
    async def kept(self, files: Sequence[OutgoingFile]) -> AsyncIterator[list[StoredFile]]:
        """Store these files and protect them from deletion inside the `with` block, which queues their rows.
        Raises `errors.FileRefused`.
        """
        found = [
            StoredFile(shown_name(one.name), one.mime_type, len(one.data), await _digest(one.data), one.path)
            for one in files
        ]
        if sum(self._sizes().values()) + sum(one.size for one in found) > self.limits.total:
            raise errors.FileRefused("too many files wait for their platforms")
        names = [one.sha256 for one in found]
        self._keeping.update(names)
        try:
            for name, one in zip(names, files, strict=True):
                async with self._alone:
                    await asyncio.to_thread(self.disk.replace, self.folder / name, one.data)
            yield found
        except OSError as error:
            self.log.write("storage", "a file cannot be kept for sending", level="error", cause=str(error))
            raise errors.FileRefused("the disk does not take the file") from error
        finally:
            self._keeping.subtract(names)

    async def load(self, stored: StoredFile) -> OutgoingFile:
        """Return the stored file of an outbox row. Raises `errors.FileRefused` if the file is missing or damaged."""
        try:
            data = await asyncio.to_thread(self.disk.read, self.folder / stored.sha256)
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
            for name in await asyncio.to_thread(self.disk.names, self.folder):
                async with self._alone:
                    if not self._keeping[name] and name not in self._sizes():
                        await asyncio.to_thread(self.disk.remove, self.folder / name)
        except OSError as error:
            self.log.write("storage", "a file that was sent stays", level="warn", cause=str(error))

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of files that outbox rows refer to, by file name."""
        rows = (row for chat in self.chats for row in chat.outbox.values())
        return {row.file.sha256: row.file.size for row in rows if row.file is not None}


async def _digest(data: bytes) -> str:
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
