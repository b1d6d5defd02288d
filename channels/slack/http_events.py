"""Receives Slack's events over HTTP. A request needs Slack's signature, and is acknowledged after its event is on disk."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.signature import SignatureVerifier

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Webhook
from channels.http_server import RETRY, WebhookServer

STAMP, SIGNATURE = "X-Slack-Request-Timestamp", "X-Slack-Signature"
FRESH_SECONDS = 300.0  # Max age in seconds of a signature
UNSIGNED_SECONDS = 3600.0  # An invalid signature is reported only if no valid one came for this many seconds
UNSIGNED = "requests come that are not signed with channels.slack.signingSecret, and none that are"


class HttpEvents:
    """Webhook for Slack's events. `last_heard` is None, because a workspace without messages sends no events."""

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
        self._verifier = SignatureVerifier(signing_secret, around.clock)  # type: ignore[arg-type]
        self._keep_dead_letter = keep_dead_letter
        self._clock, self._log = around.clock, around.log
        self._server = WebhookServer("slack", webhook, around, admits=self._admits, take=self._receive)
        self._signed_at = -UNSIGNED_SECONDS  # Time of the last valid signature in monotonic seconds

    @property
    def well(self) -> bool:
        return self._server.up

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop()

    def renew(self) -> None:
        """Do nothing, because a webhook has no connection to renew."""

    def _admits(self, headers: Mapping[str, str]) -> bool:
        """Return True if the headers have a signature that is not older than `FRESH_SECONDS`. It is verified later."""
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
            kind = type(error).__name__
            self._log.write("channel", "An event of Slack was not confirmed", level="warn", error=kind)
            return web.Response(status=503, headers=RETRY)

    async def _dispatch(self, body: bytes, content_type: str) -> web.Response:
        """Pass a request to bolt as if it had come through Socket Mode. Over HTTP, bolt misreads a slash command with the
        word `payload`.
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
        except (TypeError, ValueError):  # the signature header or the body is malformed
            signed = False
        now = self._clock.monotonic()
        if signed:
            self._signed_at, self.trouble = now, ""
        elif not self.trouble and now - self._signed_at >= UNSIGNED_SECONDS:
            self.trouble = UNSIGNED
            self._log.write("channel", f"Slack: {UNSIGNED}", level="warn", channel="slack")
        return signed


def _payload(body: str, content_type: str) -> Json:
    """Return the payload of a request: JSON for an event, JSON inside a form for a button press, a form for a slash command."""
    form = {} if content_type == "application/json" else dict(parse_qsl(body, keep_blank_values=True))
    plain = "command" in form or "ssl_check" in form
    payload = form if plain else json.loads(form.get("payload", body))
    if not isinstance(payload, dict):
        raise TypeError("not an object")
    return payload
