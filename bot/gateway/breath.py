"""Room for what comes in: many turns that could begin at once begin one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bot.contracts import Clock

LONG_PASS = 0.002
"""Seconds that one pass of the event loop may take before turns that could begin have to wait."""
REST = 4.0
"""How many times as long as that pass they wait then."""
LONGEST_REST = 0.05
STANDSTILL = 1.0
"""A pass that took longer than this tells of a machine that slept."""


class Breath:
    """A pass of the event loop between the beginnings of two turns, and more of them where it has much to do.

    A turn costs many times what taking in a message costs. If all that can begin began at once, a message that comes
    then would wait behind every step of every one of them, and its platform would give up waiting. Where there is
    little to do the passes take microseconds, and nobody notices.
    """

    def __init__(self, clock: Clock, go_on: Callable[[], None]) -> None:
        self._clock = clock
        self._go_on = go_on
        self.taken = False
        """Whether nothing may begin now; `go_on` is called once it may."""

    def take(self) -> None:
        """A turn has begun."""
        self.taken = True
        asyncio.get_running_loop().call_soon(self._passed, self._clock.monotonic())

    def _passed(self, began: float) -> None:
        took = self._clock.monotonic() - began
        if LONG_PASS < took < STANDSTILL:
            asyncio.get_running_loop().call_later(min(took * REST, LONGEST_REST), self._over)
        else:
            self._over()

    def _over(self) -> None:
        self.taken = False
        self._go_on()
