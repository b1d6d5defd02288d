"""Participation as the journal remembers it."""

from __future__ import annotations

import asyncio

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import HEARD, Inbound, Listening
from bot.contracts.journal import Journal
from bot.features.listening import participation
from bot.features.listening.participation import SKEW
from bot.gateway.questions import QuestionService


class Participation(participation.Participation):
    """Keeps what people say about listening too."""

    def __init__(self, journal: Journal, questions: QuestionService) -> None:
        super().__init__()
        self._journal = journal
        self._asks = questions.asks  # type: ignore[method-assign]
        self._listening: dict[ChatKey, Listening] | None = None
        self._reading: asyncio.Future[dict[ChatKey, Listening]] | None = None

    async def listening(self, chat: ChatKey) -> Listening:
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

    async def _heard(self, chat_key: ChatKey) -> bool:
        return await self._journal.knows(chat_key)

    async def _concerns(self, change: Inbound) -> bool:
        if await self._journal.about(change.chat_key, change.message_id or ""):
            return True
        since = change.ts / 1000 - SKEW
        return change.kind == "delete" and bool(
            await self._journal.said_in(change.chat_key.chat, since=since, limit=1)
        )
