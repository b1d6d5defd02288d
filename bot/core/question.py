"""A question to people, as folded from a chat's events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from bot.contracts.approvals import Approval, Verdict
from bot.core.outbox_row import OutboxRow

SECONDS = 30 * 60.0
"""A call waits so long for a decision, over restarts too."""


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A question as it is on file. Its first verdict counts. Times are epoch seconds; there is no verdict while it waits."""

    id: str
    asked: Approval
    asked_at: float
    verdict: Verdict | None = None
    decided_at: float | None = None
    used: int = 0
    """The number of later calls that it has approved."""

    @property
    def expires_at(self) -> float:
        """The time until which it may be decided; whoever wants to be let in waits for as long as it takes."""
        return math.inf if self.asked.admits else self.asked_at + SECONDS


@dataclass(slots=True, eq=False)
class Question:
    """It waits for its first verdict. Then every visible copy is edited to show the outcome, and it leaves
    the fold. `turn` is the turn that waits, if any.
    """

    record: ApprovalRecord
    turn: str | None
    decided: int = 0
    """The number of the event that decided it; copies are edited after that is on disk."""
    rows: dict[str, bool | None] = field(default_factory=dict)
    """Its messages by row: True if delivered, False if never, None if unknown yet."""
    copies: dict[str, OutboxRow] = field(default_factory=dict)
    """Delivered messages that can still be edited."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def verdict(self) -> Verdict | None:
        return self.record.verdict

    def arrived(self, row: str) -> bool | None:
        """Return True once one of its messages or repeats is delivered, False if none ever will be, None if
        unknown yet.
        """
        while f"{row}'" in self.rows:
            row = f"{row}'"
        return self.rows.get(row)

    def decide(self, verdict: Verdict, at: float) -> None:
        """Record a verdict; the first one counts."""
        if self.record.verdict is None:
            self.record = replace(self.record, verdict=verdict, decided_at=at)

    @property
    def of_tool(self) -> bool:
        """True for a tool's question that the person answers in words: its message stays as it is, and it
        ends with its process.
        """
        return self.record.asked.subject == "question"

    @property
    def over(self) -> bool:
        """True once it is decided and every copy shows the outcome."""
        return self.verdict is not None and not self.copies and None not in self.rows.values()
