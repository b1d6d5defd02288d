"""What tools ask of the core and of features: the reply, the archive's index, memberships, questions to the person, jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.archive import ArchiveFilter, ArchiveLine
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutgoingFile, Sent
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance


class Reply(Protocol):
    """Sends to the chat that asked. The destination is fixed; the model cannot name one."""

    @property
    def written(self) -> Sequence[str]:
        """Outbox ids of everything passed to `send`, in order, whatever the outcome."""
        ...

    async def send(
        self, text: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Deliver one message, in parts if it is long, with files below it. If cancelled, the rest is delivered in the background.
        `step_id` is the id of the tool call that sends it, if one does.

        Raises `errors.DeliveryFailed`; after `errors.FileRefused` nothing was sent.
        """
        ...

    def preview(self, words: Callable[[], str]) -> None:
        """Show text while it is being written, until the next `send`. `words` returns the text so far; if the answer breaks off,
        its last result stays visible. A second call replaces the first.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecallQuery(ArchiveFilter):
    """A search of the index, best match first. `queries` are phrasings of one question: a line is scored by its ranks for all of
    them. Times in a query, such as "last Tuesday", are relative to `now` (milliseconds, UTC).
    """

    queries: tuple[str, ...]
    now: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching line, and the lines around it in the order of the chat."""

    line: ArchiveLine
    score: float
    near: tuple[ArchiveLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The best `hits` of `total` matches. `complete` is False while the index is being built and not all lines are searched."""

    hits: list[Hit]
    total: int
    complete: bool = True


class Recalls(Protocol):
    """Searches the archive by its index (`bot.features.search.service.Search`)."""

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """The best matches in these chats only. `query.skip` is called on another thread. Raises `errors.StorageError`."""
        ...

    async def kept(self, channel: str) -> list[ChatKey]:
        """The chatKeys of a channel that have lines, most recently active first. Raises `errors.StorageError`."""
        ...


class Membership(Protocol):
    """Membership of people in chats, looked up for each search: a person who has left a chat no longer finds it."""

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        """Those of `chat_keys` (in order of priority) whose member the person is now. Includes their direct chats with the bot only
        if `direct`, and never those of others. Raises nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the person of a turn, shown in the chat of that turn."""

    request_id: str
    chat_key: ChatKey
    words: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The person's next message. `nobody`: there is no person to ask, or they sent a command instead; `expired`: no answer in time."""

    ended: Literal["answered", "expired", "nobody"]
    words: str = ""


class Questions(Protocol):
    """Asks the person of a turn while one of its tools waits (`bot.features.questions`)."""

    async def ask(self, question: Question) -> Answer:
        """Ask, and wait for the person's next message in that chat, which is also handled as an ordinary message. Cancelling ends the
        wait.
        """
        ...


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to schedule. `inbound`, the message that asks for it, fixes its chat and rights. `when` is a time (ISO 8601), a cron
    expression of five fields or `every 2h`; `timezone` is the one that the person named, or "". `origin` is the provenance of
    what was in view.
    """

    inbound: Inbound
    prompt: str
    when: str
    timezone: str = ""
    origin: Provenance = ANYBODYS


@dataclass(frozen=True, slots=True)
class JobList:
    """The jobs of a chat as text, with the provenance of that text."""

    words: str
    origin: Provenance = NOBODYS


class Jobs(Protocol):
    """Scheduled jobs (`bot.features.jobs`). Results are text for the model."""

    async def create(self, asked: JobRequest) -> str:
        """Schedule a job. Raises `errors.ToolError`, which says what is expected, or `errors.StorageError`."""
        ...

    async def listed(self, inbound: Inbound) -> JobList:
        """The jobs of the chat of a message. Raises `errors.StorageError`."""
        ...

    async def cancel(self, inbound: Inbound, job: str) -> str:
        """Cancel a job on behalf of the sender. Raises `errors.ToolError` if they may not, or `errors.StorageError`."""
        ...
