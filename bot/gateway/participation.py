"""Participation: which messages of a group are for the bot, as `/listen` says."""

from __future__ import annotations

import asyncio

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import HEARD, Inbound, Listening
from bot.contracts.journal import Journal
from bot.gateway.questions import QuestionService

MOST_KNOWN = 10_000
"""Conversations that the bot is known to take part in; of others the journal is asked."""
SKEW = 300.0
"""Seconds by which the clock of a platform may differ from ours."""


class Participation:
    """Decides for each message whether it counts, and keeps what people say about that. Raises `errors.StorageError`."""

    def __init__(self, journal: Journal, questions: QuestionService) -> None:
        self._journal = journal
        self._questions = questions
        self._listening: dict[ChatKey, Listening] | None = None
        self._reading: asyncio.Future[dict[ChatKey, Listening]] | None = None
        self._asking: dict[ChatKey, asyncio.Future[bool]] = {}
        self._known: dict[ChatKey, None] = {}

    async def listening(self, chat: ChatKey) -> Listening:
        """The messages of a chat that are for the bot."""
        if self._listening is None:
            reading = self._reading = self._reading or asyncio.ensure_future(self._journal.listening())
            try:
                self._listening = await asyncio.shield(reading)
            finally:
                if reading.done():
                    self._reading = None
        return self._listening.get(chat.chat, HEARD)

    async def listen(self, chat: ChatKey, listening: Listening) -> None:
        """Listen to these messages of a chat from now on, over restarts."""
        await self.listening(chat)
        await self._journal.listen(chat.chat, listening)
        if self._listening is not None:
            self._listening[chat.chat] = listening

    async def counts(self, inbound: Inbound) -> bool:
        """True where an inbound is for the bot. What comes after it in the same conversation waits for the answer, so that it
        stays behind it.
        """
        chat_key = inbound.chat_key
        while (asking := self._asking.get(chat_key)) is not None:
            await asyncio.wait([asking])
        if inbound.addressed in {"direct", "command"} or (
            chat_key in self._known and inbound.addressed == "thread" and not _listened_to(inbound)
        ):
            return True
        asking = self._asking[chat_key] = asyncio.ensure_future(self._decide(inbound))
        try:
            return await asyncio.shield(asking)
        finally:
            del self._asking[chat_key]

    def joined(self, chat_key: ChatKey) -> None:
        """The bot takes part in a conversation; it never stops to."""
        self._known[chat_key] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def _decide(self, inbound: Inbound) -> bool:
        if _listened_to(inbound):
            listening = await self.listening(inbound.chat_key)
            if listening in {"always", "never"}:
                return listening == "always"
            if inbound.addressed == "chat":
                return False
            if (
                listening == "mention"
                and inbound.addressed != "mention"
                and not self._questions.asks(inbound)
            ):
                return False
            if inbound.overheard and inbound.to_others:
                return False
        elif inbound.overheard:
            # A change counts where its message did, whatever was said of listening since.
            takes_part = inbound.addressed == "thread" and await self._takes_part(inbound.chat_key)
            return takes_part or await self._concerns(inbound)
        return not inbound.overheard or await self._takes_part(inbound.chat_key)

    async def _concerns(self, change: Inbound) -> bool:
        """True where the bot has heard a message, or may have been shown it since: a mention brings what was said before it."""
        if await self._journal.about(change.chat_key, change.message_id or ""):
            return True
        since = change.ts / 1000 - SKEW
        return change.kind == "delete" and bool(
            await self._journal.said_in(change.chat_key.chat, since=since, limit=1)
        )

    async def _takes_part(self, chat_key: ChatKey) -> bool:
        if chat_key in self._known:
            return True
        known = await self._journal.knows(chat_key)
        if known:
            self.joined(chat_key)
        return known


def _listened_to(inbound: Inbound) -> bool:
    """True for words; commands and changes of what was heard pass."""
    return inbound.kind == "message" and inbound.command is None
