"""A question to people, with its state folded from a chat's events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from bot.contracts.approvals import Approval, Verdict
from bot.contracts.identity import ChatKey
from bot.core.outbox_row import OutboxRow

SECONDS = 30 * 60.0
"""Timeout in seconds for a decision on a tool call; the time continues across restarts."""


def is_shown_in(row: str, chat_key: ChatKey) -> bool:
    """Return True if an outbox row shows a question in this chat. The first part of a message is named
    `<question>/<chatKey>`, later parts `<question>/<chatKey>/1`.
    """
    place = row.rstrip("'").partition("/")[2]
    return place == str(chat_key) or place.startswith(f"{chat_key}/")


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A stored question with its verdict. Only the first verdict counts. Times are epoch seconds; `verdict`
    is None while the question is open.
    """

    id: str
    asked: Approval
    asked_at: float
    verdict: Verdict | None = None
    decided_at: float | None = None
    used: int = 0
    """Number of later calls that this approval has allowed."""

    @property
    def expires_at(self) -> float:
        """Return the time (epoch seconds) until which the question may be decided; admission requests never expire."""
        return math.inf if self.asked.admits else self.asked_at + SECONDS


@dataclass(slots=True, eq=False)
class Question:
    """A question that waits for its first verdict. After the verdict, every visible copy is edited to show
    the outcome, and the question is removed from the chat's state. `turn` is the turn that waits, if any.
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

    def arrived(self, row: str) -> bool | None:
        """Return True if the message of this row or its last repeat was delivered, False if not, None if
        unknown yet.
        """
        while f"{row}'" in self.rows:
            row = f"{row}'"
        return self.rows.get(row)

    def decide(self, verdict: Verdict, at: float) -> None:
        """Record a verdict, unless the question already has a verdict."""
        if self.record.verdict is None:
            self.record = replace(self.record, verdict=verdict, decided_at=at)

    @property
    def of_tool(self) -> bool:
        """Return True for a tool's question that the person answers with a text. The message of such a
        question stays unchanged, and the question ends with its process.
        """
        return self.record.asked.subject == "question"

    @property
    def over(self) -> bool:
        """Return True once the question is decided and every copy shows the outcome."""
        return self.verdict is not None and not self.copies and None not in self.rows.values()
