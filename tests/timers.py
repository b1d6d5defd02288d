"""Moves the event loop's timers forward. A test can then wait for a timeout without making the timeout
short, and a busy machine does not exceed it by accident.
"""

from __future__ import annotations

import asyncio
from typing import Any


def leap(seconds: float) -> None:
    """Move the timers of the running event loop forward by `seconds`."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def leap_until_done(task: asyncio.Future[Any], seconds: float) -> None:
    """Move the timers forward by `seconds` again and again until the task has ended."""
    while not task.done():
        leap(seconds)
        await asyncio.wait([task], timeout=0.01)
