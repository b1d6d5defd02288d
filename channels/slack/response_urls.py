"""Keeps the `response_url` of each slash command and button press, which sends an answer that only one
person sees.

Anybody who has such a URL can post with it for half an hour, so the URLs are kept only in memory.
"""

from __future__ import annotations

from collections import OrderedDict

import aiohttp

from bot.contracts.base import Json
from channels.slack.blocks import escape

MAX_KNOWN = 500


class ResponseUrls:
    """The newest response URLs by `trigger_id`."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def remember(self, body: Json) -> None:
        trigger, url = body.get("trigger_id"), body.get("response_url")
        if isinstance(trigger, str) and isinstance(url, str):
            self._known[trigger] = url
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    async def answer(self, trigger: str | None, words: str, session: aiohttp.ClientSession) -> bool:
        """Show a text only to the person of this trigger. Return False if that failed."""
        url = self._known.get(trigger or "")
        if url is None:
            return False
        message = {"response_type": "ephemeral", "replace_original": False, "text": escape(words)}
        try:
            async with session.post(url, json=message) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False
