"""Outbox row: a message to send, folded from a chat's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import ChatType
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.words import UTC

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The part of an `OutgoingFile` that its outbox row stores. The bytes are in `.ship/outgoing`, under
    their SHA-256.
    """

    name: str
    mime_type: str
    size: int
    sha256: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A visible message that is not delivered yet or may still change.

        queued ──sending──► sending ──row_ended──► sent │ failed │ unknown
           ▲                   │
           └─ returned, deferred

    `boot` is the id of the process whose send is in flight. If another process was sending the row, or if the
    platform did not answer (`boot` is ""), the outcome is unknown and the platform is asked. A row that has ended
    is removed from the chat's state.
    """

    id: str
    chat: ChatKey
    turn: str | None
    channel: str
    chat_id: str
    chat_type: ChatType
    target: Mapping[str, str]
    text: str
    form: OutboundKind
    queued_at: float
    state: Literal["queued", "sending"] = "queued"
    boot: str = ""
    message_id: str | None = None
    """Platform id of the message, once a live message is visible in the chat."""
    ends: bool = False
    """True for the last message of its turn, unless the message fails."""
    last: bool = True
    """True for the last part of a message."""
    part_of: str | None = None
    replaces: str | None = None
    """Platform id of the message that this message replaces."""
    outdated: bool = False
    """True for a preview that no message will replace."""
    repeat_of: str | None = None
    not_before: float | None = None
    delayed: bool = False
    language: str = ""
    buttons: QuestionButtons | None = None
    question: str | None = None
    closes_as: str = ""
    zone: str = UTC
    own_zone: bool = False
    file: StoredFile | None = None
    """File to send. The text is then the passage that the file replaces, usually ""."""

    @classmethod
    def of(cls, data: Queued, event: Event) -> OutboxRow:
        """Return the row of a `queued` event."""
        return cls(
            data.row,
            event.chat,
            event.turn,
            data.channel or event.chat.channel,
            data.chat_id or event.chat.chat_id,
            data.chat_type,
            data.target,
            data.text,
            data.form,
            event.at,
            ends=data.ends,
            last=data.last,
            part_of=data.part_of,
            replaces=data.replaces,
            repeat_of=data.repeat_of,
            not_before=data.not_before,
            language=data.language,
            buttons=data.buttons,
            question=data.question,
            closes_as=data.closes_as,
            zone=data.zone,
            own_zone=data.own_zone,
            file=data.file,
        )

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
