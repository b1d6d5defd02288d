"""Waiting in tests until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

UNTOLD_SECONDS = 0.02


class Changes:
    """Wakes the tasks that wait for a condition. Each waiting task also checks its condition every 20 ms, in
    case nobody reports a change.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        """Wake all tasks that wait for a condition."""
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until `condition()` holds. Raises TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds):
            while not condition():
                async with self._changed:
                    try:
                        async with asyncio.timeout(UNTOLD_SECONDS):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
