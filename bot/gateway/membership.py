"""Membership in chats: the platform is asked each time, and believed only where it says yes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import Channel
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.contracts.recall import KnowsChatMigrations, KnowsLinks, KnowsMembers, MembershipAnswer

SECONDS = 15.0
"""The time for a platform to say who is where."""


class Memberships:
    """`contracts.recall.Membership` by the channels that run; and the addresses that they know of messages."""

    def __init__(self, channels: Mapping[str, Channel], log: Log) -> None:
        self._channels = channels
        self._log = log

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        knows = self._channels.get(channel)
        asked = [key for key in chat_keys if key.channel == channel]
        if not asked or not isinstance(knows, KnowsMembers):
            return MembershipAnswer([])
        try:
            async with asyncio.timeout(SECONDS):
                found = await knows.chats_of(user_id, asked, direct=direct)
        except (errors.ShipmateError, TimeoutError) as error:
            self._log.write(
                "denied",
                "who is in which chat cannot be known: other chats were not searched",
                level="warn",
                cause=f"{type(error).__name__}: {error}",
            )
            return MembershipAnswer([], unanswered=asked)

        def of(keys: Sequence[ChatKey]) -> list[ChatKey]:
            known = set(keys)
            return [key for key in asked if key in known]

        # Never more than was asked about.
        return MembershipAnswer(of(found.chats), of(found.unasked), of(found.unanswered))

    def same_chat(self, channel: str, chat_id: str) -> frozenset[str]:
        """All ids of a chat, as its channel knows them."""
        knows: object = self._channels.get(channel)
        return knows.same_chat(chat_id) if isinstance(knows, KnowsChatMigrations) else frozenset({chat_id})

    def permalink(self, line: ArchiveLine) -> str | None:
        """The address of a message, where its channel knows it."""
        knows: object = self._channels.get(line.channel)
        return knows.permalink(line) if isinstance(knows, KnowsLinks) else None
