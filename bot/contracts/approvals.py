"""Questions that people must decide, and open loops: unfinished things that wait for somebody, listed on the board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from bot.contracts.identity import ChatKey, UserRef

Ended = Literal["approved", "denied", "steered", "stopped", "expired", "nobody", "unattended"]
Subject = Literal["call", "budget", "person", "question"]
"""Subject of a question: a tool call, a spent budget, a person who asks for access, or a tool's question."""
_Judged = Literal["tainted", "instructs", "elsewhere", "changed", "read", "default", "rule", "doubt"]
Reason = Literal[_Judged, "refused", "budget_chat", "budget_person", ""]
"""Reason for asking people. `bot/words` has the text of each reason as `approval.reason_<reason>`; the reason "" is not shown."""
Scope = Literal["once", "chat", "today", "always"]
"""Duration of an approval. `today` is valid in the same chat, until the end of the day."""
_OfPerson = Literal["admit", "later"]
_OfTurn = Literal["again", "renew", "what", "remind", "weekly"]
Choice = Literal["once", "chat", "always", "deny", "each", "afresh", _OfPerson, _OfTurn]
"""Choice that a button offers. `each`: ask about each call of a step separately. `afresh`: send the request again
without foreign text. `admit` and `later`: decide about a person who asks for access. `again`: retry a failed turn.
`renew`: generate the answer again for the edited message. `what`, `remind` and `weekly` are `EXAMPLES`.
"""
LASTING: tuple[Scope, ...] = ("chat", "today", "always")  # scopes of an approval that also covers later calls
CHOICES: tuple[Choice, ...] = ("once", "chat", "always", "deny")
"""Choices that operators may make about a tool call."""
EXAMPLES: tuple[Choice, ...] = ("what", "remind", "weekly")
"""Examples below a greeting. A tap sends the example's text (`start.…` in `bot/words`) as the person's message."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for approval. If its `subject` is a person, no tool call waits for the verdict."""

    request_id: str  # Id of the turn that asks. If a person asks for access, the id of that request.
    chat_key: ChatKey
    channel: str | None
    user_id: str | None  # id of the person who caused the call
    call_id: str = ""
    tool: str = ""
    fingerprint: str = ""
    """Three hashes joined by colons: of the tool, the arguments and the folder; of the programs and scripts that the call
    runs; of all files that the call names. A lasting approval ignores the third hash.
    """
    shown: str = ""  # exact arguments of the call, without secrets; `policy.in_words` fills placeholders
    why: Reason = ""
    rule: str = ""  # permission rule that made Shipmate ask
    granted: bool = False  # true if this person may approve the call without an operator
    lasting: bool = False  # true if a lasting approval is possible and would cover later calls
    own: bool = False  # true if only `user_id` may answer; operators' chats then get no copy
    subject: Subject = "call"
    task: str = ""  # name of the task (subagent) that asks
    replaces: int | None = None  # number of lines in the overwritten file; None if no file is overwritten
    gone: int | None = None  # number of lines that are only in the overwritten file; None if unknown
    new: int = 0  # number of lines that are only in the new file; 0 if unknown
    differs_from: int = 0  # number of the first line that differs; 0 if unknown
    script: str = (
        ""  # text of the script that the call runs, without secrets; "" if the person may not read the script
    )
    step: tuple[Mapping[str, Any], ...] = ()
    """If one question is about several calls of a step: for each call, the fields that differ from this request."""
    about: str = ""  # foreign text because of which people are asked: author and beginning, file or tool

    @property
    def person(self) -> UserRef | None:
        if self.channel is None or self.user_id is None:
            return None
        return UserRef(self.channel, self.user_id)

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key of the call. If several calls have an equal key, people are asked only once."""
        return (self.request_id, self.call_id, self.fingerprint)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a question. If `ended` is `nobody` or (in a job) `unattended`, nobody was asked. `by` and `name` are the
    person who decided, and `request_id` is the id of the message with the decision.
    """

    ended: Ended
    by: UserRef | None = None
    scope: Scope = "once"
    name: str = field(default="", compare=False)
    request_id: str = field(default="", compare=False)

    @property
    def lasts(self) -> bool:
        return self.ended == "approved" and self.scope in LASTING

    def covers(self, chat_key: ChatKey, *, asked_in: ChatKey) -> bool:
        """Return True if the verdict, given in the chat `asked_in`, approves the same call in `chat_key`."""
        return self.lasts and (self.scope == "always" or asked_in == chat_key)


