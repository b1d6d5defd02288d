"""Direct chats in which each message outside of threads opens a conversation: quick messages in a row are one conversation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core.message_versions import plain

QUICK = 10_000
"""Max milliseconds between two messages of one conversation: people who have stopped to think open another one."""
MOST_CHATS = 1_000
OF_CONVERSATION = frozenset(
    {"compact", "effort", "forget", "fork", "history", "model", "new", "resume", "stats", "undo"}
)
"""Commands about one conversation of a chat."""


class DirectConversations(ABC):
    """Gives an inbound the conversation that it belongs to."""

    def __init__(self) -> None:
        self._newest: OrderedDict[ChatKey, Inbound] = OrderedDict()

    @abstractmethod
    def _unanswered(self, before: Inbound) -> bool:
        """True while a message waits for an answer, of which nobody has seen anything."""

    @abstractmethod
    async def _change(self, change: Inbound) -> Inbound:
        """A change of a message, in the conversation of that."""

    async def placed(self, inbound: Inbound) -> Inbound:
        """A message that follows an unanswered one quickly goes on with that; a change is where its message is. Raises
        `errors.StorageError`.
        """
        if not inbound.opens:
            return inbound
        if plain(inbound):
            return self._message(inbound)
        return await self._change(inbound) if inbound.kind in {"edit", "delete"} else inbound

    def _message(self, inbound: Inbound) -> Inbound:
        chat = inbound.chat_key.chat
        before = self._newest.pop(chat, None)
        if before is not None and abs(inbound.ts - before.ts) <= QUICK and self._unanswered(before):
            place = {"chat_key": before.chat_key, "target": before.target}
            inbound = inbound.model_copy(update=place)
        self._newest[chat] = inbound
        if len(self._newest) > MOST_CHATS:
            self._newest.popitem(last=False)
        return inbound
