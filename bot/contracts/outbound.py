"""Messages of Shipmate: one visible message, its kind, its cards, its id on the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bot.contracts.identity import ChatKey

OutboundKind = Literal["reply", "notice", "preview", "progress"]
"""A `preview` shows what is not certain yet: it is created once and then changed, at last into what takes its place. So
does `progress`, at last into a summary.
"""


@dataclass(frozen=True, slots=True)
class Outbound:
    """One visible message: a part that `Channel.split` made, redacted. `id` (ULID) names its outbox row. `repeat_of` is
    that of the row whose words these are, once more: a channel that cannot be asked what arrived sends it only over a
    connection that has just answered.
    """

    id: str
    request_id: str
    chat_key: ChatKey
    target: Mapping[str, str]
    text: str
    kind: OutboundKind = "reply"
    title: str = ""
    cards: tuple[Card, ...] = ()
    """Of a `progress`: what its text says, for channels that have a form of their own for that. They may use the text."""
    repeat_of: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The platform's record of a delivered message."""

    message_id: str


CardState = Literal["pending", "in_progress", "complete", "error"]


@dataclass(frozen=True, slots=True)
class Card:
    """One of the things that are being done: for channels that show such things in a form of their own."""

    id: str
    title: str
    state: CardState
    detail: str = ""
