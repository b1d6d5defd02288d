"""A condition variable for tests: a test waits until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

UNTOLD_SECONDS = 0.02


class Changes:
    """Lets tasks wait for conditions. `tell` makes each waiting task check its condition. Each task also checks every 20 ms,
    because some changes are not reported.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        """Make all waiting tasks check their conditions."""
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
