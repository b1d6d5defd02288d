"""Throttles turn starts: one per pass of the event loop, 50 ms apart while much comes in, so that intake stays responsive."""

from __future__ import annotations

import asyncio

from bot.gateway.in_flight import InFlight

REST = 0.05
"""Seconds between the beginnings of two turns while more comes in than is taken in at once."""


class StartThrottle:
    """A turn costs many times what taking in a message costs. If all that can begin began at once, a message that comes
    then would wait behind every step of every one of them, and its platform would give up waiting.
    """

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    async def rest(self) -> None:
        """Return once the next turn may begin."""
        await asyncio.sleep(0)
        if self._in_flight.burst:
            await asyncio.sleep(REST)
