"""Replies that wait for their platform: which chats have some, and until when."""

from __future__ import annotations

import asyncio

from bot.contracts import DeliveryRecord
from bot.gateway.address import Address

_MARK = "deferred until "


def deferred(until: float) -> str:
    """The `detail` of an outbox row that is to go out at `until` (epoch seconds)."""
    return f"{_MARK}{until:.3f}"


def due(detail: str | None) -> float | None:
    """When an outbox row was to go out; None where it was never put off."""
    if detail is None or not detail.startswith(_MARK):
        return None
    try:
        return float(detail.removeprefix(_MARK))
    except ValueError:
        return 0.0


def left(row: DeliveryRecord, now: float) -> float:
    """Seconds until an outbox row is to go out, 0 where it may. A clock that was set back makes them no more than they
    were when it was put off.
    """
    until = due(row.detail)
    return 0.0 if until is None else max(0.0, min(until - now, until - row.changed_at))


class Waiting:
    """By chat, in order, the answers of which parts wait. A chat that is in here gets no later reply before them."""

    def __init__(self) -> None:
        self.chats: dict[str, dict[str, Address]] = {}
        self.changed = asyncio.Event()

    def add(self, to: Address) -> None:
        self.chats.setdefault(to.chat_key, {}).setdefault(to.request_id, to)
        self.changed.set()
