"""Direct chats in which each message outside of threads opens a conversation: quick messages in a row are one conversation."""

from __future__ import annotations

import math
from collections import OrderedDict

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.core.message_versions import plain
from bot.gateway.backlog import InFlight
from bot.gateway.turn_queue import TurnQueue

QUICK = 10_000
"""Max milliseconds between two messages of one conversation: people who have stopped to think open another one."""
SKEW = 300.0
"""Seconds by which a platform may bring a message late."""
MOST_LOOKED_AT = 200
MOST_CHATS = 1_000


class DirectConversations:
    """Gives an inbound the conversation that it belongs to."""

    def __init__(self, journal: Journal, turn_queue: TurnQueue, in_flight: InFlight) -> None:
        self._journal = journal
        self._turn_queue = turn_queue
        self._in_flight = in_flight
        self._newest: OrderedDict[ChatKey, Inbound] = OrderedDict()

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

    def _unanswered(self, before: Inbound) -> bool:
        if before.request_id in self._in_flight.writing:
            return True
        chat = dict(self._turn_queue.chats()).get(before.chat_key)
        if chat is None or before.request_id not in chat.request_ids:
            return False
        turn = chat.turn
        if turn is None or not (turn.over or turn.written or turn.suspended):
            return True
        return all(one.request_id != before.request_id for one in turn.all)

    async def _change(self, change: Inbound) -> Inbound:
        # The time of a deletion is that of its message.
        near = (
            (change.ts / 1000 - SKEW, change.ts / 1000 + SKEW) if change.kind == "delete" else (0.0, math.inf)
        )
        said = await self._journal.said_in(
            change.chat_key.chat, since=near[0], until=near[1], limit=MOST_LOOKED_AT
        )
        found = (one.inbound.chat_key for one in said if one.inbound.message_id == change.message_id)
        return change.model_copy(update={"chat_key": next(found, change.chat_key)})
