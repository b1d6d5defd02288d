"""Context variables of the turn in which a tool runs."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from bot import errors
from bot.contracts.approvals import Approvals
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.provenance import Provenance
from bot.contracts.tools import ToolCall
from bot.tools.ports import Reply

TaskMode = Literal["fresh", "fork"]


T = TypeVar("T")


class Injection(Protocol):
    """Inserts older messages before the current one; the only way in which a tool changes the view."""

    def room(self) -> int:
        """Return how many more messages this run may inject."""
        ...

    def in_view(self, line: ArchiveLine) -> bool:
        """True if the line is in view already, or is the message being answered."""
        ...

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """Insert lines, in time order, before the current user message, for this run only.

        Returns the inserted ones: the newest, if their size does not permit all.
        """
        ...


class NoOlderTurns:
    """`Injection` of a turn that loads none."""

    def room(self) -> int:
        return 0

    def in_view(self, line: ArchiveLine) -> bool:
        del line
        return True

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        del lines
        return []


class Tasks(Protocol):
    """Runs subagents (`bot.core.tasks`)."""

    async def run(self, words: str, description: str, mode: TaskMode) -> str:
        """Carry out what these words ask for, as the tool call that runs; a summary of what came of it. Raises
        `errors.ToolError`.
        """
        ...


def _themselves(approvals: Approvals) -> Approvals:
    """The approvals of the turn, unchanged."""
    return approvals


def _nobody(_: Path) -> None:
    """Reports to no one."""


async def _flushed() -> None:
    """Waits for nothing."""


@dataclass(frozen=True, slots=True)
class ToolExecutionContext:
    """A tool's view of its turn. `reply` is None if no chat asked; `private`: only `user_id` reads the chat; `people` are the ids of all
    whose messages the turn answers; `view` returns the messages in the model's view.
    """

    chat_key: ChatKey
    request_id: str
    user_id: str | None
    reply: Reply | None
    injection: Injection
    channel: str | None = None
    private: bool = False
    people: tuple[str, ...] = ()
    view: Callable[[], Sequence[Message]] = tuple
    flush: Callable[[], Awaitable[object]] = _flushed
    """Waits until the turn's progress is on disk."""
    touched: Callable[[Path], object] = _nobody
    """Called for each file and folder of the project that a tool has used."""
    tasks: Tasks | None = None
    """None inside a task, which cannot start others."""
    approvals: Callable[[Approvals], Approvals] = _themselves
    """Wraps the approvals that the turn uses."""
    inbound: Inbound | None = None
    """The message that caused the turn."""
    undeclared: Callable[[], Sequence[Json]] = tuple
    """Definitions of tools for which the model's window has no room."""


_current: ContextVar[ToolExecutionContext] = ContextVar("tool_execution_context")
_call: ContextVar[str] = ContextVar("tool_call", default="")
progress: ContextVar[Callable[[str | None], object]] = ContextVar("tool_progress", default=bool)
"""Reports progress of the running call; None: it waits for a person."""
STEP: ContextVar[list[ToolCall]] = ContextVar("tool_step")
"""The calls of the running step, until the first question about one of them."""
_provenance: ContextVar[list[Provenance] | None] = ContextVar("tool_provenance", default=None)


@contextlib.contextmanager
def scope(variable: ContextVar[T], value: T) -> Iterator[T]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def tool_scope(context: ToolExecutionContext) -> AbstractContextManager[ToolExecutionContext]:
    """Run a block, and every task it creates, inside a turn."""
    return scope(_current, context)


def current() -> ToolExecutionContext:
    """The turn this tool runs in. Raises `errors.ToolError` outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise errors.ToolError("This tool works only while a message is being answered.") from None


def channel() -> str | None:
    """The channel of the turn; None outside of one, or where no chat caused it."""
    turn = _current.get(None)
    return turn.channel if turn is not None else None


def view() -> Sequence[Message]:
    """Return the model's view in the turn; () outside of one."""
    turn = _current.get(None)
    return turn.view() if turn is not None else ()


def undeclared() -> Sequence[Json]:
    """The definitions of tools that the turn's requests have no room for; none outside of a turn."""
    turn = _current.get(None)
    return turn.undeclared() if turn is not None else ()


def touch(path: Path) -> None:
    """Record that a tool has used a file or folder of the project, whose nested instructions may then be needed."""
    turn = _current.get(None)
    if turn is not None:
        turn.touched(path)


def report_provenance(origin: Provenance) -> None:
    """Report the provenance of the running tool's result. Default: `taint.usual`."""
    told = _provenance.get()
    if told is not None:
        told.append(origin)


@contextlib.contextmanager
def collect_provenance() -> Iterator[list[Provenance]]:
    """Collect what `report_provenance` is given in the block."""
    told: list[Provenance] = []
    with scope(_provenance, told):
        yield told


def request_id() -> str:
    """The id of the turn; "" outside of one."""
    turn = _current.get(None)
    return turn.request_id if turn is not None else ""


def call_scope(name: str) -> AbstractContextManager[str]:
    """Run a block inside the tool call with this id."""
    return scope(_call, name)


def call_id() -> str:
    """The id of the tool call that runs; "" outside of one."""
    return _call.get()
