"""Outgoing messages: addresses, outbox rows, questions to people, and the division of a text into rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from bot import text
from bot.contracts.approvals import EXAMPLES, Approval, QuestionButtons, Verdict
from bot.contracts.base import ChatType
from bot.contracts.channel import Manifest
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, OutboundKind
from bot.core.events import Event, Queued
from bot.core.services import Services
from bot.words import reader

SECONDS = 30 * 60.0
"""Timeout in seconds for the decision of a question. The timeout includes the time during which the process is stopped."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address to which an answer is sent. The address is taken from the message that is answered."""

    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    target: Mapping[str, str]
    request_id: str

    @classmethod
    def of(cls, inbound: Inbound) -> Address:
        return cls(*(getattr(inbound, one.name) for one in fields(cls)))

    def queued(self, name: str, words: str, **more: Any) -> Queued:
        where = {"channel": self.channel, "chat_id": self.chat_id, "chat_type": self.chat_type}
        return Queued(name, self.target, words, **{**where, "language": reader().language, **more})


class OutboxRow(Queued, kw_only=True):
    """A message to people that is not delivered yet, or that may still be edited.

        queued ──sending──► sending ──row_ended──► sent │ failed │ unknown
           ▲                   │
           └─ returned, deferred

    `boot` is the id of the process that is sending the row; "" if the platform did not answer the send. In that case, and
    if the process has ended, the platform is asked whether the message arrived. A row that has ended is removed from the chat's state. `message_id` is
    the platform's id of a preview or progress message. `outdated` is True for a preview that no message will replace.
    """

    chat: ChatKey
    turn: str | None
    queued_at: float
    seq: int = 0  # Number of the event that queued the row
    state: Literal["queued", "sending"] = "queued"
    boot: str = ""
    message_id: str | None = None
    outdated: bool = False
    delayed: bool = False

    @classmethod
    def of(cls, data: Queued, event: Event) -> OutboxRow:
        where = {"channel": data.channel or event.chat.channel, "chat_id": data.chat_id or event.chat.chat_id}
        return cls(
            **_fields(data) | where, chat=event.chat, turn=event.turn, queued_at=event.at, seq=event.seq
        )

    def queued(self, name: str, **changed: Any) -> Queued:
        return Queued(**_fields(self) | {"row": name} | changed)

    @property
    def id(self) -> str:
        return self.row

    @property
    def live(self) -> bool:
        return self.form in {"preview", "progress"}

    def takes(self, shown: OutboxRow) -> bool:
        preview = shown.form == "preview" and shown.message_id is not None and not shown.outdated
        answers = self.form == "reply" and self.question is None and self.file is None
        return preview and answers and (shown.turn, shown.place) == (self.turn, self.place)

    @property
    def place(self) -> tuple[tuple[str, str], ...]:
        return (("channel", self.channel), *sorted(self.target.items()))

    @property
    def address(self) -> Address:
        request = self.turn or self.id
        return Address(self.channel, self.chat_id, self.chat, self.chat_type, self.target, request)


def _fields(data: Queued) -> dict[str, Any]:
    return {one.name: getattr(data, one.name) for one in fields(Queued)}


# ------------------------------------------------------------ questions


@dataclass(frozen=True, slots=True)
class LastingApproval:
    """A stored approval that also covers later tool calls. `used` counts the later calls that the approval has allowed.
    `decided_at` is in epoch seconds.
    """

    id: str
    asked: Approval
    verdict: Verdict
    decided_at: float
    used: int = 0


@dataclass(slots=True, eq=False)
class Question:
    """A question to people. After the first verdict, each message that shows the question is edited to show the outcome.
    Then the question is removed from the chat's state. `turn` is the turn that waits for the verdict; None if no turn waits.
    Times are in epoch seconds.
    """

    id: str
    asked: Approval
    asked_at: float
    turn: str | None
    seq: int  # Number of the event that records the question
    verdict: Verdict | None = None
    decided_at: float = 0.0
    decided: int = 0
    """Number of the event that decided the question. The messages are edited only after this event has been written to disk."""
    rows: dict[str, bool | None] = field(default_factory=dict)
    """For each outbox row that shows the question: True if delivered, False if delivery failed, None if not known yet."""
    copies: dict[str, OutboxRow] = field(default_factory=dict)
    """Delivered messages of the question that can still be edited, keyed by outbox row."""

    @property
    def expires_at(self) -> float:
        """Return the time at which the question expires. A person's request for admission never expires."""
        return math.inf if self.asked.subject == "person" else self.asked_at + SECONDS

    @property
    def of_tool(self) -> bool:
        """Return True if a tool asks the person for a text. The message of such a question is not edited after the answer, and
        the question ends when the process ends.
        """
        return self.asked.subject == "question"

    def arrived(self, row: str) -> bool | None:
        """Return True if this row or its last repeat was delivered, False if it failed, and None if it is not known yet."""
        while f"{row}'" in self.rows:
            row = f"{row}'"
        return self.rows.get(row)


def is_shown_in(row: str, chat_key: ChatKey) -> bool:
    """Return True if this outbox row shows a question in this chat. The first row of such a message is named
    `<question>/<chatKey>`, and the next row `<question>/<chatKey>/1`.
    """
    place = row.rstrip("'").partition("/")[2]
    return place == str(chat_key) or place.startswith(f"{chat_key}/")


# ------------------------------------------------------------ sentences


def rows(
    services: Services,
    name: str,
    to: Address,
    words: str,
    *,
    form: OutboundKind = "notice",
    ends: bool = False,
    buttons: QuestionButtons | None = None,
    question: str | None = None,
    while_open: Sequence[str] = (),
) -> list[Queued]:
    """Return the outbox rows of a notice, a question or an answer to a command. The text is split for the channel, and secrets
    are redacted. The first row has the id `name`; the last row shows the `buttons`. The lines `while_open` are removed from
    the message once the question is decided. Each row stores the current language and time zone (`bot.words.speaking`).
    """
    parts = services.channels[to.channel].split(services.redact(text.clean(words)))
    open_lines = {services.redact(text.clean(line)) for line in while_open}
    return [
        to.queued(
            f"{name}/{at}" if at else name,
            part,
            form=form,
            part_of=name if at else None,
            last=(last := at == len(parts) - 1),
            ends=ends,
            buttons=buttons if last else None,
            question=question,
            closes_as="\n".join(line for line in part.split("\n") if line not in open_lines) or part
            if while_open
            else "",
            zone=reader().zone,
            own_zone=reader().own,
        )
        for at, part in enumerate(parts)
    ]


def examples(inbound: Inbound, manifests: Mapping[str, Manifest]) -> QuestionButtons | None:
    """Return buttons with example prompts for a greeting; None outside direct chats, or if the channel has no such buttons."""
    offered = inbound.chat_type == "direct" and manifests[inbound.channel].examples
    return QuestionButtons("", EXAMPLES) if offered else None
