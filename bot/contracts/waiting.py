"""Open loops: questions, requests for access, jobs, tasks and promises that are not finished. The board lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from bot.contracts.identity import CONSOLE, ChatKey, UserRef

LoopKind = Literal["person", "approval", "question", "promise", "task", "job", "lasting"]
"""Kinds of open loops, in the order of the board: a person who asks for access, a question about a call, a question of
a tool, a promise that no job keeps, a task that has not reported, a job, and (for the console) a lasting approval.
"""
KINDS: tuple[LoopKind, ...] = get_args(LoopKind)
LoopState = Literal["", "running", "paused", "failed"]
Act = Literal["admit", "block", "once", "deny", "done", "pause", "resume", "cancel", "revoke"]
"""Action that a person may choose for an open loop. The labels of the buttons are `buttons.…` in `bot/words`."""
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
"""Command of each action, and the command's arguments. `{}` in the arguments is replaced by the open loop's id."""


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """One unfinished thing on the board. `what` describes it in the reader's language. Times are epoch seconds."""

    kind: LoopKind
    id: str  # name of the loop in commands
    chat_key: ChatKey | None
    what: str
    since: float
    person: UserRef | None = None  # the person whose request it is
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
    """A person who looks at the board. An operator sees all open loops; another person sees the person's own. If `chat`
    is set, as in a group, everybody sees only the open loops of that chat and its threads.
    """

    person: UserRef
    operator: bool = False
    chat: ChatKey | None = None

    @property
    def at_console(self) -> bool:
        return self.person == CONSOLE

    def sees(self, person: UserRef | None, chat: ChatKey) -> bool:
        """Return True if the viewer sees an open loop of this person in this chat."""
        return self.chat.contains(chat) if self.chat is not None else self.owns(person)

    def owns(self, person: UserRef | None) -> bool:
        """Return True if the viewer may change an open loop of this person."""
        return self.operator or person == self.person
