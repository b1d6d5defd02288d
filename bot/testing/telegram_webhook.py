"""Telegram's end of a webhook: updates are posted until they are confirmed."""

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
    """Posts the updates of each chat one after the other, and presses of each person; others side by side. What is not answered
    with 2xx is posted again, after as long as `Retry-After` says, else after 2 s, 4 s and so on up to 64 s of the clock.
    """

    def __init__(self, clock: Clock, updates: world.Updates, changed: Callable[[], Awaitable[None]]) -> None:
        self.url = ""
        self.secret = ""
        self.error = ""
        """The last failure, as `getWebhookInfo` tells it until the webhook is another one."""
        self.failed_at = 0.0
        self.front: int | None = None
        """The port on this machine behind the address, as that of a load balancer's target."""
        self._clock = clock
        self._updates = updates
        self._changed = changed
        self._lines: dict[object, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Post what waits."""
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
        """None where it was confirmed; else the seconds to wait that the answer asks for, 0 where it asks for none."""
        parts = urlsplit(self.url)
        address = self.url if self.front is None else f"http://127.0.0.1:{self.front}{parts.path}"
        headers = {SECRET: self.secret} if self.secret else {}
        try:
            # One for each: a post that begins while the server stops leaves none open.
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
    """The chat that an update is about, or the person who pressed a button; None where it is about neither."""
    if isinstance(update, dict) and isinstance(pressed := update.get("callback_query"), dict):
        return ("press", (pressed.get("from") or {}).get("id"))
    for part in update.values() if isinstance(update, dict) else ():
        if isinstance(part, dict):
            about = part.get("chat") or (part.get("message") or {}).get("chat") or part.get("from")
            if isinstance(about, dict):
                return about.get("id")
    return None
