"""The port at which a tool call waits for a person's decision."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from bot.contracts.identity import ChatKey, UserRef

Ended = Literal["approved", "denied", "steered", "stopped", "expired", "nobody", "unattended"]
Subject = Literal["call", "task", "budget", "person", "question"]
"""Subject of a question: a tool call, a subagent's task whose calls are refused, a budget that is spent, somebody who wants to
be let in, something that a tool wants to know of the person of its turn.
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
"""Why people are asked (`approval.reason_…` of a catalogue); "" where nothing is said of it."""
Scope = Literal["once", "chat", "today", "always"]
"""`today` is `chat` until the day ends."""
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
"""An answer to a question about an approval, and its button. `each` asks about each call of a step by itself; `afresh` asks again without
foreign text; `admit` and `later` are about a person; `again` stands below the notice of a failure and tries its turn again, `renew`
below an answer whose question was edited since. `EXAMPLES` stand below a greeting, and are words to say.
"""
LASTING: tuple[Scope, ...] = ("chat", "today", "always")
"""The scopes of an approval that holds for later calls too."""
CHOICES: tuple[Choice, ...] = ("once", "chat", "always", "deny")
"""The answers about a call that operators may give."""
SECONDS = 30 * 60.0
"""A call waits so long for a decision, over restarts too."""
EXAMPLES: tuple[Choice, ...] = ("what", "remind", "weekly")
"""Examples of what can be asked for: tapped, each is a message of the person (`start.…` of a catalogue)."""
ABOUT_A_PERSON: tuple[Choice, ...] = ("admit", "later")


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for a person's approval. Where its `subject` is a person, no tool call waits."""

    request_id: str
    """That of the turn; of a person who asks to be let in, the id of the record."""
    call_id: str
    chat_key: ChatKey
    tool: str
    fingerprint: str
    """The hash of tool, arguments and folder; behind a colon that of what the programs and scripts hold which it runs, behind another
    that of all files which it names. An approval of once holds for nothing else, a lasting one whatever the last part is.
    """
    shown: str
    """All of the arguments, exactly, without secrets; the names of those of our tools are marks (`display.label`)."""
    why: Reason
    rule: str
    """The rule behind it; "" where there is none."""
    channel: str | None
    user_id: str | None
    """The person whom it is for."""
    granted: bool
    """True where a rule gives them this: they may decide themselves."""
    lasting: bool
    """True where an earlier lasting approval counts."""
    own: bool = False
    """True where it concerns this person alone: operators elsewhere are not shown it."""
    subject: Subject = "call"
    task: str = ""
    """The subagent's task that wants it."""
    replaces: int | None = None
    """Of a call that writes a file in the place of another one, the lines of that; None of any other call."""
    gone: int | None = None
    """The number of those lines that the new file has not; None where it is not known."""
    new: int = 0
    """The number of lines that the new file has beside them, where that is known."""
    differs_from: int = 0
    """The number of the first line that is another one, where that is known."""
    script: str = ""
    """The text of what it runs, without secrets, where the person may read it."""
    step: tuple[Mapping[str, Any], ...] = ()
    """Of one about several calls of a step, what differs from call to call."""
    about: str = ""
    """The foreign text for which it is asked: its author and beginning, or the file or call that it came with."""

    @property
    def person(self) -> UserRef | None:
        """The person whom it is for; None where no chat caused it."""
        return (
            UserRef(self.channel, self.user_id)
            if self.channel is not None and self.user_id is not None
            else None
        )

    @property
    def admits(self) -> bool:
        """True where somebody asks to be let in."""
        return self.subject == "person"

    @property
    def key(self) -> tuple[str, str, str]:
        """The name of the call; each is asked about once."""
        return (self.request_id, self.call_id, self.fingerprint)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a wait for approval; `nobody` and `unattended` (in a job): no wait took place. `by` is the person who
    decided, None without one, and `name` what they called themselves then, "" where that is not known. `request_id` is that
    of the inbound by which they did, "" where there was none.
    """

    ended: Ended
    by: UserRef | None = None
    scope: Scope = "once"
    name: str = field(default="", compare=False)
    request_id: str = field(default="", compare=False)

    @property
    def lasts(self) -> bool:
        """True if it approves later calls too."""
        return self.ended == "approved" and self.scope in LASTING

    def covers(self, chat_key: ChatKey, *, asked_in: ChatKey) -> bool:
        """True if it approves the same call in this chat; it was given in that chat."""
        return self.lasts and (self.scope == "always" or asked_in == chat_key)


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


def together(calls: Sequence[Approval]) -> Approval:
    """One question about several calls of a step that the same people may decide."""
    first, keys = calls[0], [one.key for one in calls]
    same = len({(one.why, one.rule) for one in calls}) == 1
    facts = ("tool", "shown", "replaces", "gone", "new", "differs_from")
    return replace(
        first if same else replace(first, why="", rule=""),
        fingerprint=hashlib.sha256(repr(keys).encode()).hexdigest(),
        shown="\n".join(one.shown for one in calls),
        about=next((one.about for one in calls if one.about), ""),
        lasting=all(one.lasting for one in calls),
        replaces=None,
        step=tuple({name: getattr(one, name) for name in facts} for one in calls),
    )


def runs(fingerprint: str) -> str:
    """The part of a fingerprint that tells what runs; "" where nothing can be told."""
    return fingerprint.partition(":")[2].partition(":")[0]


def lasting(records: Iterable[ApprovalRecord], chat_key: ChatKey, now: str = "") -> ApprovalRecord | None:
    """The approval of a call in a chat for longer, of those about the same call, oldest first: one of what it runs `now`, by
    its fingerprint, before others, then the newest one that holds everywhere, else the newest of this chat.
    """
    covering = [
        ((runs(one.asked.fingerprint) == runs(now), one.verdict.scope == "always"), one)
        for one in records
        if one.verdict is not None and one.verdict.covers(chat_key, asked_in=one.asked.chat_key)
    ]
    return max(reversed(covering), key=lambda one: one[0], default=(None, None))[1]


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


class Approvals(Protocol):
    """Asks people before something is done (`bot.features.approvals`)."""

    async def decide(self, asked: Approval, *others: Approval) -> Verdict:
        """Ask, and wait for a person who may decide. Asked again after a restart, it goes on waiting for the same
        decision. `others` are about later calls of the same step: they are asked about together, and the answer is theirs too.

        Raises `errors.StorageError` where it cannot be written down.
        """
        ...


class Unattended:
    """Denies: there is no person to ask."""

    async def decide(self, *_: Approval) -> Verdict:
        return Verdict("nobody")
