"""A question to people, as the fold of its chat has it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bot.contracts.approvals import ApprovalRecord, Verdict
from bot.core.outbox_row import OutboxRow


@dataclass(slots=True, eq=False)
class Question:
    """It waits until its first verdict. Then each copy of it in a chat is changed into the outcome, and it leaves the fold.
    `turn` waits for it, unless that is None.
    """

    record: ApprovalRecord
    turn: str | None
    decided: int = 0
    """The number of the event that decided it: no copy says so before that is on disk."""
    rows: dict[str, bool | None] = field(default_factory=dict)
    """Its messages by row: True once in a chat, False where it never will be, None while nobody knows."""
    copies: dict[str, OutboxRow] = field(default_factory=dict)
    """Those in a chat that may still be changed."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def verdict(self) -> Verdict | None:
        return self.record.verdict

    def arrived(self, row: str) -> bool | None:
        """True once a message of it, or its newest repeat, is in a chat, False where it never will be, None while nobody knows."""
        while f"{row}'" in self.rows:
            row = f"{row}'"
        return self.rows.get(row)

    def decide(self, verdict: Verdict, at: float) -> None:
        """Take a verdict; the first one counts."""
        if self.record.verdict is None:
            self.record = replace(self.record, verdict=verdict, decided_at=at)

    @property
    def of_tool(self) -> bool:
        """True of one that the person of the turn answers in words: it stands as it is afterwards, and ends with its process."""
        return self.record.asked.subject == "question"

    @property
    def over(self) -> bool:
        """True once it is decided and every copy says so."""
        return self.verdict is not None and not self.copies and None not in self.rows.values()
