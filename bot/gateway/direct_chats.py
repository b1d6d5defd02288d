"""Direct conversations as the journal and the queue have them."""

from __future__ import annotations

import math

from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.features.conversations import direct
from bot.gateway.backlog import InFlight
from bot.gateway.turn_queue import TurnQueue

SKEW = 300.0
"""Seconds by which a platform may bring a message late."""
MOST_LOOKED_AT = 200


class DirectConversations(direct.DirectConversations):
    """Looks for messages in the journal."""

    def __init__(self, journal: Journal, turn_queue: TurnQueue, in_flight: InFlight) -> None:
        super().__init__()
        self._journal = journal
        self._turn_queue = turn_queue
        self._in_flight = in_flight

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
