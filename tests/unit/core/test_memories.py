"""A memory is on file whole, or the one before is; it says how far it reaches only where that is sure."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.provenance import Provenance
from bot.storage.notes import LARGEST_SESSION, Memories, SavedMemory, Written
from bot.system import SystemDisk

KEY = ChatKey.parse("telegram:chat:1")
WORDS = "## Facts\n- the ship is called 海 🚢"


class Full(SystemDisk):
    """A disk that is full after so many files."""

    def __init__(self, room: int) -> None:
        self.room = room

    def replace(self, path: Path, data: bytes) -> None:
        if not self.room:
            raise OSError(28, "No space left on device")
        self.room -= 1
        super().replace(path, data)


async def test_what_is_kept_is_there_again_and_belongs_to_its_chat(tmp_path: Path) -> None:
    memories = Memories(tmp_path, disk=SystemDisk())
    assert await memories.load(KEY) is None
    await memories.forget(KEY)
    await memories.save(KEY, SavedMemory(WORDS, "01X", 5, 6))
    again = Memories(tmp_path, disk=SystemDisk())
    assert await again.load(KEY) == SavedMemory(WORDS, "01X", 5, 6)
    assert await again.load(ChatKey.parse("telegram:chat:2")) is None
    assert (tmp_path / "telegram%3Achat%3A1" / "session.md").stat().st_mode & 0o777 == 0o600
    await again.forget(KEY)
    assert await again.load(KEY) is None


@pytest.mark.parametrize("change", ["words", "facts", "torn"])
async def test_where_something_was_changed_nobody_says_how_far_it_reaches(
    tmp_path: Path, change: str
) -> None:
    memories = Memories(tmp_path, disk=SystemDisk())
    await memories.save(KEY, SavedMemory(WORDS, "01X", 5, 6))
    folder = tmp_path / "telegram%3Achat%3A1"
    if change == "words":
        (folder / "session.md").write_text(WORDS + "\n- and more", encoding="utf-8")
    else:
        (folder / "covers.json").write_bytes(b"[1]\n" if change == "facts" else b'{"v": 1, "cov')
    kept = await memories.load(KEY)
    assert kept is not None
    assert kept.covers is None
    assert kept.markdown.startswith(WORDS)


async def test_a_crash_between_both_files_leaves_words_of_unknown_reach(tmp_path: Path) -> None:
    await Memories(tmp_path, disk=SystemDisk()).save(KEY, SavedMemory("old", "01X"))
    with pytest.raises(errors.StorageError):
        await Memories(tmp_path, disk=Full(1)).save(KEY, SavedMemory("new", "01Y"))
    assert await Memories(tmp_path, disk=SystemDisk()).load(KEY) == SavedMemory("new", None)


async def test_a_disk_that_refuses_leaves_the_memory_that_was_there(tmp_path: Path) -> None:
    await Memories(tmp_path, disk=SystemDisk()).save(KEY, SavedMemory("old", "01X"))
    with pytest.raises(errors.StorageError):
        await Memories(tmp_path, disk=Full(0)).save(KEY, SavedMemory("new", "01Y"))
    assert await Memories(tmp_path, disk=SystemDisk()).load(KEY) == SavedMemory("old", "01X")


async def test_a_file_that_is_no_memory_for_its_size_is_not_read(tmp_path: Path) -> None:
    memories = Memories(tmp_path, disk=SystemDisk())
    await memories.save(KEY, SavedMemory("x" * (LARGEST_SESSION + 1), "01X"))
    assert await memories.load(KEY) is None


class Slow(SystemDisk):
    """A disk that takes its time for the first file."""

    def __init__(self) -> None:
        self.begun, self.may = threading.Event(), threading.Event()

    def replace(self, path: Path, data: bytes) -> None:
        self.begun.set()
        self.may.wait(90)
        super().replace(path, data)


async def test_what_is_forgotten_while_it_is_written_does_not_come_back(tmp_path: Path) -> None:
    disk = Slow()
    memories = Memories(tmp_path, disk=disk)
    saving = asyncio.create_task(memories.save(KEY, SavedMemory(WORDS, "01X")))
    await asyncio.to_thread(disk.begun.wait, 90)
    saving.cancel()
    await asyncio.wait([saving])
    forgetting = asyncio.create_task(memories.forget(KEY))
    await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    disk.may.set()
    await forgetting
    while list(tmp_path.glob("*/*")):
        await asyncio.to_thread(lambda: None)
    assert await memories.load(KEY) is None


async def test_what_is_on_its_way_when_it_is_forgotten_does_not_arrive(tmp_path: Path) -> None:
    begun, may = threading.Event(), threading.Event()

    class Late(Provenance):
        def packed(self) -> Any:
            begun.set()
            may.wait(90)
            return super().packed()

    memories = Memories(tmp_path, disk=SystemDisk())
    saving = asyncio.create_task(memories.save(KEY, SavedMemory(WORDS, "01X", origin=Late())))
    await asyncio.to_thread(begun.wait, 90)
    await memories.forget(KEY)
    may.set()
    await saving
    assert await memories.load(KEY) is None


async def test_the_span_of_a_source_is_kept(tmp_path: Path) -> None:
    memories, lines = Memories(tmp_path, disk=SystemDisk()), len(WORDS.split("\n"))
    one = Written(5, "01A", KEY, None)
    until, anything = replace(one, span="up_to"), replace(one, request_id="", span="any")
    await memories.save(KEY, SavedMemory(WORDS, "01X", 5, 6, written=((one, until, anything),) * lines))
    kept = await memories.load(KEY)
    assert kept is not None
    assert set(kept.written) == {(one, until, anything)}
