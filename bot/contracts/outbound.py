"""Messages that Shipmate sends, as channels get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.contracts.approvals import QuestionButtons
from bot.contracts.identity import ChatKey
from bot.words import DEFAULT

OutboundKind = Literal["reply", "notice", "preview", "progress"]
"""A `preview` shows an unfinished answer: it is edited, and at last replaced by the final message. `progress` is edited, and at last
turned into a summary.
"""


ONLY_TO = "only_to"
"""Key of a target: the id of the only person who may see the message (`Manifest.ephemeral`)."""
ABOUT = "about"
"""Key of a target beside `ONLY_TO`: the id of the message that it replies to."""


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to upload. `path` is relative to the project's folder, or ""."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)
    path: str = ""
    markdown: str = field(default="", repr=False)
    """The passage of an answer that the file replaces, or ""."""


@dataclass(frozen=True, slots=True)
class Outbound:
    """One visible message: a redacted part that `Channel.split` made."""

    id: str
    """The ULID of its outbox row."""
    request_id: str
    chat_key: ChatKey
    target: Mapping[str, str]
    text: str
    kind: OutboundKind = "reply"
    title: str = ""
    cards: tuple[Card, ...] = ()
    """The content of a `progress`, for channels with a native form for it; its `text` says the same."""
    sure: str = ""
    """The prefix of a `preview` that will not change, for channels that can only append."""
    goes_on: bool = False
    """A `preview` or `progress` that will be edited again."""
    ends: bool = False
    """The last part of an answer, below which a channel may ask for a rating."""
    repeat_of: str | None = None
    """The id of the row of unknown outcome that this one repeats. A channel without `find` sends it only over a connection that has
    just responded.
    """
    buttons: QuestionButtons | None = None
    language: str = DEFAULT
    """Language of texts that the channel adds, such as button labels."""
    meant_at: float = 0.0
    """Earliest time at which it can be in the chat (epoch seconds); for `Channel.find`."""
    claimed: frozenset[str] = frozenset()
    """Message ids of other rows of this chat, which `Channel.find` must not return."""
    file: OutgoingFile | None = None
    """A file to upload (`contracts.channel.SendsFiles`); `text` is its caption, usually ""."""


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
