"""Messages on their way out: addresses, outbox rows, questions to people, and rows built from sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from bot import text
from bot.contracts.approvals import EXAMPLES, Approval, QuestionButtons, Verdict
from bot.contracts.base import ChatType
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Redact
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core.events import Event, Queued
from bot.words import language, own_zone, zone

SECONDS = 30 * 60.0
"""Timeout in seconds for a decision on a tool call; the time continues across restarts."""


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
        return cls(*(getattr(inbound, one.name) for one in fields(cls)))

    @property
    def budget(self) -> str:
        """Return the key of the rate limit for this address. Threads and topics share the rate limit of their chat."""
        return f"{self.channel}:{self.chat_id}"

    def queued(self, name: str, words: str, **more: Any) -> Queued:
        where = {"channel": self.channel, "chat_id": self.chat_id, "chat_type": self.chat_type}
        return Queued(name, self.target, words, **{**where, "language": language(), **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow(Queued):
    """A visible message that is not delivered yet or may still change.

        queued ──sending──► sending ──row_ended──► sent │ failed │ unknown
           ▲                   │
           └─ returned, deferred

    `boot` is the id of the process whose send is in flight; "" if the platform did not answer. If it is not this
    process, the outcome is unknown and the platform is asked. A row that has ended leaves the chat's state.
    `message_id` is the platform id of a visible live message. `outdated`: a preview that no message will replace.
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
        where = {
            "channel": data.channel or event.chat.channel,
            "chat_id": data.chat_id or event.chat.chat_id,
        }
        return cls(**_fields(data) | where, chat=event.chat, turn=event.turn, queued_at=event.at)

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
class ApprovalRecord:
    """A stored question with its verdict. Only the first verdict counts. Times are epoch seconds; `verdict`
    is None while the question is open. `used` counts later calls that this approval has allowed.
    """

    id: str
    asked: Approval
    asked_at: float
    verdict: Verdict | None = None
    decided_at: float | None = None
    used: int = 0

    @property
    def expires_at(self) -> float:
        """Return the time (epoch seconds) until which the question may be decided; admission requests never expire."""
        return math.inf if self.asked.admits else self.asked_at + SECONDS


@dataclass(slots=True, eq=False)
class Question:
    """A question that waits for its first verdict. After the verdict, every visible copy is edited to show
    the outcome, and the question leaves the chat's state. `turn` is the turn that waits, if any.
    """

    record: ApprovalRecord
    turn: str | None
    decided: int = 0
    """Number of the event that decided the question; copies are edited once that event is on disk."""
    rows: dict[str, bool | None] = field(default_factory=dict)
    """Outbox rows of the question's messages: True if delivered, False if never delivered, None if unknown yet."""
    copies: dict[str, OutboxRow] = field(default_factory=dict)
    """Delivered messages that show the question and can still be edited, by outbox row."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def verdict(self) -> Verdict | None:
        return self.record.verdict

    @property
    def of_tool(self) -> bool:
        """Return True for a tool's question that the person answers with a text. The message of such a
        question stays unchanged, and the question ends with its process.
        """
        return self.record.asked.subject == "question"

    def arrived(self, row: str) -> bool | None:
        """Return True if the message of this row or its last repeat was delivered, False if not, None if
        unknown yet.
        """
        while f"{row}'" in self.rows:
            row = f"{row}'"
        return self.rows.get(row)


def is_shown_in(row: str, chat_key: ChatKey) -> bool:
    """Return True if an outbox row shows a question in this chat. The first part of a message is named
    `<question>/<chatKey>`, later parts `<question>/<chatKey>/1`.
    """
    place = row.rstrip("'").partition("/")[2]
    return place == str(chat_key) or place.startswith(f"{chat_key}/")


# ------------------------------------------------------------ sentences


@dataclass(eq=False)
class Saying:
    """Builds outbox rows from notices, questions and answers to commands: splits them for the channel and
    redacts secrets, in the current language and zone (`bot.words.speaking`).
    """

    channels: Mapping[str, Channel]
    redact: Redact

    def rows(
        self,
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
        """Return the outbox rows of one message; the first row gets the id `name`. `buttons` are shown below
        the last row. `while_open` are lines that disappear once the question is decided.
        """
        parts = self.channels[to.channel].split(self.redact(text.clean(words)))
        open_lines = {self.redact(text.clean(line)) for line in while_open}
        found = list[Queued]()
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            kept = "\n".join(line for line in part.split("\n") if line not in open_lines) or part
            row = to.queued(
                f"{name}/{at}" if at else name,
                part,
                form=form,
                part_of=name if at else None,
                last=last,
                ends=ends,
                buttons=buttons if last else None,
                question=question,
                closes_as=kept if while_open else "",
                zone=zone(),
                own_zone=own_zone(),
            )
            found.append(row)
        return found


def examples(inbound: Inbound, manifests: Mapping[str, Manifest]) -> QuestionButtons | None:
    """Return example prompts for a greeting, if the channel can show the prompts as buttons."""
    offered = inbound.chat_type == "direct" and manifests[inbound.channel].examples
    return QuestionButtons("", EXAMPLES) if offered else None
