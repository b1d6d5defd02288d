"""Finds the conversations of a person, and builds permalinks of messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from channels.slack import address
from channels.slack.web_client import has_more, pages

PAGE = 200
PAGES = 25
"""Max pages of a person's conversations that are read."""
_KINDS = "public_channel,private_channel,mpim"
_TS = re.compile(r"(\d{1,12})\.(\d{6})")


async def chats_of(
    client: AsyncWebClient, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
) -> MembershipAnswer:
    """Return those of `chat_keys` whose conversation the person is a member of now. `unanswered` lists
    conversations that may be on pages that were not read.
    """
    types = f"{_KINDS},im" if direct else _KINDS
    answer = await client.users_conversations(user=user_id, types=types, limit=PAGE)
    found: set[str] = set()
    async for page in pages(answer, PAGES):
        found.update(
            one["id"]
            for one in page.get("channels") or ()
            # Slack also lists the bot's direct chats with other people.
            if not address.is_direct(one["id"]) or (direct and one.get("user") == user_id)
        )
    places = {key: place for key in chat_keys if (place := _channel(key)) is not None}
    others = [key for key, place in places.items() if place not in found]
    unread = (
        [key for key in others if direct or not address.is_direct(places[key])] if has_more(answer) else []
    )
    return MembershipAnswer([key for key, place in places.items() if place in found], unanswered=unread)


def permalink(site: str, line: ArchiveLine) -> str | None:
    """Return the permalink of a message. `site` is the workspace's URL."""
    ts = _TS.fullmatch(line.message_id or "")
    channel = _channel(line.chat_key)
    if ts is None or channel is None or urlsplit(site).scheme != "https":
        return None
    return f"{site.rstrip('/')}/archives/{channel}/p{ts[1]}{ts[2]}"


def _channel(chat_key: ChatKey) -> str | None:
    try:
        return address.decode(chat_key)["channel"]
    except ValueError:
        return None
