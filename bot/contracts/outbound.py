"""Messages of Shipmate: one visible message as channels get it, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import ChatType
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.words import DEFAULT

OutboundKind = Literal["reply", "notice", "preview", "progress"]
"""A `preview` shows what is not certain yet: it is created once and then changed, at last into what takes its place. So
does `progress`, at last into a summary.
"""


ONLY_TO = "only_to"
"""The field of a target that names the one person who is to see a message, where the channel has a way (`Manifest.ephemeral`)."""
ABOUT = "about"
"""The field beside it with the id of the message that it answers."""


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that people get, whole. `path` is its place from the project's folder on; "" where it has none."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)
    path: str = ""
    markdown: str = field(default="", repr=False)
    """The passage of an answer in whose place it comes; "" of a file that somebody made."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The part of an `OutgoingFile` that its row has: the bytes are kept in `.ship/outgoing` by their SHA-256."""

    name: str
    mime_type: str
    size: int
    sha256: str
    path: str = ""


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
    sure: str = ""
    """Of a `preview`: the beginning of its text that stays as it is, for channels in which a text can only grow."""
    goes_on: bool = False
    """True of a `preview` or `progress` that will be changed again."""
    ends: bool = False
    """True of the last part of an answer: below it a channel may ask what people think of it."""
    repeat_of: str | None = None
    buttons: QuestionButtons | None = None
    """Of a question about an approval."""
    language: str = DEFAULT
    """The language of the words that a channel adds, such as those on buttons."""
    meant_at: float = 0.0
    """The time from which on it can be in the chat, in epoch seconds."""
    claimed: frozenset[str] = frozenset()
    """The message ids that other rows of its chat have: where `Channel.find` goes by what is shown, it takes none of these."""
    file: OutgoingFile | None = None
    """The file that this message is, for a channel that is a `contracts.channel.SendsFiles`; its text is a caption, most often ""."""


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


@dataclass(frozen=True, slots=True)
class LiveForm:
    """The form of a live message beside its words, as the fields of the same names of `Outbound`. `mark` stands behind the
    words that people see of it, which are not complete: its row has them without.
    """

    title: str = ""
    cards: tuple[Card, ...] = ()
    sure: str = ""
    goes_on: bool = False
    mark: str = ""


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