@dataclass(frozen=True, slots=True)
class QuestionButtons:
    """Buttons below a question, shown to everybody who sees the message. A decided question has no buttons."""

    question_id: str  # below the notice of a failed turn, the id of the turn
    choices: tuple[Choice, ...] = CHOICES


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question as one viewer sees it. `id` is the question's outbox row, `ts` the time in ms. The text of a decided
    question ends with the outcome, and the `buttons` of a decided question have no question id.
    """

    id: str
    text: str
    ts: int
    buttons: QuestionButtons


class Approvals(Protocol):
    """Asks people for approval. Implemented in `bot.features.questions`."""

    async def decide(self, asked: Approval, *others: Approval) -> Verdict:
        """Ask people about the call `asked` and the later calls of its step (`others`), and wait for a verdict. A
        request that is repeated after a restart continues to wait. Raises `errors.StorageError`.
        """


class Unattended:
    """Denies every request, because nobody can be asked."""

    async def decide(self, *_: Approval) -> Verdict:
        return Verdict("nobody")


# ------------------------------------------------------------ open loops

LoopKind = Literal["person", "approval", "question", "promise", "task", "job", "lasting"]
"""Kinds of open loops, in the order of the board: a person who asks for access, a question about a call, a question of
a tool, a promise that no job keeps, a task that has not reported, a job, and (for the console) a lasting approval.
"""
KINDS: tuple[LoopKind, ...] = get_args(LoopKind)
LoopState = Literal["", "running", "paused", "failed"]
Act = Literal["admit", "block", "once", "deny", "done", "pause", "resume", "cancel", "revoke"]
"""Action on an open loop. The labels of the buttons are `buttons.…` in `bot/words`."""
COMMANDS: Mapping[Act, tuple[str, str]] = {
    "admit": ("allow", "{}"),
    "block": ("block", "{}"),
    "once": ("approve", "{} once"),
    "deny": ("deny", "{}"),
    "done": ("waiting", "done {}"),
    "pause": ("jobs", "pause {}"),
    "resume": ("jobs", "resume {}"),
    "cancel": ("jobs", "cancel {}"),
    "revoke": ("approvals", "{}"),
}
"""Command and arguments of each action. `{}` is replaced by the open loop's id."""


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """One unfinished thing on the board. `what` describes it in the reader's language. Times are epoch seconds."""

    kind: LoopKind
    id: str  # name of the loop in commands
    chat_key: ChatKey | None
    what: str
    since: float
    person: UserRef | None = None  # the person to whom the loop belongs
    name: str = ""  # display name of the person; "" if unknown
    why: str = ""
    detail: str = ""  # complete arguments of a call, shown only to people who may decide about it
    due: float | None = None
    state: LoopState = ""
    acts: tuple[Act, ...] = ()
    by: str = ""  # name of the person who gave a lasting approval

    def command(self, act: Act) -> str:
        """Return the command of an action, without the prefix."""
        name, args = COMMANDS[act]
        return f"{name} {args.format(self.id)}"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who looks at the board. An operator sees all open loops; other people see only their own. If `chat` is
    set, as in a group, even operators see only the open loops of that chat and its threads.
    """

    person: UserRef
    operator: bool = False
    chat: ChatKey | None = None

    def sees(self, person: UserRef | None, chat: ChatKey) -> bool:
        """Return True if the viewer sees an open loop of this person in this chat."""
        return self.chat.contains(chat) if self.chat is not None else self.owns(person)

    def owns(self, person: UserRef | None) -> bool:
        """Return True if the viewer may change an open loop of this person."""
        return self.operator or person == self.person
