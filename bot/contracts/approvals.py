"""Questions to people: approvals, their verdicts, and the buttons below a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bot.contracts.identity import ChatKey, UserRef

Ended = Literal["approved", "denied", "steered", "stopped", "expired", "nobody", "unattended"]
Subject = Literal["call", "task", "budget", "person", "question"]
"""What a question is about: a tool call, a task (subagent) whose calls are refused, a spent budget, a person who asks for access, or a
tool that asks the person of its turn.
"""
Reason = Literal[
    "tainted",
    "instructs",
    "elsewhere",
    "changed",
    "read",
    "default",
    "rule",
    "doubt",
    "refused",
    "budget_chat",
    "budget_person",
    "",
]
"""Why people are asked (`approval.reason_…` in `bot/words`); "" is not shown."""
Scope = Literal["once", "chat", "today", "always"]
"""How long an approval lasts. `today`: as `chat`, until the end of the day."""
Choice = Literal[
    "once",
    "chat",
    "always",
    "deny",
    "each",
    "afresh",
    "admit",
    "later",
    "again",
    "renew",
    "what",
    "remind",
    "weekly",
]
"""A button. `each`: ask about each call of a step separately; `afresh`: ask again without foreign text; `admit`, `later`: about a
person; `again`: below the notice of a failed turn, retries it; `renew`: below an answer, regenerates it for the edited message.
"""
LASTING: tuple[Scope, ...] = ("chat", "today", "always")
"""Scopes of an approval that covers later calls too."""
CHOICES: tuple[Choice, ...] = ("once", "chat", "always", "deny")
"""Answers that operators may give about a call."""
EXAMPLES: tuple[Choice, ...] = ("what", "remind", "weekly")
"""Examples below a greeting; a tap sends the text as a message of the person (`start.…` in `bot/words`)."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for approval. No tool call waits for one whose `subject` is a person."""

    request_id: str
    """The turn's; of a person who asks for access, the id of the record."""
    call_id: str
    chat_key: ChatKey
    tool: str
    fingerprint: str
    """Three hashes joined by colons: tool, arguments and folder; contents of the programs and scripts that it runs; all files that it
    names. An approval of scope `once` needs an equal fingerprint, a lasting one ignores the last hash.
    """
    shown: str
    """The exact arguments without secrets; argument names of built-in tools are marks (`display.label`)."""
    why: Reason
    rule: str
    """The permission rule that asks, or ""."""
    channel: str | None
    user_id: str | None
    """The person on whose behalf it is asked."""
    granted: bool
    """A rule allows the person to decide themselves."""
    lasting: bool
    """Lasting approvals are possible and count."""
    own: bool = False
    """It concerns this person only: it is not copied to operators' chats."""
    subject: Subject = "call"
    task: str = ""
    """The task (subagent) that asks."""
    replaces: int | None = None
    """If the call overwrites a file: the number of its lines."""
    gone: int | None = None
    """How many of these lines the new file lacks; None if unknown."""
    new: int = 0
    """How many lines are new, if known."""
    differs_from: int = 0
    """The number of the first line that differs, if known."""
    script: str = ""
    """The text of the script that it runs, without secrets, if the person may read it."""
    step: tuple[Mapping[str, Any], ...] = ()
    """For several calls of a step at once: the fields that differ between them."""
    about: str = ""
    """The foreign text that is the reason: its author and beginning, or the file or call that it came with."""

    @property
    def person(self) -> UserRef | None:
        """The person on whose behalf it is asked; None if no chat caused it."""
        return (
            UserRef(self.channel, self.user_id)
            if self.channel is not None and self.user_id is not None
            else None
        )

    @property
    def admits(self) -> bool:
        """True if a person asks for access."""
        return self.subject == "person"

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the call: each is asked about once."""
        return (self.request_id, self.call_id, self.fingerprint)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a question; `nobody` and `unattended` (in a job): nobody was asked. `by` decided, under the display name `name`, by
    the inbound `request_id`.
    """

    ended: Ended
    by: UserRef | None = None
    scope: Scope = "once"
    name: str = field(default="", compare=False)
    request_id: str = field(default="", compare=False)

    @property
    def lasts(self) -> bool:
        """True if it also approves later calls."""
        return self.ended == "approved" and self.scope in LASTING

    def covers(self, chat_key: ChatKey, *, asked_in: ChatKey) -> bool:
        """True if it approves the same call in `chat_key`, having been given in `asked_in`."""
        return self.lasts and (self.scope == "always" or asked_in == chat_key)


@dataclass(frozen=True, slots=True)
class QuestionButtons:
    """The buttons below a question, for whoever sees it; none once it is decided."""

    question_id: str
    """The question's id; below the notice of a failure, the turn's."""
    choices: tuple[Choice, ...] = CHOICES


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An open question as one viewer sees it: outbox id, text and time (ms) of its message, and the viewer's buttons."""

    id: str
    text: str
    ts: int
    buttons: QuestionButtons


class Approvals(Protocol):
    """Asks people for approval (`bot.features.approvals`)."""

    async def decide(self, asked: Approval, *others: Approval) -> Verdict:
        """Ask, and wait for a verdict. The same request after a restart resumes the wait. `others` are later calls of the same step,
        which are asked about together. Raises `errors.StorageError`.
        """
        ...


class Unattended:
    """Denies everything: there is nobody to ask."""

    async def decide(self, *_: Approval) -> Verdict:
        return Verdict("nobody")
