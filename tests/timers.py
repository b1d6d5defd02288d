"""Real timers of the event loop, brought forward: a limit that a test lets pass needs no small number, which a busy machine passes too."""

from __future__ import annotations

import asyncio
from typing import Any


def leap(seconds: float) -> None:
    """Let time pass for the timers of the running event loop."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def leap_until_done(task: asyncio.Future[Any], seconds: float) -> None:
    """Let limits of so many seconds pass until the task has ended."""
    while not task.done():
        leap(seconds)
        await asyncio.wait([task], timeout=0.01)
