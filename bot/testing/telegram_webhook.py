"""Telegram's side of a webhook. It posts each update until the bot confirms it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bot.contracts.environment import Clock, cancel_all
from bot.testing import telegram_world as world

LONGEST_WAIT = 64.0
POST_SECONDS = 60.0
SECRET = "X-Telegram-Bot-Api-Secret-Token"


class WebhookPoster:
    """Posts the updates of each chat in order, and the button presses of each person in order. Different chats are served in
    parallel.

    If the bot does not answer with 2xx, the update is posted again after a pause. The pause is the answer's
    `Retry-After`. Without that header, it is 2 s, then 4 s and so on, up to 64 s of the clock.
    """

    def __init__(self, clock: Clock, updates: world.Updates, changed: Callable[[], Awaitable[None]]) -> None:
        self.url = ""
        self.secret = ""
        self.error = ""
        """Text of the last failure, which `getWebhookInfo` returns until another webhook is set."""
        self.failed_at = 0.0
        self.front: int | None = None
        """Local port to which updates are posted, as if a load balancer forwarded them; None posts them to the webhook's
        address.
        """
        self._clock = clock
        self._updates = updates
        self._changed = changed
        self._lines: dict[object, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Start posting the waiting updates."""
        for _, body in self._updates.waiting() if self.url else ():
            line = _chat(body)
            if line not in self._lines:
                self._lines[line] = asyncio.ensure_future(self._post_line(line))

    async def stop(self) -> None:
        await cancel_all(self._lines.values())

    async def _post_line(self, line: object) -> None:
        wait = 1.0
        try:
            while self.url and (first := self._first(line)) is not None:
                number, body = first
                asked = await self._post(body)
                if asked is None:
                    self._updates.remove(number)
                    wait = 1.0
                    await self._changed()
                else:
                    self.failed_at = self._clock.now()
                    wait = min(wait * 2, LONGEST_WAIT)
                    await self._changed()
                    await self._clock.sleep(asked or wait)
        finally:
            del self._lines[line]

    def _first(self, line: object) -> tuple[int, Any] | None:
        return next((one for one in self._updates.waiting() if _chat(one[1]) == line), None)

    async def _post(self, body: Any) -> float | None:
        parts = urlsplit(self.url)
        address = self.url if self.front is None else f"http://127.0.0.1:{self.front}{parts.path}"
        headers = {SECRET: self.secret} if self.secret else {}
        try:
            # Each post opens its own session. Otherwise a post that begins while the server stops would leave a session open.
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=POST_SECONDS)) as session,
                session.post(address, json=body, headers=headers) as answer,
            ):
                if answer.ok:
                    return None
                self.error = f"Wrong response from the webhook: {answer.status} {answer.reason}"
                return float(answer.headers.get("Retry-After", 0))
        except (aiohttp.ClientError, OSError):
            self.error = "Connection refused"
        return 0.0


def _chat(update: Any) -> object:
    """Return the id of the chat that an update is about; for a button press, a key for the person who pressed."""
    if isinstance(update, dict) and isinstance(pressed := update.get("callback_query"), dict):
        return ("press", (pressed.get("from") or {}).get("id"))
    for part in update.values() if isinstance(update, dict) else ():
        if isinstance(part, dict):
            about = part.get("chat") or (part.get("message") or {}).get("chat") or part.get("from")
            if isinstance(about, dict):
                return about.get("id")
    return None
