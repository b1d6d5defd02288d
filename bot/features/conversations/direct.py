"""Assigns direct messages to conversations: each message outside a thread starts one, but quick successive
messages share it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core.message_versions import plain

QUICK = 10_000
"""Max milliseconds between two messages of one conversation."""
MOST_CHATS = 1_000
OF_CONVERSATION = frozenset(
    {"compact", "effort", "forget", "fork", "history", "model", "new", "resume", "stats", "undo"}
)
"""Commands that concern one conversation of a chat."""


class DirectConversations(ABC):
    """Finds the conversation of an inbound."""

    def __init__(self) -> None:
        self._newest: OrderedDict[ChatKey, Inbound] = OrderedDict()

    @abstractmethod
    def _unanswered(self, before: Inbound) -> bool:
        """Return True while a message is unanswered and nobody has seen part of an answer."""

    @abstractmethod
    async def _change(self, change: Inbound) -> Inbound:
        """Return an edit or deletion in the conversation of its message."""

    async def placed(self, inbound: Inbound) -> Inbound:
        """Return the inbound in its conversation: that of a quickly preceding unanswered message, or of the
        message it changes. Raises `errors.StorageError`.
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
