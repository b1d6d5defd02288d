"""Messages that Shipmate sends, in the form that channels receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.contracts.approvals import QuestionButtons
from bot.contracts.identity import ChatKey
from bot.words import DEFAULT

OutboundKind = Literal["reply", "notice", "preview", "progress"]
"""A `preview` shows an unfinished answer, until the final message replaces it. A `progress` shows the steps of a turn, and
finally becomes a summary.
"""
ONLY_TO = "only_to"
"""Key in `Outbound.target`. Its value is the id of the only person who may see the message (`Manifest.ephemeral`)."""
ABOUT = "about"  # Key in a target with `ONLY_TO`. Its value is the id of the message that the bot answers.


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to upload. `path` is relative to the project folder; "" if the file is not in that folder."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)
    path: str = ""
    markdown: str = field(default="", repr=False)  # Passage of the answer that the file replaces, or ""


@dataclass(frozen=True, slots=True)
class Outbound:
    """One visible message: a part of a text, as `Channel.split` cut it, without secrets."""

    id: str  # ULID of the message's outbox row
    request_id: str
    chat_key: ChatKey
    target: Mapping[str, str]
    text: str
    kind: OutboundKind = "reply"
    title: str = ""
    cards: tuple[
        Card, ...
    ] = ()  # Steps of a `progress`, for channels that display cards. `text` says the same.
    sure: str = ""  # Beginning of a `preview` that will not change, for channels that can only append text
    goes_on: bool = False  # True for a `preview` or `progress` that will be edited again
    ends: bool = False  # True for the last part of an answer. A channel may ask for a rating below this part.
    repeat_of: str | None = None
    """Id of the outbox row that this message repeats, because its delivery is unknown. A channel without `find` sends the
    repeat only over a connection that has just responded.
    """
    buttons: QuestionButtons | None = None
    language: str = DEFAULT  # Language of the texts that the channel adds, such as button labels
    meant_at: float = 0.0
    """Earliest time (epoch seconds) at which the message can be in the chat. `Channel.find` ignores older messages."""
    claimed: frozenset[str] = frozenset()
    """Message ids of other outbox rows of this chat, which `Channel.find` must not return."""
    file: OutgoingFile | None = None
    """File to upload (`contracts.channel.Channel.largest_file`). `text` is then the caption, usually ""."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The platform's record of a delivered message."""

    message_id: str


CardState = Literal["pending", "in_progress", "complete", "error"]


@dataclass(frozen=True, slots=True)
class Card:
    """One step of a `progress`."""

    id: str
    title: str
    state: CardState
    detail: str = ""
