"""The turn in which a tool runs, and the interfaces through which tools use the core and the features: reply, archive
index, questions to people, and jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from bot import errors
from bot.contracts.approvals import Approvals
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveFilter, ArchiveLine, Inbound, OutgoingFile, Provenance, Sent
from bot.contracts.tools import ToolCall

TaskMode = Literal["fresh", "fork"]
T = TypeVar("T")


class Reply(Protocol):
    """Sends messages to the chat that caused the turn. The model cannot choose another chat."""

    async def send(
        self, text: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Deliver one message, in several parts if it is long, followed by its files. If the call is cancelled, the remaining
        parts are delivered in the background. `step_id` is the id of the tool call that sends; None if no tool call sends.
        Raises `errors.DeliveryFailed`. If the error is `errors.FileRefused`, nothing was sent.
        """


@dataclass(frozen=True, slots=True)
class RecallQuery(ArchiveFilter):
    """A search in the index. `queries` are different wordings of one question. The best match comes first; the score of
    a line combines its ranks for all wordings. Times in a query, such as "last Tuesday", are relative to `now` (epoch
    milliseconds, UTC).
    """

    queries: tuple[str, ...]
    now: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that matches the search, and the lines before and after it in the chat."""

    line: ArchiveLine
    score: float
    near: tuple[ArchiveLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The best matches (`hits`), and the number of all matches. `complete` is False while the index is being built."""

    hits: list[Hit]
    total: int
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ChatQuery:
    """Selects a page of conversations for operators. A conversation is selected if its people's names, chatKey, title or
    messages contain the `words`. `among` lists the allowed chats. `names` are the titles that people gave, by chatKey.
    """

    words: str = ""
    channel: str = ""
    among: frozenset[str] | None = None
    offset: int = 0
    limit: int = 50
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedChat:
    """A conversation: the people who wrote last, its title, the number of its lines, and the time of the newest line (epoch
    milliseconds). `found` is an excerpt of the newest line containing the words.
    """

    chat_key: str
    people: str
    title: str
    lines: int
    last_ts: int | None
    found: str = ""

    @property
    def channel(self) -> str:
        return self.chat_key.partition(":")[0]


@dataclass(frozen=True, slots=True)
class ListedChats:
    """A page of conversations, most recently active first, the number on all pages, and the names of all channels.
    `complete` is False while the index is being built.
    """

    chats: list[ListedChat]
    total: int
    channels: list[str]
    complete: bool = True


class Recalls(Protocol):
    """Searches the archive through its index (`bot.features.search`). Methods raise `errors.StorageError`."""

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """Return the best matches in these chats. `query.skip` is called on another thread."""

    async def kept(self, channel: str) -> list[ChatKey]:
        """Return the chatKeys of a channel that have archive lines, most recently active first."""

    async def listed(self, query: ChatQuery) -> ListedChats:
        """Return a page of all conversations, for operators."""

    async def saying(self, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
        """Search a chat and its threads. Return those conversations in which one line contains all these case-folded words."""


Ask = Callable[[ChatKey, str, str], Coroutine[Any, Any, str | None]]
"""Function that asks the person who caused a turn, with chatKey, request id and question. It returns the person's next message
in the chat; None if nobody answers, or if the person sends a command instead. The gateway also handles this message as usual.
"""


class Jobs(Protocol):
    """Scheduled jobs (`bot.features.jobs`). Results are text for the model. Methods raise `errors.StorageError`."""

    async def create(
        self, inbound: Inbound, prompt: str, when: str, *, timezone: str, origin: Provenance
    ) -> str:
        """Schedule a job. The message `inbound` determines its chat and rights. `when` is a time (ISO 8601), a cron
        expression of five fields, or an interval such as `every 2h`. `timezone` is the zone that the person named, or
        "". `origin` is the provenance of the model's context. Raises `errors.ToolError`.
        """

    async def listed(self, inbound: Inbound) -> tuple[str, Provenance]:
        """Return a text that lists the jobs of the chat in which `inbound` was sent, and the provenance of this text."""

    async def cancel(self, inbound: Inbound, job: str) -> str:
        """Cancel a job for the sender of a message. Raises `errors.ToolError` if the sender lacks the right."""


class Injection(Protocol):
    """Inserts older messages before the current message. This is the only way in which tools can change the model's context."""

    def room(self) -> int:
        """Return the number of messages that this run may still insert."""

    def in_view(self, line: ArchiveLine) -> bool:
        """Return True for a line that is in the model's context or is the message being answered."""

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """Insert lines in time order before the current user message, for this run only. Return the lines that fit."""


@dataclass(frozen=True, slots=True)
class ToolExecutionContext:
    """The turn, as tools see it. `reply` is None in subagents and summaries, which cannot send messages. `private` means that only `user_id` reads the
    chat. `people` are the ids of all people whose messages the turn answers. `inbound` is the message that caused the turn.
    """

    chat_key: ChatKey
    request_id: str
    user_id: str | None
    reply: Reply | None
    injection: Injection | None
    channel: str | None = None
    private: bool = False
    people: tuple[str, ...] = ()
    view: Callable[[], Sequence[Message]] = tuple
    """Function that returns the messages in the model's context."""
    flush: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
    """Function that waits until the turn's progress is on disk."""
    touched: Callable[[Path], object] = lambda _: None
    """Function that tools call with each file or folder of the project that they have used. Later requests then include the
    instruction files of that folder.
    """
    task: Callable[[str, str, TaskMode], Awaitable[str]] | None = None
    """Function that runs a subagent with a prompt, a description and a mode, and returns its summary. None inside a
    subagent, which cannot start further subagents. Raises `errors.ToolError`.
    """
    approvals: Callable[[Approvals], Approvals] = lambda approvals: approvals
    """Function that wraps the `Approvals` of this turn."""
    inbound: Inbound | None = None
    undeclared: Callable[[], Sequence[Json]] = tuple
    """Function that returns the definitions of tools that requests leave out because the context window is small."""


_current: ContextVar[ToolExecutionContext] = ContextVar("tool_execution_context")
CALL: ContextVar[str] = ContextVar("tool_call", default="")
"""Id of the running tool call; "" outside a tool call."""
progress: ContextVar[Callable[[str | None], object]] = ContextVar("tool_progress", default=bool)
"""Function with which the running call reports its progress. The argument None means that the call waits for a person."""
STEP: ContextVar[list[ToolCall]] = ContextVar("tool_step")
"""Tool calls of the running step. The first approval question about one of these calls empties the list."""
PROVENANCE: ContextVar[list[Provenance] | None] = ContextVar("tool_provenance", default=None)
"""Provenances that the running tool has reported for its result; None outside a tool call."""


@contextlib.contextmanager
def scope(variable: ContextVar[T], value: T) -> Iterator[T]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def tool_scope(context: ToolExecutionContext) -> AbstractContextManager[ToolExecutionContext]:
    """Make this turn the current turn inside the `with` block, and in every asyncio task that the block creates."""
    return scope(_current, context)


def current() -> ToolExecutionContext:
    """Return the turn that the running tool belongs to. Raises `errors.ToolError` outside a turn."""
    try:
        return _current.get()
    except LookupError:
        raise errors.ToolError("This tool works only while a message is being answered.") from None


def report_provenance(origin: Provenance) -> None:
    """Report the provenance of the running tool's result. If a tool reports none, `taint.usual` is used."""
    if (told := PROVENANCE.get()) is not None:
        told.append(origin)
