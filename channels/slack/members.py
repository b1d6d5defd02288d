"""Looks up a person's conversations and the permalinks of messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from slack_sdk.web.async_client import AsyncWebClient

from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from channels.slack import address

PAGE = 200
PAGES = 25
_KINDS = "public_channel,private_channel,mpim"
_TS = re.compile(r"(\d{1,12})\.(\d{6})")


async def chats_of(
    client: AsyncWebClient, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
) -> MembershipAnswer:
    """The chatKeys that lie in conversations of which Slack says now that the person is a member. Beyond the pages that
    are read, membership stays unknown.
    """
    found: set[str] = set()
    cursor: str | None = None
    for _ in range(PAGES):
        answer = await client.users_conversations(
            user=user_id, types=f"{_KINDS},im" if direct else _KINDS, limit=PAGE, cursor=cursor
        )
        found.update(
            one["id"]
            for one in answer.get("channels") or ()
            # A direct message is between the bot and one person, who must be the one that asks.
            if not address.is_direct(one["id"]) or (direct and one.get("user") == user_id)
        )
        cursor = (answer.get("response_metadata") or {}).get("next_cursor")
        if not cursor:
            break
    places = {key: place for key in chat_keys if (place := _channel(key)) is not None}
    others = [key for key, place in places.items() if place not in found]
    unread = [key for key in others if direct or not address.is_direct(places[key])] if cursor else []
    return MembershipAnswer([key for key, place in places.items() if place in found], unanswered=unread)


def permalink(site: str, line: ArchiveLine) -> str | None:
    """The address of a message in a workspace, whose own address `auth.test` gives."""
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
