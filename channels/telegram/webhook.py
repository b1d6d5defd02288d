"""Receives Telegram's updates over HTTP. Each post must contain the webhook's secret. The post is confirmed after the
gateway has written the update to disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
from collections.abc import Mapping

from aiohttp import web
from telegram.error import BadRequest, TelegramError

from bot import errors
from bot.contracts.channel import ChannelDeps, Health, Webhook
from bot.contracts.environment import cancel_all
from channels.http_server import RETRY, WebhookServer
from channels.telegram import bot_api, inbound
from channels.telegram.updates import NOT_WRITTEN, NotTaken, UpdateIntake, has_id

LOOK_EVERY = 15.0  # Seconds between requests to Telegram that ask if its posts arrive
SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of a header


class UpdateWebhook:
    """Receives the updates that Telegram posts. Telegram posts a chat's next message only after the last one is confirmed.

    Each start creates a new secret. If several hosts run the bot, only the host that started last accepts posts.
    """

    def __init__(
        self, bot: bot_api.Bot, updates: UpdateIntake, around: ChannelDeps, webhook: Webhook
    ) -> None:
        self._bot = bot
        self._updates = updates
        self._clock, self._log = around.clock, around.log
        self._url = webhook.url
        self._secret = ""
        self._server = WebhookServer("telegram", webhook, around, admits=self._admits, take=self._receive)
        self._connected = False
        self._heard = self._taken_at = self._clock.now()
        """Times (epoch seconds) of Telegram's last response or post, and of the last post that was confirmed."""
        self._trouble = ""
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and register its address. Raises `errors.ConfigError` if Telegram rejects the address,
        `TelegramError` if Telegram cannot be reached, and the exceptions of `WebhookServer.start`.
        """
        await self._server.start()
        try:
            await self._register()
        except TelegramError as error:
            await self._server.stop()
            if not isinstance(error, BadRequest) or bot_api.refused_for(error, "resolve"):
                raise
            raise errors.ConfigError(
                f"channels.telegram.webhook.url: Telegram does not take it ({error.message}); set another one"
            ) from None
        self._connected = True
        self._watching = asyncio.create_task(self._watch(), name="telegram webhook")

    async def renew(self) -> None:
        """Register the address again with a new secret. Telegram then forgets earlier failures."""
        if self._server.up:
            with contextlib.suppress(TelegramError):
                await self._register()

    async def stop(self) -> None:
        """Accept no more posts. Telegram keeps the updates until the next start."""
        self._updates.stop()
        if self._watching is not None:
            await cancel_all([self._watching])
        await self._server.stop()

    def health(self) -> Health:
        up = self._server.up
        return Health(self._connected and up, self._heard, self._trouble if up else "stopped")

    async def _register(self) -> None:
        self._secret = secrets.token_hex(32)
        fields = {"url": self._url, "secret_token": self._secret, "allowed_updates": list(inbound.HANDLED)}
        await self._bot.call("setWebhook", fields)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            try:
                info = await self._bot.call_object("getWebhookInfo", {})
            except TelegramError as error:
                self._report(f"cannot be reached ({bot_api.said(error)})", connected=False)
                continue
            self._heard = self._clock.now()
            if info.get("url") != self._url:
                self._report("another program has taken this bot's updates", connected=False)
            elif self._trouble == NOT_WRITTEN:
                continue
            elif info.get("pending_update_count") and info.get("last_error_date", 0) > self._taken_at:
                said = str(info.get("last_error_message", ""))[:200]
                self._report(f"its posts do not arrive at {self._url} ({said})", connected=False)
            else:
                self._report("", connected=True)

    def _report(self, trouble: str, *, connected: bool) -> None:
        self._connected = connected
        if trouble != self._trouble:
            words = f"Telegram: {trouble or 'all is well again'}"
            self._log.write("channel", words, level="warn" if trouble else "info", channel="telegram")
        self._trouble = trouble

    def _admits(self, headers: Mapping[str, str]) -> bool:
        given = headers.get(SECRET, "").encode("utf-8", "surrogateescape")
        return self._secret != "" and hmac.compare_digest(given, self._secret.encode())

    async def _receive(self, request: web.Request) -> web.Response:
        try:
            update = json.loads((await request.read()).decode(errors="replace"))
        except (ValueError, RecursionError):
            update = None
        if not has_id(update):
            self._log.write("channel", "Telegram posted no update", level="warn", channel="telegram")
            return web.Response()  # the same post again would fail in the same way
        taken: set[int] = set()
        try:
            await self._updates.take([update], taken)
        except errors.StorageError:
            self._report(NOT_WRITTEN, connected=True)
        except NotTaken as error:
            self._log.write("channel", f"Telegram: {error}", level="error", channel="telegram")
        if not taken:
            return web.Response(status=503, headers=RETRY)
        self._taken_at = self._clock.now()
        if self._trouble == NOT_WRITTEN:
            self._report("", connected=True)
        return web.Response()
