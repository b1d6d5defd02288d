"""Appends lines to an archive from a process of its own: FOLDER NAME COUNT ARCHIVE_AFTER_LINES."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bot.contracts.archive import ArchiveLine
from bot.history.archive.store import ChatStore
from bot.system import SystemDisk
from bot.testing.log import MemoryLog


async def main(folder: str, who: str, count: str, limit: str) -> None:
    store = ChatStore(Path(folder), disk=SystemDisk(), log=MemoryLog(), archive_after_lines=int(limit))
    for number in range(int(count)):
        await store.append(
            ArchiveLine(
                ts=number,
                channel="web",
                chat_id="1",
                chat_key="web:chat:1",
                role="user",
                text=f"{who}:{number}",
            )
        )
    await store.close()


asyncio.run(main(*sys.argv[1:]))
