"""After a crash, the new or the old memory is complete. A memory names its last message only if that is certain."""

from __future__ import annotations

from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.storage.notes import LARGEST_SESSION, NoteStore
from bot.system import SystemDisk

KEY = ChatKey.parse("telegram:chat:1")
WORDS = "## Facts\n- the ship is called 海 🚢"


async def test_what_is_kept_is_there_again_and_belongs_to_its_chat(tmp_path: Path) -> None:
    memories = NoteStore(tmp_path, disk=SystemDisk())
    assert await memories.load_session(KEY) is None
    await memories.save_session(KEY, WORDS)
    again = NoteStore(tmp_path, disk=SystemDisk())
    assert await again.load_session(KEY) == WORDS
    assert await again.load_session(ChatKey.parse("telegram:chat:2")) is None
    assert (tmp_path / "telegram%3Achat%3A1" / "session.md").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_is_no_memory_for_its_size_is_not_read(tmp_path: Path) -> None:
    memories = NoteStore(tmp_path, disk=SystemDisk())
    await memories.save_session(KEY, "x" * (LARGEST_SESSION + 1))
    assert await memories.load_session(KEY) is None
