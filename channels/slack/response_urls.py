"""Keeps the `response_url` of each slash command and button press, to answer one person alone. Slack honours one for
half an hour.

The addresses let anyone who has them write, so they stay in memory and go to no file.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeGuard
from urllib.parse import urlsplit

import aiohttp

from bot.contracts.base import Json
from bot.contracts.channel import LOOPBACK
from channels.slack.blocks import escape

MOST = 500
_WHISPER = {"response_type": "ephemeral", "replace_original": False}


class ResponseUrls:
    """The response URLs of the newest 500 commands and presses, by their trigger."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, body: Json) -> None:
        """Keep the address of a slash command or a button; anything else is passed over."""
        trigger, url = body.get("trigger_id"), body.get("response_url")
        lends = "command" in body or body.get("type") == "block_actions"
        if lends and isinstance(trigger, str) and _is_sound(url):
            self._known[trigger] = url
            if len(self._known) > MOST:
                self._known.popitem(last=False)

    async def answer(self, trigger: str | None, words: str, session: aiohttp.ClientSession) -> bool:
        """Show words to the person of this trigger alone; False where that did not work."""
        url = self._known.get(trigger or "")
        if url is None:
            return False
        try:
            async with session.post(url, json=_WHISPER | {"text": escape(words)}) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False


def _is_sound(url: Any) -> TypeGuard[str]:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
