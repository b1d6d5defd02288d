"""An archive into which a test can write lines directly."""

from __future__ import annotations

import asyncio

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.core.archive_files import ChatStore
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
        name = file_names.encode(line.chat_key)
        with jsonl.locked(self.files.folder):
            self.append_lines(name, [raw])
            self.sync([name])
