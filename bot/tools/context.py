"""Context variables that give a running tool access to its turn."""

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
    """Inserts older messages before the current message. A tool has no other way to change the model's context."""

    def room(self) -> int:
        """Return how many more messages this run may inject."""
        ...

    def in_view(self, line: ArchiveLine) -> bool:
        """Return True if the line is in the model's context already, or is the message being answered."""
        ...

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """Insert lines in time order before the current user message, for this run only.

        Returns the inserted lines. If not all lines fit, only the newest are inserted.
        """
        ...


class NoOlderTurns:
    """An `Injection` for a turn that loads no older messages."""

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
        """Run a subagent that carries out the task described in `words`, on behalf of the running tool call.
        Returns a summary of the result. Raises `errors.ToolError`.
        """
        ...


def _themselves(approvals: Approvals) -> Approvals:
    """Return the approvals of the turn unchanged."""
    return approvals


def _nobody(_: Path) -> None:
    """Do nothing; default of `ToolExecutionContext.touched`."""


async def _flushed() -> None:
    """Do nothing; default of `ToolExecutionContext.flush`."""


@dataclass(frozen=True, slots=True)
class ToolExecutionContext:
    """The turn as a tool sees it. `reply` is None if no chat asked. `private` means that only
    `user_id` reads the chat. `people` are the ids of all people whose messages the turn answers. `view`
    returns the messages in the model's context.
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
    """Function that waits until the turn's progress is on disk."""
    touched: Callable[[Path], object] = _nobody
    """Function called for each file and folder of the project that a tool has used."""
    tasks: Tasks | None = None
    """Runner of subagents; None inside a subagent, which cannot start further subagents."""
    approvals: Callable[[Approvals], Approvals] = _themselves
    """Function that wraps the approvals which the turn uses."""
    inbound: Inbound | None = None
    """The message that caused the turn."""
    undeclared: Callable[[], Sequence[Json]] = tuple
    """Function that returns the definitions of tools that do not fit in the model's context window."""


_current: ContextVar[ToolExecutionContext] = ContextVar("tool_execution_context")
_call: ContextVar[str] = ContextVar("tool_call", default="")
progress: ContextVar[Callable[[str | None], object]] = ContextVar("tool_progress", default=bool)
"""Function that reports the progress of the running call; None means that the call waits for a person."""
STEP: ContextVar[list[ToolCall]] = ContextVar("tool_step")
"""Tool calls of the running step; emptied by the first approval question about one of the calls."""
_provenance: ContextVar[list[Provenance] | None] = ContextVar("tool_provenance", default=None)


@contextlib.contextmanager
def scope(variable: ContextVar[T], value: T) -> Iterator[T]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def tool_scope(context: ToolExecutionContext) -> AbstractContextManager[ToolExecutionContext]:
    """Make this turn the current turn for the block, and for every asyncio task that the block creates."""
    return scope(_current, context)


def current() -> ToolExecutionContext:
    """Return the turn in which the running tool was called. Raises `errors.ToolError` outside a turn."""
    try:
        return _current.get()
    except LookupError:
        raise errors.ToolError("This tool works only while a message is being answered.") from None


def channel() -> str | None:
    """Return the channel of the turn; None outside a turn, or if no chat caused the turn."""
    turn = _current.get(None)
    return turn.channel if turn is not None else None


def view() -> Sequence[Message]:
    """Return the messages in the model's context; () outside a turn."""
    turn = _current.get(None)
    return turn.view() if turn is not None else ()


def undeclared() -> Sequence[Json]:
    """Return the definitions of tools that do not fit in the turn's requests; () outside a turn."""
    turn = _current.get(None)
    return turn.undeclared() if turn is not None else ()


def touch(path: Path) -> None:
    """Record that a tool has used a file or folder of the project. Later requests may need the instruction
    files in that folder.
    """
    turn = _current.get(None)
    if turn is not None:
        turn.touched(path)


def report_provenance(origin: Provenance) -> None:
    """Report the provenance of the running tool's result. A tool that reports none gets `taint.usual`."""
    told = _provenance.get()
    if told is not None:
        told.append(origin)


@contextlib.contextmanager
def collect_provenance() -> Iterator[list[Provenance]]:
    """Collect the provenances passed to `report_provenance` during the block."""
    told: list[Provenance] = []
    with scope(_provenance, told):
        yield told


def request_id() -> str:
    """Return the id of the turn; "" outside a turn."""
    turn = _current.get(None)
    return turn.request_id if turn is not None else ""


def call_scope(name: str) -> AbstractContextManager[str]:
    """Make the tool call with this id the current call during the block."""
    return scope(_call, name)


def call_id() -> str:
    """Return the id of the running tool call; "" outside a tool call."""
    return _call.get()
