"""The port at which a tool call waits for a person's decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.identity import ChatKey

Ended = Literal["approved", "denied", "steered", "stopped", "expired", "nobody", "unattended"]
Scope = Literal["once", "chat", "always"]
Choice = Literal["once", "chat", "always", "deny", "admit", "later", "again", "renew"]
"""An answer to a question about an approval, and its button. `admit` and `later` are those about a person; `again` stands below
the notice of a failure and tries its turn again, `renew` below an answer whose question was edited since.
"""
CHOICES: tuple[Choice, ...] = ("once", "chat", "always", "deny")
"""The answers about a call that operators may give."""
ABOUT_A_PERSON: tuple[Choice, ...] = ("admit", "later")


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for a person's approval. `fingerprint` is the hash of tool, arguments and folder: an approval holds for
    nothing else. `shown` says exactly what will run, without secrets; `why` names the reason for asking (`approval.reason_…`
    of a catalogue), `rule` is the rule behind it, `task` the subagent's task that wants it. `user_id` is the person whom it is for; `granted`: a rule gives them this, so they may decide
    themselves. `lasting`: an earlier lasting approval counts. `own`: it concerns this person alone, so operators
    elsewhere are not shown it. `admits`: no tool call waits, this person asks to be let in; its `request_id` is the id of
    its record.
    """

    request_id: str
    call_id: str
    chat_key: ChatKey
    tool: str
    fingerprint: str
    shown: str
    why: str
    rule: str
    channel: str | None
    user_id: str | None
    granted: bool
    lasting: bool
    own: bool = False
    admits: bool = False
    task: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a wait for approval; `nobody` and `unattended` (in a job): no wait took place. `by` is the person who
    decided, as `channel:id`, "" without one.
    """

    ended: Ended
    by: str = ""
    scope: Scope = "once"


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A question as it is on file: `asked_at` and `decided_at` in epoch seconds, no verdict while it waits."""

    id: str
    asked: Approval
    asked_at: float
    verdict: Verdict | None = None
    decided_at: float | None = None


@dataclass(frozen=True, slots=True)
class QuestionButtons:
    """The buttons below a question: the answers that whoever reads it may give. None are left once it is decided."""

    question_id: str
    """That of its approval; of a failure, that of its turn."""
    choices: tuple[Choice, ...] = CHOICES


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that waits in a chat: the id (of its outbox row) and words of its message, the time it was asked (ms), and
    what the viewer may press.
    """

    id: str
    text: str
    ts: int
    buttons: QuestionButtons


class ApprovalBook(Protocol):
    """Approval requests and their verdicts, kept across restarts."""

    async def ask(self, name: str, asked: Approval) -> ApprovalRecord:
        """Write a question under this id; for a call that was asked about before, return the record on file."""
        ...

    async def settle(self, name: str, verdict: Verdict) -> bool:
        """The first verdict counts: False where there is one, or no such question."""
        ...

    async def approval(self, name: str) -> ApprovalRecord | None: ...
    async def open_approvals(self) -> list[ApprovalRecord]:
        """Everything without a verdict, oldest first."""
        ...

    async def decided_since(self, at: float) -> list[ApprovalRecord]:
        """Everything whose verdict is not older than `at` (epoch seconds), oldest first."""
        ...

    async def lasting(self, fingerprint: str, chat_key: ChatKey) -> Verdict | None:
        """An approval of exactly this that was given always, or else the last one that was for this chat."""
        ...


class Approvals(Protocol):
    """Asks people before something is done (`bot.gateway.approvals`)."""

    async def decide(self, asked: Approval) -> Verdict:
        """Ask, and wait for a person who may decide. Asked again after a restart, it goes on waiting for the same
        decision.

        Raises `errors.StorageError` where it cannot be written down.
        """
        ...


class Unattended:
    """Denies: there is no person to ask."""

    async def decide(self, _: Approval) -> Verdict:
        return Verdict("nobody")
