"""Receives Slack's events through Socket Mode, or as signed HTTP requests. Each payload is passed to bolt."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
from aiohttp import web
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import LOOPBACK, ChannelDeps, Health, Webhook
from bot.contracts.environment import cancel_all
from channels.http_api import RETRY, WebhookServer
from channels.slack import web_api

PING_SECONDS = 10.0
CONNECT_SECONDS = 15.0
"""Timeout in seconds of the WebSocket handshake, and of the wait for Slack's `hello` after it."""
MAX_BACKOFF = 30.0  # Max seconds between two attempts to connect
DRAIN_SECONDS = 2.5
"""Timeout in seconds for events that are being processed when the client closes. Slack waits 3 s for each response."""
CLOSE_SECONDS = 1.0  # Timeout in seconds for Slack's close frame
_ROUTINE = frozenset({"warning", "refresh_requested"})
_REASONS = {
    "too_many_websockets": "other programs hold all the sockets of this app (too_many_websockets)",
    "link_disabled": "Socket Mode is switched off in the settings of this app (link_disabled)",
}
STAMP, SIGNATURE = "X-Slack-Request-Timestamp", "X-Slack-Signature"
FRESH_SECONDS = 300.0  # Max age in seconds of a signature
UNSIGNED = "requests come that are not signed with channels.slack.signingSecret, and none that are"


