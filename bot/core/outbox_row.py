"""Outbox row: a message to send, folded from a chat's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from bot.contracts.base import ChatType
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core.events import Event, Queued


@dataclass(frozen=True, slots=True)
class Address:
    """Address of an answer, fixed by the incoming message that it answers."""

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
        """Return the key of the rate limit for this address. Threads and topics share the rate limit of their chat."""
        return f"{self.channel}:{self.chat_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow(Queued):
    """A visible message that is not delivered yet or may still change.

        queued ──sending──► sending ──row_ended──► sent │ failed │ unknown
           ▲                   │
           └─ returned, deferred

    `boot` is the id of the process whose send is in flight. If another process was sending the row, or if the
    platform did not answer (`boot` is ""), the outcome is unknown and the platform is asked. A row that has ended
    is removed from the chat's state. `message_id` is the platform id of a live message that is visible in the
    chat. `outdated`: a preview that no message will replace.
    """

    chat: ChatKey
    turn: str | None
    queued_at: float
    state: Literal["queued", "sending"] = "queued"
    boot: str = ""
    message_id: str | None = None
    outdated: bool = False
    delayed: bool = False

    @classmethod
    def of(cls, data: Queued, event: Event) -> OutboxRow:
        """Return the row of a `queued` event."""
        where = {
            "channel": data.channel or event.chat.channel,
            "chat_id": data.chat_id or event.chat.chat_id,
        }
        return cls(**_fields(data) | where, chat=event.chat, turn=event.turn, queued_at=event.at)

    def queued(self, name: str, **changed: Any) -> Queued:
        """Return the event that queues this message, or with changed fields another one, under a name."""
        return Queued(**_fields(self) | {"row": name} | changed)

    @property
    def id(self) -> str:
        return self.row

    @property
    def repeats(self) -> int:
        """Return the number of repeats of this text, including this row."""
        return len(self.id) - len(self.id.rstrip("'"))

    @property
    def live(self) -> bool:
        """Return True for a message that is edited while its turn runs."""
        return self.form in {"preview", "progress"}

    def takes(self, shown: OutboxRow) -> bool:
        """Return True if this message replaces a visible preview."""
        preview = shown.form == "preview" and shown.message_id is not None and not shown.outdated
        answers = self.form == "reply" and self.question is None and self.file is None
        return preview and answers and (shown.turn, shown.place) == (self.turn, self.place)

    @property
    def place(self) -> tuple[tuple[str, str], ...]:
        """Return the target whose rows are sent in order."""
        return (("channel", self.channel), *sorted(self.target.items()))

    @property
    def address(self) -> Address:
        """Return the address to send to."""
        return Address(
            self.channel, self.chat_id, self.chat, self.chat_type, self.target, self.turn or self.id
        )


def _fields(data: Queued) -> dict[str, Any]:
    return {one.name: getattr(data, one.name) for one in fields(Queued)}
