"""Faults between Slack and an app, on command: sockets that fall or go deaf, events late, twice, in
another order. `SlackServer` has all of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from bot.testing._slack_link import Delivery, Link
from bot.testing.loopback import Loopback

Order = Callable[[Sequence[Delivery]], Sequence[Delivery]]


class FaultInjection(Loopback):
    """The part of `SlackServer` that makes trouble. The rest of a request's trouble is `Loopback.fail`."""

    link: Link
    _storm: asyncio.Task[None] | None = None

    def limit(self, method: str, retry_after: str | None = "1", times: int = 1) -> None:
        """Answer the next calls of `method` with 429; `retry_after` is the header, None for none."""
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        body = {"ok": False, "error": "ratelimited"}
        self.fail(method, status=429, headers=headers, body=body, times=times)

    # Sockets

    async def disconnect(self, reason: Any = "refresh_requested") -> None:
        """Ask every client to open a new socket, as Slack does every few hours."""
        await self.link.broadcast(
            {"type": "disconnect", "reason": reason, "debug_info": {"host": "loopback"}}
        )

    async def cut_sockets(self, *, politely: bool = False) -> None:
        """Cut the connections under all sockets, or close them (politely)."""
        await self.link.cut(politely=politely)

    def storm(self, every: float) -> None:
        """Cut all sockets again and again, `every` so many seconds, until `calm`."""
        self.calm()
        self._storm = asyncio.create_task(self._storming(every))

    def calm(self) -> None:
        """End a storm."""
        if self._storm is not None:
            self._storm.cancel()
            self._storm = None

    async def _storming(self, every: float) -> None:
        while True:
            await self.clock.sleep(every)
            await self.link.cut(politely=False)

    async def deafen(self, *, answering: bool = True) -> None:
        """From now on nothing comes through the sockets that are open: no event, no ping, no goodbye. Pings of
        the app are answered, or not even these. Sockets that open later are well.
        """
        self.link.deafen(answering=answering)
        await self.changed()

    async def ping(self) -> None:
        """Ping every socket; answers count in `pongs`."""
        await self.link.ping()

    # Events

    async def redeliver(
        self, delivery: Delivery, *, attempt: int = 1, reason: str = "timeout", times: int = 1
    ) -> list[Delivery]:
        """Send what was delivered before under new envelope ids, whether it was confirmed or not. Slack's own
        three repeats come by themselves where an ack is missing, the last six minutes after the first try.
        """
        copies = [Delivery(delivery.kind, delivery.payload, retry=(attempt, reason)) for _ in range(times)]
        for copy in copies:
            self.link.send(copy)
        await self.changed()
        return copies

    def hold(self) -> None:
        """Keep events back until `release`; what people do meanwhile is seen at once."""
        self.link.held = [] if self.link.held is None else self.link.held

    def release(self, order: Order | None = None) -> list[Delivery]:
        """Send what was held, in the order that `order` makes of it (`reversed` will do); what was sent."""
        held, self.link.held = self.link.held or [], None
        sent = list(order(held)) if order is not None else held
        for delivery in sent:
            self.link.send(delivery)
        return sent

    def release_shuffled(self, seed: int) -> list[Delivery]:
        """Send what was held in an order that `seed` decides."""
        return self.release(lambda held: random.Random(seed).sample(held, len(held)))

    async def stop(self) -> None:
        """Stop listening; what was not acked by now is not sent again."""
        self.calm()
        await self.link.stop()
        await super().stop()
