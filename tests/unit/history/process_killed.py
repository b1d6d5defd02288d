"""Forks a child for each write of a scripted chat, kills it there (kill -9), and prints what is left as JSON.

FOLDER WHEN ARCHIVE_AFTER_LINES COUNT
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import cast

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.history.archive.store import ChatStore
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk, When
from bot.testing.log import MemoryLog

KEY = ChatKey.parse("web:chat:1")


def store(folder: Path, limit: int, disk: Disk) -> ChatStore:
    return ChatStore(folder, disk=disk, log=MemoryLog(), archive_after_lines=limit)


async def child(chats: ChatStore, count: int, told: int) -> None:
    for number in range(count):
        await chats.append(
            ArchiveLine(ts=number, channel="web", chat_id="1", chat_key=KEY, role="user", text=f"t{number}")
        )
        os.write(told, b".")
    await chats.close()


async def found(chats: ChatStore) -> list[str]:
    page = await chats.search(KEY, HistoryQuery(limit=1_000))
    return [line.text for line in page.lines]


def run(folder: Path, when: str, limit: int, count: int, at: int) -> bool:
    """One child that dies at its `at`-th write; False where it came to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    reading, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        disk = FaultyDisk(SystemDisk())
        disk.fail(Failure(at=at, when=cast("When", when), then="kill"))
        asyncio.run(child(store(folder, limit, disk), count, told))
        os._exit(0)
    os.close(told)
    with os.fdopen(reading, "rb") as pipe:
        acknowledged = len(pipe.read())
    _, status = os.waitpid(pid, 0)
    texts = asyncio.run(found(store(folder, limit, SystemDisk())))
    signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    sys.stdout.write(
        json.dumps({"at": at, "signal": signal, "acknowledged": acknowledged, "found": texts}) + "\n"
    )
    return signal == 9


def main(folder: str, when: str, limit: str, count: str, stride: str) -> None:
    at = 1
    while run(Path(folder), when, int(limit), int(count), at):
        at += int(stride)


main(*sys.argv[1:])
