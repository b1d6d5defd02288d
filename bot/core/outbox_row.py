"""A message on its way out, as the fold of a chat has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import ChatType
from bot.contracts.identity import ChatKey
from bot.contracts.outbound import Address, OutboundKind, StoredFile
from bot.words import UTC

if TYPE_CHECKING:
    from bot.core.events import Event, Queued


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One visible message that may still go out or change.

        queued ──sending──► sending ──row_ended──► sent │ failed │ unknown
           ▲                   │
           └─ returned, deferred

    `boot` names the process whose send is in flight. A row whose send is open in another boot, or got no answer (`boot` ""), has an
    unknown outcome: its platform is asked. A row at its end leaves the fold.
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
    """That of the platform, once a live message stands in the chat."""
    ends: bool = False
    """True of the words with which its turn ends, unless they fail."""
    last: bool = True
    """True of the last part of a message."""
    part_of: str | None = None
    replaces: str | None = None
    """The platform's id of the message in whose place it comes."""
    outdated: bool = False
    """True of a preview in whose place nothing comes any more."""
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
    """The file that this message is. Its text is the passage in whose place it comes, most often ""."""

    @classmethod
    def of(cls, data: Queued, event: Event) -> OutboxRow:
        """The row that an event queues."""
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
        """The number of repeats of the same words, up to this one."""
        return len(self.id) - len(self.id.rstrip("'"))

    @property
    def live(self) -> bool:
        """True of a message that changes while its turn runs."""
        return self.form in {"preview", "progress"}

    def takes(self, shown: OutboxRow) -> bool:
        """True where this message comes in the place of a preview that stands in the chat."""
        preview = shown.form == "preview" and shown.message_id is not None and not shown.outdated
        answers = self.form == "reply" and self.question is None and self.file is None
        return preview and answers and (shown.turn, shown.place) == (self.turn, self.place)

    @property
    def place(self) -> tuple[tuple[str, str], ...]:
        """Messages of one place go out one after another."""
        return (("channel", self.channel), *sorted(self.target.items()))

    @property
    def address(self) -> Address:
        """The address to send to."""
        return Address(
            self.channel, self.chat_id, self.chat, self.chat_type, self.target, self.turn or self.id
        )
