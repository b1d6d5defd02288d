"""The server side of Slack's Socket Mode: tickets, sockets, envelopes, acknowledgements and redelivery."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from bot.contracts.base import Json
from bot.contracts.environment import Clock, cancel_all
from bot.testing._slack_requests import RequestUrl

ACK_SECONDS = 3.0
RETRIES = (0.0, 60.0, 300.0)
"""Intervals in seconds before the first, second and third redelivery of an event that the app did not acknowledge."""
MAX_SOCKETS = 10
PING = b"loopback"
SILENT_PINGS = 3
"""Max pings without an answer or another frame from the client. Then the server closes the socket."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A payload that is sent to the app. `reply` is the payload of the app's acknowledgement, if it has a payload."""

    kind: str
    payload: Any
    attempts: int = 0
    acked: asyncio.Event = field(default_factory=asyncio.Event)
    reply: Any = None
    given_up: bool = False
    retry: tuple[int, str] = (0, "")
    """Retry number and reason that the first attempt sends to the app; 0 and "" if that attempt is no retry."""


class Link:
    """Sends each payload over one of the sockets. Repeats the payload until the app acknowledges it or no attempts are left."""

    def __init__(
        self, clock: Clock, changed: Callable[[], Awaitable[None]], app_id: str, ping_every: float
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.sockets: dict[web.WebSocketResponse, web.Request] = {}
        self.pongs = 0
        self.pinged = 0
        self.held: list[Delivery] | None = None
        """Payloads that wait for `release`; None while payloads are sent at once."""
        self.requests: RequestUrl | None = None
        """Request URL that receives the payloads over HTTP; None while the payloads are sent over sockets."""
        self.ping_every = ping_every
        self._deaf: dict[web.WebSocketResponse, bool] = {}
        self._end = asyncio.Event()
        self._clock = clock
        self._changed = changed
        self._app_id = app_id
        self._tickets: set[str] = set()
        self._waiting: dict[str, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard: dict[web.WebSocketResponse, float] = {}
        """Time (monotonic seconds) at which each pinged socket last sent a frame."""
        self._rng = random.Random(0)

    def ticket(self) -> str:
        """Return a ticket with which a client can open one socket."""
        ticket = secrets.token_hex(16)
        self._tickets.add(ticket)
        return ticket

    def admit(self, ticket: str) -> None:
        """Consume a ticket. Raises `HTTPForbidden` if the ticket is unknown or was already used."""
        if ticket not in self._tickets:
            raise web.HTTPForbidden
        self._tickets.discard(ticket)

    def send(self, delivery: Delivery) -> None:
        if self.held is not None:
            self.held.append(delivery)
            return
        self.deliveries.append(delivery)
        self._spawn(self._deliver(delivery))

    def deafen(self, *, answering: bool) -> None:
        self._deaf.update(dict.fromkeys(self.sockets, answering))

    async def broadcast(self, message: Json) -> None:
        for socket in self._speaking():
            with contextlib.suppress(ConnectionError):
                await socket.send_json(message)

    async def ping(self) -> None:
        for socket in self._speaking():
            with contextlib.suppress(ConnectionError):
                await socket.ping(PING)

    def _speaking(self) -> list[web.WebSocketResponse]:
        return [socket for socket in self.sockets if socket not in self._deaf]

    async def cut(self, *, politely: bool) -> None:
        for socket, request in list(self.sockets.items()):
            if politely:
                await socket.close()
            elif request.transport is not None:
                request.transport.abort()

    async def stop(self) -> None:
        self._end.set()
        await cancel_all(self._tasks)
        await self.cut(politely=False)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one socket from the `hello` message until the socket closes."""
        socket = web.WebSocketResponse(autoping=False, autoclose=False)
        await socket.prepare(request)
        self._end.clear()
        if len(self.sockets) >= MAX_SOCKETS:
            await socket.send_json({"type": "disconnect", "reason": "too_many_websockets"})
            await socket.close()
            return socket
        self.sockets[socket] = request
        try:
            await socket.send_json(
                {
                    "type": "hello",
                    "num_connections": len(self.sockets),
                    "connection_info": {"app_id": self._app_id},
                    "debug_info": {"host": "loopback", "approximate_connection_time": 18060},
                }
            )
            await self._changed()
            if self.ping_every:
                self._spawn(self._pinging(socket))
            await self.listen(socket)
        finally:
            del self.sockets[socket]
            await self._changed()
        if self._deaf.get(socket) is False:
            await self._end.wait()
        await socket.close()
        self._deaf.pop(socket, None)
        return socket

    async def _pinging(self, socket: web.WebSocketResponse) -> None:
        self._heard[socket] = self._clock.monotonic()
        while socket in self.sockets and not socket.closed:
            if self._clock.monotonic() - self._heard[socket] > SILENT_PINGS * self.ping_every:
                transport = self.sockets[socket].transport
                if transport is not None:
                    transport.abort()
                break
            if socket not in self._deaf:
                with contextlib.suppress(ConnectionError):
                    await socket.ping(PING)
            await self._clock.sleep(self.ping_every)
        del self._heard[socket]

    async def listen(self, socket: web.WebSocketResponse) -> None:
        async for frame in socket:
            if self._deaf.get(socket) is False:
                continue
            if socket in self._heard:
                self._heard[socket] = self._clock.monotonic()
            if frame.type is WSMsgType.PING:
                self.pinged += 1
                await socket.pong(frame.data)
            elif frame.type is WSMsgType.PONG:
                self.pongs += frame.data == PING
            elif frame.type is WSMsgType.TEXT:
                answer = json.loads(frame.data)
                delivery = self._waiting.get(answer.get("envelope_id"))
                if delivery is not None:
                    delivery.reply = answer.get("payload")
                    delivery.acked.set()
            await self._changed()

    async def _deliver(self, delivery: Delivery) -> None:
        due = self._clock.monotonic()
        for wait in (0.0, *RETRIES) if delivery.kind == "events_api" else (0.0,):
            await self._until(due + wait)
            due = await self._attempt(delivery)
            if delivery.acked.is_set():
                return
        delivery.given_up = True
        await self._changed()

    async def _attempt(self, delivery: Delivery) -> float:
        """Send a payload once and wait for its acknowledgement. Return the monotonic time at which Slack stops waiting."""
        now, attempt = self._clock.monotonic(), delivery.attempts
        delivery.attempts += 1
        if self.requests is not None:
            number, reason = delivery.retry
            retry = (number + attempt, "http_error" if attempt else reason)
            if await self.requests.deliver(delivery.kind, delivery.payload, retry=retry):
                delivery.acked.set()
            await self._changed()
            return now
        sockets = [socket for socket in self.sockets if not socket.closed]
        if not sockets:
            await self._changed()
            return now
        envelope_id = secrets.token_hex(16)
        self._waiting[envelope_id] = delivery
        envelope: Json = {"envelope_id": envelope_id, "type": delivery.kind, "payload": delivery.payload}
        envelope["accepts_response_payload"] = delivery.kind != "events_api"
        if delivery.kind == "events_api":
            number, reason = delivery.retry
            again = "timeout" if attempt else reason
            envelope |= {"retry_attempt": number + attempt, "retry_reason": again}
        socket = self._rng.choice(sockets)
        if socket not in self._deaf:
            with contextlib.suppress(ConnectionError):
                await socket.send_json(envelope)
        await self._changed()
        await self._first(delivery.acked.wait(), self._until(now + ACK_SECONDS))
        return now + ACK_SECONDS

    @staticmethod
    async def _first(*works: Coroutine[Any, Any, Any]) -> None:
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all(tasks)

    async def _until(self, due: float) -> None:
        # A test may move the clock during the sleep, so compute the remaining time again after each sleep.
        while (left := due - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
