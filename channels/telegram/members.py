"""Asks Telegram for a person's membership in groups, and builds permalinks of messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from telegram import Bot
from telegram.error import ChatMigrated, TelegramError

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import MembershipAnswer
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from channels.telegram import address, bot_api
from channels.telegram.group_migrations import GroupMigrations

MOST = 50
"""Groups that are asked about for one search, the first ones named."""
AGAIN = 200
"""Groups that are asked about again since they were the person's the last time: an earlier yes is never reused."""
LASTS = 300.0
"""Seconds for which an answer is remembered where there are more groups than `MOST`."""
_AT_ONCE = 5
_INSIDE = frozenset({"creator", "administrator", "member"})
_SUPERGROUP = "-100"


class GroupMembership:
    """Membership in groups, as Telegram answers it now. Where there are more groups than are asked about at once, those
    that were not the person's a moment ago are skipped, so that the next ones get their turn; those that were are
    asked about again, since the person may have left.
    """

    def __init__(self, clock: Clock, migrations: GroupMigrations) -> None:
        self._clock = clock
        self._migrations = migrations
        self._answers: dict[tuple[str, str], tuple[bool, float]] = {}

    async def chats_of(
        self, bot: Bot, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        """The chatKeys that lie in chats of which Telegram says that the person is a member. A private chat has the id
        of its person, so it needs no question. Raises `errors.ChannelUnreachable` where no answer came for any
        group.
        """
        chats = {key: self._migrations.now(chat) for key in chat_keys if (chat := _chat(key)) is not None}
        groups = [chat for chat in dict.fromkeys(chats.values()) if chat.startswith("-")]
        before = self._remembered(user_id) if len(groups) > MOST else {}
        again = [chat for chat in groups if before.get(chat)]
        new = [chat for chat in groups if chat not in before]
        asked = again[:AGAIN] + new[:MOST]
        room = asyncio.Semaphore(_AT_ONCE)
        told = await asyncio.gather(*(self._is_inside(bot, chat, user_id, room) for chat in asked))
        answers = {chat: yes for chat, yes in zip(asked, told, strict=True) if yes is not None}
        if asked and not answers and not before:
            raise errors.ChannelUnreachable("Telegram does not say who is in a group")
        if len(groups) > MOST:
            self._remember(user_id, answers)
        known = answers | ({user_id: True} if direct else {})
        unasked, unanswered = set(new[MOST:]), {*again, *new[:MOST]} - answers.keys()
        return MembershipAnswer(
            [key for key, chat in chats.items() if known.get(chat)],
            [key for key, chat in chats.items() if chat in unasked],
            [key for key, chat in chats.items() if chat in unanswered],
        )

    def _remembered(self, user_id: str) -> dict[str, bool]:
        now = self._clock.monotonic()
        self._answers = {place: answer for place, answer in self._answers.items() if answer[1] > now}
        return {chat: yes for (user, chat), (yes, _) in self._answers.items() if user == user_id}

    def _remember(self, user_id: str, answers: Mapping[str, bool]) -> None:
        now = self._clock.monotonic()
        for chat, yes in answers.items():
            self._answers[user_id, chat] = (yes, now + LASTS)

    async def _is_inside(self, bot: Bot, chat: str, user_id: str, room: asyncio.Semaphore) -> bool | None:
        """None where Telegram did not answer, or knows the group by another id now: that says nothing about the person."""
        async with room:
            try:
                member = await bot.get_chat_member(int(chat), int(user_id))
            except ChatMigrated as exc:
                with contextlib.suppress(errors.StorageError):
                    await self._migrations.learn(int(chat), exc.new_chat_id)
                return None
            except (bot_api.RequestNotSent, bot_api.OutcomeUnknown, bot_api.TooManyRequests):
                return None
            except (TelegramError, *bot_api.GARBLED):
                return False
            return member.status in _INSIDE or getattr(member, "is_member", False) is True


def permalink(line: ArchiveLine) -> str | None:
    """The address of a message in a supergroup; other chats have none."""
    # A message of a supergroup that was a group before says by itself where it is.
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
