"""Room for what comes in: many turns that could begin at once begin one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

REST = 0.05
"""Seconds between the beginnings of two turns while more comes in than is taken in at once."""


class StartThrottle:
    """A pass of the event loop between the beginnings of two turns, and a rest while much comes in at once.

    A turn costs many times what taking in a message costs. If all that can begin began at once, a message that comes
    then would wait behind every step of every one of them, and its platform would give up waiting.
    """

    def __init__(self, go_on: Callable[[], None], rush: Callable[[], bool]) -> None:
        self._go_on = go_on
        self._rush = rush
        self.taken = False
        """Whether nothing may begin now; `go_on` is called once it may."""

    def take(self) -> None:
        """A turn has begun."""
        self.taken = True
        asyncio.get_running_loop().call_soon(self._passed)

    def _passed(self) -> None:
        if self._rush():
            asyncio.get_running_loop().call_later(REST, self._over)
        else:
            self._over()

    def _over(self) -> None:
        self.taken = False
        self._go_on()
