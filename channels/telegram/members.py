"""Asks Telegram whether a person is a member of groups, and builds permalinks of messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from telegram import Bot
from telegram.error import ChatMigrated, TelegramError

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from channels.telegram import address, bot_api
from channels.telegram.group_migrations import GroupMigrations

MOST = 200
"""Max groups that are asked about for one search, since each group needs a request. The most relevant groups
are first.
"""
_AT_ONCE = 20
_INSIDE = frozenset({"creator", "administrator", "member"})
_SUPERGROUP = "-100"


async def chats_of(
    bot: Bot, migrations: GroupMigrations, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
) -> MembershipAnswer:
    """Implement `contracts.channel.KnowsMembers`. A private chat has the id of its person, so no request is
    needed for it.
    """
    chats = {key: migrations.now(chat) for key in chat_keys if (chat := _chat(key)) is not None}
    groups = [chat for chat in dict.fromkeys(chats.values()) if chat.startswith("-")]
    slots = asyncio.Semaphore(_AT_ONCE)
    answers = await asyncio.gather(
        *(_is_inside(bot, migrations, chat, user_id, slots) for chat in groups[:MOST])
    )
    inside = dict(zip(groups, answers, strict=False))
    if groups and not any(answer is not None for answer in answers):
        raise errors.ChannelUnreachable("Telegram does not say who is in a group")
    unanswered = {chat for chat in groups if inside.get(chat) is None}
    return MembershipAnswer(
        [key for key, chat in chats.items() if (direct and chat == user_id) or inside.get(chat)],
        [key for key, chat in chats.items() if chat in unanswered],
    )


async def _is_inside(
    bot: Bot, migrations: GroupMigrations, chat: str, user_id: str, slots: asyncio.Semaphore
) -> bool | None:
    """Return True if the person is a member of the chat. Return None if Telegram did not answer or has given
    the group another id, since neither says anything about the person.
    """
    async with slots:
        try:
            member = await bot.get_chat_member(int(chat), int(user_id))
        except ChatMigrated as exc:
            with contextlib.suppress(errors.StorageError):
                await migrations.learn(int(chat), exc.new_chat_id)
            return None
        except (bot_api.RequestNotSent, bot_api.OutcomeUnknown, bot_api.TooManyRequests):
            return None
        except (TelegramError, *bot_api.GARBLED):
            return False
        return member.status in _INSIDE or getattr(member, "is_member", False) is True


def permalink(line: ArchiveLine) -> str | None:
    """Return the address of a message in a supergroup; None for other chats, whose messages have no address."""
    # If a message was sent after the group became a supergroup, its id includes the supergroup's id.
    chat, _, number = (line.message_id or "").rpartition("/")
    chat = chat or _chat(line.chat_key) or ""
    if not chat.startswith(_SUPERGROUP) or not number.isdecimal():
        return None
    return f"https://t.me/c/{chat.removeprefix(_SUPERGROUP)}/{number}"


def _chat(chat_key: ChatKey) -> str | None:
    try:
        return address.decode(chat_key)["chat_id"]
    except ValueError:
        return None
