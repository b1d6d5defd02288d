"""Who is in which chat, and where a message can be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from telegram import Bot
from telegram.error import TelegramError

from bot import errors
from bot.contracts import ArchiveLine
from channels.telegram import address, wire

MOST = 50
"""Groups that are asked about for one search, the first ones named."""
_AT_ONCE = 5
_INSIDE = frozenset({"creator", "administrator", "member"})
_SUPERGROUP = "-100"


async def chats_of(bot: Bot, user_id: str, chat_keys: Sequence[str], *, direct: bool) -> list[str]:
    """Those of the chatKeys that lie in chats which Telegram says the person is in now. A chat of two has the id of its
    person, so nobody need be asked. Raises `errors.ChannelUnreachable` where Telegram answered about none of the groups.
    """
    chats = {key: chat for key in chat_keys if (chat := _chat(key)) is not None}
    groups = [chat for chat in dict.fromkeys(chats.values()) if chat.startswith("-")][:MOST]
    room = asyncio.Semaphore(_AT_ONCE)
    answers = await asyncio.gather(*(_is_inside(bot, chat, user_id, room) for chat in groups))
    if groups and all(answer is None for answer in answers):
        raise errors.ChannelUnreachable("Telegram does not say who is in a group")
    inside = {chat for chat, yes in zip(groups, answers, strict=True) if yes}
    if direct:
        inside.add(user_id)
    return [key for key, chat in chats.items() if chat in inside]


async def _is_inside(bot: Bot, chat: str, user_id: str, room: asyncio.Semaphore) -> bool | None:
    """None where Telegram did not answer: that is no answer about the person."""
    async with room:
        try:
            member = await bot.get_chat_member(int(chat), int(user_id))
        except (wire.Unsent, wire.Unclear, wire.Flood):
            return None
        except (TelegramError, *wire.GARBLED):
            return False
    return member.status in _INSIDE or getattr(member, "is_member", False) is True


def permalink(line: ArchiveLine) -> str | None:
    """The address of a message in a supergroup; other chats have none."""
    chat = _chat(line.chat_key) or ""
    if not chat.startswith(_SUPERGROUP) or not (line.message_id or "").isdecimal():
        return None
    return f"https://t.me/c/{chat.removeprefix(_SUPERGROUP)}/{line.message_id}"


def _chat(chat_key: str) -> str | None:
    try:
        return address.decode(chat_key)["chat_id"]
    except ValueError:
        return None
