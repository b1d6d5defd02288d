"""An archive into which a test can write lines directly."""

from __future__ import annotations

from bot.contracts.messages import ArchiveLine
from bot.core.archive_files import ChatStore
from bot.storage import jsonl


class WrittenArchive(ChatStore):
    """An archive with a method that writes one line."""

    async def append(self, line: ArchiveLine) -> None:
        """Write a line; return when the line is on disk. Raises `errors.StorageError`."""
        fields = line.model_dump(by_alias=True)
        raw = jsonl.dumps({key: value for key, value in fields.items() if value is not None})
        await self.append_lines(jsonl.file_name(line.chat_key), [raw])
        await self.sync()
