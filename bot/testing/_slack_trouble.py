"""A base class of `SlackServer` that causes faults between Slack and the app: lost or silent sockets, and late, repeated or
reordered events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from bot.testing._slack_link import Delivery, Link
from bot.testing.loopback import Loopback

Order = Callable[[Sequence[Delivery]], Sequence[Delivery]]


class FaultInjection(Loopback):
    """Adds fault methods to `SlackServer`. `Loopback.fail` makes single requests fail."""

    link: Link
    _storm: asyncio.Task[None] | None = None

    def limit(self, method: str, retry_after: str | None = "1", times: int = 1) -> None:
        """Answer the next `times` calls of `method` with 429."""
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
        """Abort the connections of all sockets; with `politely`, close the sockets properly instead."""
        await self.link.cut(politely=politely)

    def storm(self, every: float) -> None:
        """Cut all sockets every `every` seconds until `calm` is called."""
        self.calm()
        self._storm = asyncio.create_task(self._storming(every))

    def calm(self) -> None:
        if self._storm is not None:
            self._storm.cancel()
            self._storm = None

    async def _storming(self, every: float) -> None:
        while True:
            await self.clock.sleep(every)
            await self.link.cut(politely=False)

    async def deafen(self, *, answering: bool = True) -> None:
        """Send nothing more to the sockets that are open now: no events, no pings, no close. With `answering=False`,
        also ignore what the app sends.
        """
        self.link.deafen(answering=answering)
        await self.changed()

    async def ping(self) -> None:
        """Ping every socket; `pongs` counts the answers."""
        await self.link.ping()

    # Events

    async def redeliver(
        self, delivery: Delivery, *, attempt: int = 1, reason: str = "timeout", times: int = 1
    ) -> list[Delivery]:
        """Send an earlier delivery `times` more times, each time with a new envelope id, even if the app acknowledged it."""
        copies = [Delivery(delivery.kind, delivery.payload, retry=(attempt, reason)) for _ in range(times)]
        for copy in copies:
            self.link.send(copy)
        await self.changed()
        return copies

    def hold(self) -> None:
        """Hold all events back until `release` is called. The Web API still shows each change at once."""
        self.link.held = [] if self.link.held is None else self.link.held

    def release(self, order: Order | None = None) -> list[Delivery]:
        """Send the held events in the order returned by `order` (such as `reversed`); return the deliveries."""
        held, self.link.held = self.link.held or [], None
        sent = list(order(held)) if order is not None else held
        for delivery in sent:
            self.link.send(delivery)
        return sent

    async def stop(self) -> None:
        """Stop the server; unacknowledged events are not sent again."""
        self.calm()
        await self.link.stop()
        await super().stop()
