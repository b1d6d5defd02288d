"""Slack's Socket Mode client, with the parts of the library replaced that lose time or messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from slack_bolt.adapter.socket_mode.async_base_handler import AsyncBaseSocketModeHandler
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import LOOPBACK
from bot.contracts.environment import Clock, Log, cancel_all, ends_within
from channels.slack import failures

CONNECT_SECONDS = 15.0
HELLO_SECONDS = 15.0
LONGEST_WAIT = 30.0
FREE_SOCKETS = 10
"""New sockets in a row that need not wait: one that falls is replaced at once, a storm of falls is slowed down."""
SOCKET_EVERY = 0.5
"""Seconds after which one more is free."""
DRAIN_SECONDS = 2.5
"""Seconds a closing connection waits for events that are being taken in; Slack's patience is 3 s."""

GOODBYE_SECONDS = 1.0

KeepDeadLetter = Callable[[Any, str], Awaitable[None]]
MALFORMED = (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError)


class LibraryLog(logging.Logger):
    """Logs the place and kind of what Slack's libraries log, without their texts, which hold messages and addresses."""

    def __init__(self, log: Log) -> None:
        super().__init__("shipmate.slack", logging.ERROR)
        self._operator = log

    def handle(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        self._operator.write(
            "channel",
            "Slack's library reports trouble",
            level="warn",
            where=record.funcName,
            error=None if kind is None else kind.__name__,
        )


class EventAcknowledger(AsyncMiddleware):
    """First middleware of bolt: acknowledges an event once `take` has returned, and not if it raises."""

    def __init__(self, take: Callable[[Json], Awaitable[None]]) -> None:
        self._take = take

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,  # noqa: ARG002  (bolt passes these by name)
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002, ARG002
    ) -> BoltResponse:
        await self._take(req.body)
        return BoltResponse(status=200, body="")


class EnvelopeHandler(AsyncBaseSocketModeHandler):
    """Hands envelopes to bolt; one that bolt cannot read is acknowledged once it is a dead letter."""

    app: AsyncApp

    def __init__(self, app: AsyncApp, client: SocketConnection, keep_dead_letter: KeepDeadLetter) -> None:
        self.app = app
        self.client = client
        self._keep_dead_letter = keep_dead_letter
        client.socket_mode_request_listeners.append(self.handle)

    async def handle(self, client: AsyncBaseSocketModeClient, req: SocketModeRequest) -> None:
        try:
            request = AsyncBoltRequest(mode="socket_mode", body=req.payload)
        except MALFORMED:
            await self._keep_dead_letter(req.payload, "the envelope is malformed")
            response = BoltResponse(status=200, body="")
        else:
            response = await self.app.async_dispatch(request)
        await send_async_response(client, req, response, 0.0)


