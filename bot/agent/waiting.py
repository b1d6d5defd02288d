"""Waiting for a task for so long at the most."""

from __future__ import annotations

import asyncio
from typing import Any

from bot.contracts.environment import Clock


async def ends_within(seconds: float, task: asyncio.Task[Any], clock: Clock) -> bool:
    """True if a task ends within this time; after it, it goes on by itself."""
    patience = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait([task, patience], return_when=asyncio.FIRST_COMPLETED)
    finally:
        patience.cancel()
    return task.done()


async def give_up(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
