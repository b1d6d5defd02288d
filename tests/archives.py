"""An archive into which a test can write lines directly."""

from __future__ import annotations

import asyncio

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.core.archive.store import ChatStore
from bot.storage import file_names, jsonl


class WrittenArchive(ChatStore):
    """An archive with a method that writes one line."""

    async def append(self, line: ArchiveLine) -> None:
        """Write a line; return when the line is on disk. Raises `errors.StorageError`."""
        with errors.as_storage_error("the archive cannot be written"):
            await asyncio.to_thread(self._put, line)

    def _put(self, line: ArchiveLine) -> None:
        fields = line.model_dump(by_alias=True)
        raw = jsonl.dumps({key: value for key, value in fields.items() if value is not None})
        with jsonl.locked(self.folder):
            self.tidy_once()
            self.write_some(file_names.encode(line.chat_key), [raw], sync=True)
