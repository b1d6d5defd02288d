"""Replies that wait for their platform: which chats have some, and until when."""

from __future__ import annotations

import asyncio

from bot.contracts.identity import ChatKey
from bot.contracts.journal import DeliveryRecord
from bot.gateway.address import Address


def left(row: DeliveryRecord, now: float) -> float:
    """Seconds until an outbox row is to go out, 0 where it may. A clock that was set back makes them no more than they
    were when it was put off.
    """
    until = row.not_before
    return 0.0 if until is None else max(0.0, min(until - now, until - row.changed_at))


class Waiting:
    """By chat, in order, the answers of which parts wait. A chat that is in here gets no later reply before them."""

    def __init__(self) -> None:
        self.chats: dict[ChatKey, dict[str, Address]] = {}
        self.changed = asyncio.Event()

    def add(self, to: Address) -> None:
        self.chats.setdefault(to.chat_key, {}).setdefault(to.request_id, to)
        self.changed.set()