class SocketConnection(SocketModeClient):
    """Slack's Socket Mode client with other habits: each try asks for a new address (an address works once), waits grow
    up to 30 s (also where Slack does not greet on an open socket), a broken socket is noticed by the frame that says
    so, tasks are held until they end, and closing waits for events that are being taken in.

    `last_heard` is the time of the last frame that Slack sent by itself. An answer to our own ping does not count: it
    proves a line, not that events still come through it.
    """

    def __init__(
        self,
        *,
        app_token: str,
        web_client: AsyncWebClient,
        clock: Clock,
        rng: random.Random,
        log: Log,
        keep_dead_letter: KeepDeadLetter,
        ping_interval: float,
        pace: float,
    ) -> None:
        super().__init__(
            app_token, logger=web_client.logger, web_client=web_client, ping_interval=ping_interval
        )
        self.proxy = web_client.proxy
        self.hello = asyncio.Event()
        self.last_heard: float | None = None
        self.trouble = ""
        self._clock = clock
        self._rng = rng
        self._log = log
        self._keep_dead_letter = keep_dead_letter
        self._pace = pace
        self._ungreeted = 0
        self._opened = 0.0
        self._opened_at = clock.monotonic()
        self._frames: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bool:
        return not self.closed and self.current_session is not None and not self.current_session.closed

    @property
    def well(self) -> bool:
        """True if Slack has greeted on the open socket."""
        return self.up and not self._ungreeted

    # Connecting

    async def issue_new_wss_url(self) -> str:
        response = await self.web_client.apps_connections_open(app_token=self.app_token)
        url = response["url"]
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme != "wss" and not (parts.scheme == "ws" and parts.hostname in LOOPBACK):
            raise ValueError("not an address of a socket")
        return str(url)

    async def attempt(self) -> None:
        """Open one socket. Raises what stood in the way."""
        url = await self.issue_new_wss_url()
        async with asyncio.timeout(CONNECT_SECONDS * self._pace):
            session = await self.aiohttp_client_session.ws_connect(
                url, autoping=False, heartbeat=self.ping_interval, proxy=self.proxy
            )
        self.current_session = session
        self._ungreeted += 1
        self._spawn(self._receive(session), self._chores)

    async def connect(self) -> None:
        """Try until it works or the link is closed."""
        if pause := self._breath():
            await self._clock.sleep(pause)
        wait = 1.0
        while not self.closed:
            try:
                await self.attempt()
            except failures.CALL_ERRORS as error:
                self._trouble(failures.name(error))
                pause = failures.retry_after(error) if failures.is_rate_limited(error) else wait
                await self._clock.sleep(pause * (1 + self._rng.random() / 4))
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                return

    def _breath(self) -> float:
        """Seconds to wait before the next socket: Slack may open each and let none of them live."""
        if self._ungreeted:
            return min(2.0 ** min(self._ungreeted - 1, 10), LONGEST_WAIT) * (1 + self._rng.random() / 4)
        now = self._clock.monotonic()
        self._opened = max(0.0, self._opened - (now - self._opened_at) / SOCKET_EVERY) + 1
        self._opened_at = now
        return max(0.0, self._opened - FREE_SOCKETS) * SOCKET_EVERY

    def _trouble(self, what: str) -> None:
        """One line each time it changes, however often it is tried."""
        if what == self.trouble:
            return
        self.trouble = what
        if what:
            self._log.write("channel", "Slack cannot be reached, trying again", level="warn", error=what)
        else:
            self._log.write("channel", "Slack is reached again")

    def renew(self) -> None:
        """Give up the socket that stands and open another one, beside everything else; returns at once."""
        underway = self.closed or self.connect_operation_lock.locked()
        if not underway and self.current_session is not None:
            self._spawn(self._replace(self.current_session), self._chores)

    async def _replace(self, session: aiohttp.ClientWebSocketResponse) -> None:
        """Open another socket in the place of this one, unless that was done already."""
        async with self.connect_operation_lock:
            if not self.closed and self.current_session is session:
                await self._hang_up()
                await self.connect()

    async def _hang_up(self) -> None:
        """Close the socket; a peer that does not answer is not waited for."""
        if self.current_session is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.current_session.close()

    # Frames

    async def _receive(self, session: aiohttp.ClientWebSocketResponse) -> None:
        """Read one socket to its end, then see to a new one."""
        while (frame := await session.receive()).type not in _ENDS:
            if frame.type is aiohttp.WSMsgType.TEXT:
                self.last_heard = self._clock.now()
                self._read(frame.data, session)
            elif frame.type is aiohttp.WSMsgType.PING:
                self.last_heard = self._clock.now()
                try:
                    await session.pong(frame.data)
                except ConnectionError:
                    break
        await session.close()
        await self._replace(session)

    def _read(self, raw: str, session: aiohttp.ClientWebSocketResponse) -> None:
        try:
            message = json.loads(raw)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._log.write(
                "channel", "Slack sent a frame that is no JSON object", level="warn", size=len(raw)
            )
        elif message.get("type") == "disconnect":
            self._dismissed(message.get("reason"))
            self._spawn(self._replace(session), self._chores)
        elif message.get("type") == "hello":
            self._ungreeted = 0
            self._trouble("")
            self.hello.set()
        elif isinstance(message.get("envelope_id"), str):
            self._spawn(self._envelope(message, raw), self._frames)

    def _dismissed(self, reason: Any) -> None:
        """Slack takes a socket back. A refresh is everyday; anything else is the operator's business."""
        word = reason if isinstance(reason, str) else ""
        if word not in _EVERYDAY:
            self._ungreeted = max(self._ungreeted, 1)
            self._trouble(_REASONS.get(word, "Slack takes the socket back"))

    async def _envelope(self, message: Json, raw: str) -> None:
        if isinstance(message.get("payload"), dict) and isinstance(message.get("type"), str):
            await self.run_message_listeners(message, raw)
            return
        await self._keep_dead_letter(message, "the envelope has no payload")
        await self.send_message(json.dumps({"envelope_id": message["envelope_id"]}))

    async def send_message(self, message: str) -> None:
        """Send on the socket that stands. Where none does soon, Slack will send the event again."""
        if not self.up:
            async with self.connect_operation_lock:
                pass
        if self.current_session is None or self.current_session.closed:
            raise ConnectionError("the socket is closed")
        await self.current_session.send_str(message)

    # The end

    async def start(self) -> None:
        """Open one socket and wait until Slack has greeted on it. Raises what stood in the way."""
        await self.attempt()
        greeted = asyncio.ensure_future(self.hello.wait())
        try:
            await ends_within(HELLO_SECONDS, greeted, self._clock)
        finally:
            greeted.cancel()
        if not self.hello.is_set():
            raise errors.ChannelUnreachable(self.trouble or "Slack opened a socket and did not greet")

    async def close(self) -> None:
        """Read no more, finish what is being taken in, close. What was read and not begun is sent again."""
        self.closed = True
        self.auto_reconnect_enabled = False
        await cancel_all([*self._chores, asyncio.ensure_future(self.message_processor)])
        if self._frames:
            await asyncio.wait(self._frames, timeout=DRAIN_SECONDS)
            await cancel_all(self._frames)
        await self._hang_up()
        await self.aiohttp_client_session.close()

    def _spawn(self, work: Coroutine[Any, Any, None], held: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work)
        held.add(task)
        task.add_done_callback(lambda done: self._ended(done, held))

    def _ended(self, task: asyncio.Task[None], held: set[asyncio.Task[None]]) -> None:
        held.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.write(
                "channel", "An event of Slack was not confirmed", level="warn", error=type(error).__name__
            )


_EVERYDAY = frozenset({"warning", "refresh_requested"})
_REASONS = {
    "too_many_websockets": "other programs hold all the sockets of this app (too_many_websockets)",
    "link_disabled": "Socket Mode is switched off in the settings of this app (link_disabled)",
}
_ENDS = frozenset(
    {
        aiohttp.WSMsgType.CLOSE,
        aiohttp.WSMsgType.CLOSING,
        aiohttp.WSMsgType.CLOSED,
        aiohttp.WSMsgType.ERROR,
    }
)
