"""What a disk refuses waits in memory, within bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.history.archive.store import ChatStore
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog


async def test_lines_that_wait_for_the_disk_take_so_much_memory_and_no_more(
    store: Callable[..., ChatStore],
    said: Callable[..., ArchiveLine],
    log: MemoryLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.history.archive.store.KEPT_BYTES", 5_000)
    disk = FaultyDisk(SystemDisk())
    chats = store(disk=disk)
    disk.fail(Failure(times=None))
    for number in range(10):
        with pytest.raises(errors.StorageError):
            await chats.append(said(f"{number} " + "字" * 300, f"web:chat:{number % 2}"))
    assert sum(len(entry.raw) for kept in chats.kept.values() for entry in kept) <= 5_000
    lost = [line.details["lost"] for line in log.at("error") if "lost" in line.details]
    assert sum(lost) == 10 - sum(map(len, chats.kept.values()))
    assert "are lost: there is no room for more in memory" in log.at("error")[-1].message
    disk.mend()
    await chats.append(said("after"))
    (page,) = [await chats.search(ChatKey.parse("web:chat:1"), HistoryQuery())]
    assert [line.text.split()[0] for line in page.lines] == ["1", "3", "after"]
    await chats.close()
