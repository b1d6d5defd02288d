"""Measures how fast messages become durable. The bench calls this module; pytest does not collect it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.core.chats import Fact
from tests.bench import past


@dataclass(frozen=True, slots=True)
class Speed:
    """Times of a durable write. `p50` and `p99` are milliseconds of a call without other calls; `rate` is
    the number of calls per second with many callers at once.
    """

    p50: float
    p99: float
    rate: float


async def log_speed(folder: Path, *, calls: int = 5_000, at_once: int = 64) -> Speed:
    """Measure storing messages of 200 chats in a new log."""
    async with past.opened(folder / "log") as (log, chats):

        async def receive(number: int) -> None:
            chat = await chats.get(ChatKey.parse(f"telegram:chat:{number % 200}"))
            chats.append(Fact(chat.key, next(past.turn(chat.key, f"{number}")), id=f"{number}"))
            await log.committed()

        return await _measure(receive, calls, at_once)


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