class SocketConnection(SocketModeClient):
    """Slack's library client with four changes.

    Each attempt requests a new URL, because a URL works only once; the library reuses it. A closed socket is replaced at once
    (with backoff if no `hello` comes); the library checks only every `ping_interval`. If the first attempt fails, `start`
    raises the error; the library retries forever. `close` waits for events that are being processed; the library drops them.
    """

    def __init__(self, app: AsyncApp, app_token: str, around: ChannelDeps) -> None:
        ping = PING_SECONDS * around.pace
        super().__init__(app_token, logger=app.client.logger, web_client=app.client, ping_interval=ping)
        self.proxy = app.client.proxy
        self.socket_mode_request_listeners.append(self._dispatch)
        self._last_heard: float | None = None
        """Epoch time of the last frame that Slack sent on its own. Pongs do not count, because a broken socket may answer
        pings and deliver no events.
        """
        self._trouble = ""  # Reason why no connection is open; "" after `hello`
        self._app = app
        self._around = around
        self._connect_seconds = CONNECT_SECONDS * around.pace
        self._hello = asyncio.Event()
        self._attempts = 0  # Number of attempts since the last `hello`
        self._processing: set[asyncio.Task[Any]] = set()

    def health(self) -> Health:
        socket = self.current_session
        open_ = not self.closed and socket is not None and not socket.closed and not self._attempts
        return Health(open_, self._last_heard, self._trouble)

    async def start(self) -> None:
        """Open the first socket and wait for `hello`. Raises `errors.ChannelUnreachable` or one of `web_api.CALL_ERRORS`."""
        await self.connect()
        self.message_receiver = asyncio.ensure_future(self.receive_messages())
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._hello.wait()
        except TimeoutError:
            raise errors.ChannelUnreachable(
                self._trouble or "a socket was opened, but Slack sent no hello"
            ) from None

    async def connect(self) -> None:
        """Open one socket. Raises one of `web_api.CALL_ERRORS`."""
        self._attempts += 1
        answer = await self.web_client.apps_connections_open(app_token=self.app_token)
        url = str(answer["url"])
        parts = urlsplit(url)
        if parts.scheme != "wss" and not (parts.scheme == "ws" and parts.hostname in LOOPBACK):
            raise ValueError("not the URL of an encrypted WebSocket")
        timeout = aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS)
        how: Any = {
            "autoping": False,
            "heartbeat": self.ping_interval,
            "proxy": self.proxy,
            "timeout": timeout,
        }
        async with asyncio.timeout(self._connect_seconds):
            self.current_session = await self.aiohttp_client_session.ws_connect(url, **how)

    async def receive_messages(self) -> None:
        clock = self._around.clock
        while (socket := self.current_session) is not None:
            async for frame in socket:
                if frame.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.PING}:
                    self._last_heard = clock.now()
                if frame.type is aiohttp.WSMsgType.TEXT:
                    await self.enqueue_message(frame.data)
                elif frame.type is aiohttp.WSMsgType.PING:
                    with contextlib.suppress(ConnectionError):  # the socket has closed in the meantime
                        await socket.pong(frame.data)
            # `send_message` waits for this lock, and thus for the new socket.
            async with self.connect_operation_lock:
                while socket is self.current_session:
                    if self._attempts:
                        pause = min(2.0 ** min(self._attempts - 1, 10), MAX_BACKOFF)
                        await clock.sleep(pause * (1 + self._around.rng.random() / 4))
                    try:
                        await self.connect()
                    except web_api.CALL_ERRORS as error:
                        self._report(web_api.name(error))
                        if web_api.is_rate_limited(error):
                            await clock.sleep(web_api.retry_after(error))

    def renew(self) -> None:
        """Close the socket in the background. `receive_messages` then opens a new socket."""
        if self.current_session is not None:
            self._track(asyncio.ensure_future(self.current_session.close()))

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._processing.add(task)
        task.add_done_callback(self._processing.discard)

    async def run_message_listeners(self, message: Json, raw_message: str) -> None:
        """Process one frame. The library keeps no reference to a frame's task, so keep one here."""
        match message.get("type"):
            case "hello":
                self._attempts = 0
                self._report("")
                self._hello.set()
            case "disconnect":
                reason = str(message.get("reason"))
                if reason not in _ROUTINE:
                    self._attempts = max(self._attempts, 1)
                    self._report(_REASONS.get(reason, "Slack closes the socket"))
                self.renew()
            case _:
                if (task := asyncio.current_task()) is not None:
                    self._track(task)
                await super().run_message_listeners(message, raw_message)

    async def _dispatch(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        await send_async_response(client, request, await run_async_bolt_app(self._app, request), 0.0)

    def _report(self, trouble: str) -> None:
        """Log the reason why no connection is open, or that Slack is reached again. An unchanged reason is not logged again."""
        log = self._around.log
        if trouble and trouble != self._trouble:
            log.write("channel", "Slack cannot be reached, trying again", level="warn", error=trouble)
        elif self._trouble and not trouble:
            log.write("channel", "Slack is reached again")
        self._trouble = trouble

    async def close(self) -> None:
        """Stop reading, finish the events in progress, and close the socket. Slack delivers unacknowledged events again."""
        self.closed = True
        await cancel_all(filter(None, [self.message_receiver, self.message_processor]))
        if self._processing:
            await asyncio.wait(self._processing, timeout=DRAIN_SECONDS)
            await cancel_all(self._processing)
        if self.current_session is not None:
            await self.current_session.close()
        await self.aiohttp_client_session.close()


class HttpEvents:
    """Webhook for Slack's events. A request needs Slack's signature, and is acknowledged after its event is on disk."""

    def __init__(
        self,
        app: AsyncApp,
        signing_secret: str,
        webhook: Webhook,
        around: ChannelDeps,
        *,
        keep_dead_letter: Callable[[Any, str], Awaitable[None]],
    ) -> None:
        self._app = app
        self._verifier = SignatureVerifier(signing_secret, around.clock)  # type: ignore[arg-type]
        self._keep_dead_letter = keep_dead_letter
        self._clock, self._log = around.clock, around.log
        self._server = WebhookServer("slack", webhook, around, admits=self._admits, take=self._receive)
        self._signed = False  # True once a request has had a valid signature
        self._trouble = ""
        self.start, self.close = self._server.start, self._server.stop

    def health(self) -> Health:
        """Return the webhook's health. `last_heard` is None, because a quiet workspace sends no events."""
        return Health(self._server.up, None, self._trouble)

    def renew(self) -> None:
        """Do nothing, because a webhook has no connection to renew."""

    def _admits(self, headers: Mapping[str, str]) -> bool:
        """Return True if the headers contain a signature that is at most `FRESH_SECONDS` old. The signature is verified only later."""
        stamp = headers.get(STAMP, "")
        fresh = stamp.isdecimal() and len(stamp) < 20 and abs(self._clock.now() - int(stamp)) <= FRESH_SECONDS
        return fresh and headers.get(SIGNATURE, "").startswith("v0=")

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            signed = self._verifier.is_valid_request(body, dict(request.headers))
        except (TypeError, ValueError):  # the signature header or the body is malformed
            signed = False
        if not signed:
            if not self._signed and not self._trouble:
                self._trouble = UNSIGNED
                self._log.write("channel", f"Slack: {UNSIGNED}", level="warn", channel="slack")
            return web.Response(status=401)
        self._signed, self._trouble = True, ""
        try:
            return await self._dispatch(body, request.content_type)
        except (errors.ShipmateError, OSError) as error:
            kind = type(error).__name__
            self._log.write("channel", "An event of Slack was not confirmed", level="warn", error=kind)
            return web.Response(status=503, headers=RETRY)

    async def _dispatch(self, body: bytes, content_type: str) -> web.Response:
        """Pass a request to bolt as if it had come through Socket Mode. If bolt read the HTTP request itself, it would
        misread a slash command that contains the word `payload`.
        """
        try:
            # An event is sent as JSON, a slash command as a form, and a button press as a form that contains JSON.
            words = body.decode()
            form = dict(
                parse_qsl(words, keep_blank_values=True) if content_type != "application/json" else ()
            )
            is_form = "command" in form or "ssl_check" in form
            payload = form if is_form else json.loads(form.get("payload", words))
            request = AsyncBoltRequest(mode="socket_mode", body=payload)
            kind = payload.get("type")
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            await self._keep_dead_letter(body.decode(errors="replace"), "the request is malformed")
            return web.Response()
        if "ssl_check" in payload:
            return web.Response()
        if kind == "url_verification":
            return web.Response(text=str(payload.get("challenge", "")))
        answer = await self._app.async_dispatch(request)
        return web.Response(status=answer.status, text=answer.body)
