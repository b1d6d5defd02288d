"""How fast what has to be durable becomes so: called by the bench, not collected as a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.archive import ArchiveLine
from bot.contracts.inbound import Inbound
from bot.history.archive.store import ChatStore
from bot.journal import SqliteJournal
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog


@dataclass(frozen=True, slots=True)
class Speed:
    """`p50` and `p99` are milliseconds of one call with nobody beside it, `rate` calls a second at once."""

    p50: float
    p99: float
    rate: float


async def journal_speed(folder: Path, *, calls: int = 5_000, at_once: int = 64) -> Speed:
    """Taking events into a fresh journal."""
    journal = SqliteJournal(folder / "journal.db", clock=SystemClock(), log=MemoryLog())
    await journal.open()

    async def receive(number: int) -> None:
        name = f"{number}"
        await journal.receive(
            Inbound(
                channel="telegram",
                chat_id=name,
                chat_key=f"telegram:chat:{number % 200}",
                chat_type="direct",
                user_id=name,
                keys=(f"update:{name}", f"message:{name}"),
                ts=number,
                target={"chat_id": name},
                text="a message of ordinary length " * 5,
                request_id=name,
            )
        )

    try:
        return await _measure(receive, calls, at_once)
    finally:
        await journal.close()


async def archive_speed(folder: Path, *, calls: int = 5_000, at_once: int = 64) -> Speed:
    """Appending lines of 20 chats to a fresh archive."""
    store = ChatStore(folder / "chats", disk=SystemDisk(), log=MemoryLog())

    async def append(number: int) -> None:
        key = f"telegram:chat:{number % 20}"
        await store.append(
            ArchiveLine(
                ts=number,
                channel="telegram",
                chat_id=f"{number % 20}",
                chat_key=key,
                role="user",
                text="a message of ordinary length " * 5,
            )
        )

    try:
        return await _measure(append, calls, at_once)
    finally:
        await store.close()


async def _measure(call: Callable[[int], Awaitable[None]], calls: int, at_once: int) -> Speed:
    alone = max(100, calls // 10)
    times: list[float] = []
    for number in range(alone):
        begun = time.perf_counter()
        await call(number)
        times.append((time.perf_counter() - begun) * 1000)
    times.sort()
    numbers = iter(range(alone, alone + calls))

    async def worker() -> None:
        for number in numbers:
            await call(number)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return Speed(times[alone // 2], times[alone * 99 // 100], calls / (time.perf_counter() - begun))
