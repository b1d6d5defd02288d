"""`Address`: where an answer goes, and which message it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.contracts.base import ChatType
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a message: fixed by the inbound it answers."""

    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    target: Mapping[str, str]
    request_id: str

    @classmethod
    def of(cls, inbound: Inbound) -> Address:
        return cls(
            inbound.channel,
            inbound.chat_id,
            inbound.chat_key,
            inbound.chat_type,
            inbound.target,
            inbound.request_id,
        )

    @property
    def budget(self) -> str:
        """Threads and topics share the budget of their chat."""
        return f"{self.channel}:{self.chat_id}"
