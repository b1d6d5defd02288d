"""Slack's events over HTTP: a request counts by its signature, and is confirmed once it is taken in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.signature import Clock as VerifierClock
from slack_sdk.signature import SignatureVerifier

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Webhook
from bot.contracts.environment import Clock
from channels.webhook_server import RETRY, WebhookServer

STAMP, SIGNATURE = "X-Slack-Request-Timestamp", "X-Slack-Signature"
FRESH_SECONDS = 300.0
"""Age of a signature, at the most."""
UNSIGNED_SECONDS = 3600.0
"""Seconds without a request that was signed right, after which one that was signed wrong is told."""
UNSIGNED = "requests come that are not signed with channels.slack.signingSecret, and none that are"


class HttpEvents:
    """From `start` to `close`. Slack gives no sign of life while nothing happens."""

    last_heard: None = None

    def __init__(
        self,
        app: AsyncApp,
        signing_secret: str,
        webhook: Webhook,
        around: ChannelDeps,
        *,
        keep_dead_letter: Callable[[Any, str], Awaitable[None]],
    ) -> None:
        self.trouble = ""
        self._app = app
        self._verifier = SignatureVerifier(signing_secret, _WallClock(around.clock))
        self._keep_dead_letter = keep_dead_letter
        self._clock, self._log = around.clock, around.log
        self._server = WebhookServer("slack", webhook, around, admits=self._admits, take=self._receive)
        self._signed_at = -UNSIGNED_SECONDS
        """Time of the last request that was signed right (monotonic)."""

    @property
    def well(self) -> bool:
        return self._server.up

    async def start(self) -> None:
        """As `WebhookServer.start`."""
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop()

    def renew(self) -> None:
        """Nothing: there is no connection of ours that could have died."""

    def _admits(self, headers: Mapping[str, str]) -> bool:
        """True if a request may have been signed within the last five minutes."""
        stamp = headers.get(STAMP, "")
        fresh = stamp.isdecimal() and len(stamp) < 20 and abs(self._clock.now() - int(stamp)) <= FRESH_SECONDS
        return fresh and headers.get(SIGNATURE, "").startswith("v0=")

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        if not self._is_signed(body, request.headers):
            return web.Response(status=401)
        try:
            return await self._dispatch(body, request.content_type)
        except (errors.ShipmateError, OSError) as error:
            self._log.write(
                "channel", "An event of Slack was not confirmed", level="warn", error=type(error).__name__
            )
            return web.Response(status=503, headers=RETRY)

    async def _dispatch(self, body: bytes, content_type: str) -> web.Response:
        """Hand a request to bolt as Socket Mode's envelopes are. Bolt's own reading of forms loses a command with the word
        `payload` in it.
        """
        try:
            payload = _payload(body.decode(), content_type)
            request = AsyncBoltRequest(mode="socket_mode", body=payload)
        except (TypeError, ValueError, KeyError, AttributeError):
            await self._keep_dead_letter(body.decode(errors="replace"), "the request is malformed")
            return web.Response()
        if "ssl_check" in payload:
            return web.Response()
        if payload.get("type") == "url_verification":
            return web.Response(text=str(payload.get("challenge", "")))
        answer = await self._app.async_dispatch(request)
        return web.Response(status=answer.status, text=answer.body)

    def _is_signed(self, body: bytes, headers: Mapping[str, str]) -> bool:
        try:
            signed = self._verifier.is_valid_request(body, dict(headers))
        except (TypeError, ValueError):  # what is no signature, or no text
            signed = False
        now = self._clock.monotonic()
        if signed:
            self._signed_at, self.trouble = now, ""
        elif not self.trouble and now - self._signed_at >= UNSIGNED_SECONDS:
            self.trouble = UNSIGNED
            self._log.write("channel", f"Slack: {UNSIGNED}", level="warn", channel="slack")
        return signed


def _payload(body: str, content_type: str) -> Json:
    """The payload of an event (JSON), of a press (a form with JSON in it) or of a slash command (a form)."""
    form = {} if content_type == "application/json" else dict(parse_qsl(body, keep_blank_values=True))
    plain = "command" in form or "ssl_check" in form
    payload = form if plain else json.loads(form.get("payload", body))
    if not isinstance(payload, dict):
        raise TypeError("not an object")
    return payload


class _WallClock(VerifierClock):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()
