"""Lets tests wait until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

UNTOLD_SECONDS = 0.02


class Changes:
    """Wakes waiters. Changes that nobody reports are noticed after 20 ms."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        """Wake everyone who waits for a condition."""
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until `condition()` holds. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                async with self._changed:
                    try:
                        async with asyncio.timeout(UNTOLD_SECONDS):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
