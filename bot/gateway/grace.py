"""Grace: what was begun and must not be cut in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

GRACE_SECONDS = 3.0
"""What a send that has begun gets to end when its turn is stopped: else nobody would know what became of it."""


async def to_its_end(work: Coroutine[None, None, None]) -> None:
    """Await work that must not be cut in the middle: cancelled, it gets its grace before the caller goes."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # told and recorded already
        task.cancel()
        raise
