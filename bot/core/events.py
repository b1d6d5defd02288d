"""The kinds of events, and their codec. All state is a fold of events.

An event is appended once and never changes, except that a removal blanks its `words` fields. The fields of a
released kind are kept; a new field has a default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from bot import text
from bot.contracts.approvals import Approval, QuestionButtons, Verdict
from bot.contracts.base import ChatType, Json, Message, Role
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core.assembly import Frozen
from bot.core.file_words import SeenFile
from bot.core.outbox_row import StoredFile
from bot.tools.context import TaskMode
from bot.words import DEFAULT, UTC

TurnEndState = Literal["answered", "failed", "stopped", "withdrawn", "handled"]
RowEndState = Literal["sent", "failed", "unknown"]


class EventData:
    """Base of all kinds. `kind` is the name on disk; `words` are the fields that hold what somebody said."""

    __slots__ = ()
    kind: ClassVar[str]
    words: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a chat. `id` is unique: appending it again changes nothing. `turn` is the request id of
    the turn's first message, `at` is epoch seconds, `seq` is its number in the chat, set by the log.
    """

    id: str
    chat: ChatKey
    at: float
    data: EventData
    turn: str | None = None
    person: str | None = None
    seq: int = 0

    @property
    def kind(self) -> str:
        return self.data.kind


# ------------------------------------------------------------ what people do


@dataclass(frozen=True, slots=True)
class Received(EventData):
    """A message, a command or a due job was accepted."""

    kind: ClassVar[str] = "received"
    words: ClassVar[frozenset[str]] = frozenset({"inbound"})
    inbound: Inbound
    beside: bool = False
    """It needs no turn: a command that bypasses the queue, or a signal."""


@dataclass(frozen=True, slots=True)
class Ordered(EventData):
    """A turn started a subagent task: the first event of the task's chat. `inbound` holds the instructions
    in the name of the turn's person, `label` is the task's name for people. A `fork` starts with the
    context of its parent.
    """

    kind: ClassVar[str] = "ordered"
    words: ClassVar[frozenset[str]] = frozenset({"inbound", "label"})
    inbound: Inbound
    label: str
    mode: TaskMode


@dataclass(frozen=True, slots=True)
class Edited(EventData):
    """The author edited a message."""

    kind: ClassVar[str] = "edited"
    words: ClassVar[frozenset[str]] = frozenset({"inbound"})
    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Deleted(EventData):
    """The author deleted a message."""

    kind: ClassVar[str] = "deleted"
    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Stop(EventData):
    """A person stops their own work; an operator (`everyones`) stops anybody's. `since` (epoch ms): later
    messages are not affected.
    """

    kind: ClassVar[str] = "stop"
    inbound: Inbound
    since: int | None = None
    everyones: bool = False


@dataclass(frozen=True, slots=True)
class Closed(EventData):
    """An inbound without a turn was handled: a command, a stranger's message, a late edit."""

    kind: ClassVar[str] = "closed"
    request: str
    reason: str = ""


# ------------------------------------------------------------ a turn


@dataclass(frozen=True, slots=True)
class TurnStarted(EventData):
    """A turn was started, or restarted after its process died. `members` are the requests that it answers."""

    kind: ClassVar[str] = "turn_started"
    members: tuple[str, ...]
    boot: str


@dataclass(frozen=True, slots=True)
class Joined(EventData):
    """Messages joined the running turn."""

    kind: ClassVar[str] = "joined"
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnLeft(EventData):
    """A process left its turn to the next one at shutdown; this does not count as an attempt."""

    kind: ClassVar[str] = "turn_left"


@dataclass(frozen=True, slots=True)
class FilesRead(EventData):
    """The files of a message of the running turn were read, in order, as far as possible."""

    kind: ClassVar[str] = "files_read"
    words: ClassVar[frozenset[str]] = frozenset({"files"})
    request: str
    files: tuple[SeenFile, ...]


@dataclass(frozen=True, slots=True)
class TurnEnded(EventData):
    """A turn ended. Its last message, if any, was queued before or with this event. `reason` tells the model
    what went wrong.
    """

    kind: ClassVar[str] = "turn_ended"
    end: TurnEndState
    reason: str = ""


# ------------------------------------------------------------ questions to people


@dataclass(frozen=True, slots=True)
class QuestionAsked(EventData):
    """People were asked whether something may be done. The turn that asks is suspended until the verdict."""

    kind: ClassVar[str] = "question_asked"
    words: ClassVar[frozenset[str]] = frozenset({"asked"})
    question: str
    asked: Approval


@dataclass(frozen=True, slots=True)
class Decided(EventData):
    """A question got its verdict; the first one counts."""

    kind: ClassVar[str] = "decided"
    question: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Revised(EventData):
    """A message that shows a question was edited to show the outcome, without buttons."""

    kind: ClassVar[str] = "revised"
    row: str


@dataclass(frozen=True, slots=True)
class FactSet(EventData):
    """A fact outside any turn changed, such as a person's language or a lasting approval. None deletes it."""

    kind: ClassVar[str] = "fact_set"
    of: str
    """The kind of the fact."""
    key: str
    value: Json | None


# ------------------------------------------------------------ the model and its tools


@dataclass(frozen=True, slots=True)
class Told(EventData):
    """A user message for the model: a person's message as the model sees it, instructions, or a line that
    asks it to continue. `sources` are the requests whose words it carries, `edits` the ids of edits of
    earlier messages in it.
    """

    kind: ClassVar[str] = "told"
    words: ClassVar[frozenset[str]] = frozenset({"message"})
    message: Message
    sources: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked(EventData):
    """The model was called. Answers to earlier calls of the turn are ignored."""

    kind: ClassVar[str] = "asked"
    call: str
    boot: str
    model: str


@dataclass(frozen=True, slots=True)
class Answered(EventData):
    """The complete answer of the model. `cut` are the tool calls that did not arrive completely. `continues`
    counts continuations of this answer. `unshown` are artifacts of files that the provider refused; with
    `blind` it refused all.
    """

    kind: ClassVar[str] = "answered"
    words: ClassVar[frozenset[str]] = frozenset({"content"})
    call: str
    content: list[Json]
    stop_reason: str | None
    model: str = ""
    cut: tuple[str, ...] = ()
    continues: int = 0
    usage: Mapping[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    unshown: tuple[str, ...] = ()
    blind: bool = False
    note: str = ""
    """A sentence for the person, added below the next message."""
    origin: Json | list[str] | None = None
    """Sources of the words that it may repeat (`Provenance.packed`): everything in view when it was written.
    None if there were none.
    """


@dataclass(frozen=True, slots=True)
class Used(EventData):
    """A model call ended, for a turn, a task or a summary. `usage` is what the provider bills, None if
    unknown. `error` is the type of a failure, "" on success. Usage totals are sums of these.
    """

    kind: ClassVar[str] = "used"
    model: str
    purpose: str
    person: str = ""
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    error: str = ""
    latency_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rated(EventData):
    """A person rated the answer of a turn: good, bad, or "" to withdraw."""

    kind: ClassVar[str] = "rated"
    rating: str


@dataclass(frozen=True, slots=True)
class ToolStarted(EventData):
    """A tool call began. Without a `ToolEnded` of the same boot nobody knows whether it had an effect. A
    call that runs a `task` can continue, since the task has a log of its own.
    """

    kind: ClassVar[str] = "tool_started"
    call: str
    name: str
    boot: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class ToolEnded(EventData):
    """A tool call ended, with its `tool_result` block and metadata."""

    kind: ClassVar[str] = "tool_ended"
    words: ClassVar[frozenset[str]] = frozenset({"result"})
    call: str
    result: Json


# ------------------------------------------------------------ what goes out


@dataclass(frozen=True, slots=True)
class Queued(EventData):
    """A message was queued. `call` is the tool call that sends it, `part_of` the first row of a message in
    several parts, `ends` marks the turn's last message, `replaces` is the platform id of the live message
    that it replaces, `repeat_of` the row that it repeats. `buttons` are shown below it until its
    `question` is decided; then `closes_as` replaces its text. Times in it are shown in `zone`. For a
    `file`, the text is the passage that it replaces.
    """

    kind: ClassVar[str] = "queued"
    words: ClassVar[frozenset[str]] = frozenset({"text"})
    row: str
    target: Mapping[str, str]
    text: str
    form: OutboundKind = "reply"
    channel: str = ""
    chat_id: str = ""
    chat_type: ChatType = "direct"
    call: str | None = None
    part_of: str | None = None
    last: bool = True
    ends: bool = False
    replaces: str | None = None
    repeat_of: str | None = None
    not_before: float | None = None
    language: str = DEFAULT
    buttons: QuestionButtons | None = None
    question: str | None = None
    closes_as: str = ""
    zone: str = UTC
    own_zone: bool = False
    file: StoredFile | None = None


@dataclass(frozen=True, slots=True)
class Deferred(EventData):
    """A message was postponed until this time (epoch seconds)."""

    kind: ClassVar[str] = "deferred"
    row: str
    until: float


@dataclass(frozen=True, slots=True)
class Sending(EventData):
    """A send began. Without an end in the same boot nobody knows whether it arrived. `replaces` is the
    platform id of the message that it replaces.
    """

    kind: ClassVar[str] = "sending"
    row: str
    boot: str
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Returned(EventData):
    """A send certainly did not arrive and may be retried."""

    kind: ClassVar[str] = "returned"
    row: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Uncertain(EventData):
    """A send got no answer; the platform must be asked."""

    kind: ClassVar[str] = "uncertain"
    row: str


@dataclass(frozen=True, slots=True)
class Shown(EventData):
    """A live message is visible in the chat and may still change."""

    kind: ClassVar[str] = "shown"
    row: str
    message_id: str


@dataclass(frozen=True, slots=True)
class RowEnded(EventData):
    """A message was delivered in its final form (`sent`), certainly was not (`failed`), or cannot be
    determined (`unknown`). `missing` is the name of a file that the chat cannot receive; another message
    says so.
    """

    kind: ClassVar[str] = "row_ended"
    row: str
    state: RowEndState
    message_id: str | None = None
    reason: str = ""
    missing: str = ""


# ------------------------------------------------------------ changes of the view


@dataclass(frozen=True, slots=True)
class Cut(EventData):
    """Messages left the view: all, or those numbered in `dropped`. `head` stands for everything dropped so far."""

    kind: ClassVar[str] = "cut"
    words: ClassVar[frozenset[str]] = frozenset({"head"})
    dropped: tuple[int, ...] | Literal["all"]
    head: Message | None
    reason: str


@dataclass(frozen=True, slots=True)
class SessionMoved(EventData):
    """The chat switched to another conversation, or to a fork of the current one up to the turn `forked_at`.
    `session` is its name, `turns` are in view, with these `masked` results and this `head`. Nothing is
    copied: the turns are in the log.
    """

    kind: ClassVar[str] = "session_moved"
    words: ClassVar[frozenset[str]] = frozenset({"head"})
    session: str
    turns: tuple[str, ...]
    head: Message | None = None
    masked: Mapping[str, str] = field(default_factory=dict)
    forked_at: str = ""


@dataclass(frozen=True, slots=True)
class Masked(EventData):
    """These texts replace tool results from now on, by call id."""

    kind: ClassVar[str] = "masked"
    results: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class Injected(EventData):
    """Older messages were placed before the current one until the turn ends; with `kept` only the newest
    `kept` of them stay.
    """

    kind: ClassVar[str] = "injected"
    words: ClassVar[frozenset[str]] = frozenset({"messages"})
    messages: tuple[Message, ...] = ()
    times: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class Framed(EventData):
    """The frame of all following requests: prompt, model, effort and thinking, and a digest of system prompt
    and tools as sent. Appended again once the view no longer reaches it.
    """

    kind: ClassVar[str] = "framed"
    frozen: Frozen
    model: str
    manner: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Remembered(EventData):
    """The session memory was written. It covers messages up to number `covers` (None: not sure). `origin`
    says whose words it holds. Appended again once the view no longer reaches it.
    """

    kind: ClassVar[str] = "remembered"
    words: ClassVar[frozenset[str]] = frozenset({"markdown"})
    markdown: str
    covers: int | None
    origin: Json | list[str]


@dataclass(frozen=True, slots=True)
class Removed(EventData):
    """Words were removed for good from the log and everything derived: those of `requests`, the answers of
    `turns`, quotes of `messages`, and with `head` the summary. `message` and `role` name what was
    removed, `related` are the turns concerned, `by` is the request that asked for it.
    """

    kind: ClassVar[str] = "removed"
    requests: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    head: bool = False
    message: str = ""
    role: Role = "user"
    related: tuple[str, ...] = ()
    by: str = ""


@dataclass(frozen=True, slots=True)
class Expired(EventData):
    """Events before the number `before` are past the retention time and are deleted. `at` (epoch seconds) is
    the time of the oldest event left.
    """

    kind: ClassVar[str] = "expired"
    before: int
    at: float


@dataclass(frozen=True, slots=True)
class Unreadable(EventData):
    """A channel received an event that could not be parsed."""

    kind: ClassVar[str] = "unreadable"
    words: ClassVar[frozenset[str]] = frozenset({"raw"})
    channel: str
    key: str
    raw: str
    reason: str


@dataclass(frozen=True, slots=True)
class Damaged(EventData):
    """Stands for a stored event that cannot be parsed; changes nothing."""

    kind: ClassVar[str] = "damaged"
    was: str


def fact_of(data: EventData) -> tuple[str, str, Json | None] | None:
    """Return kind, key and value of the fact that an event sets; a value of None deletes it."""
    return (data.of, data.key, data.value) if isinstance(data, FactSet) else None


def keys_of(data: EventData) -> tuple[str, ...]:
    """Return the platform keys by which a redelivered event is recognised."""
    return data.inbound.keys if isinstance(data, Received | Edited | Deleted | Stop) else ()


CORE: tuple[type[EventData], ...] = (
    Received,
    Ordered,
    Edited,
    Deleted,
    Stop,
    Closed,
    TurnStarted,
    Joined,
    TurnLeft,
    FilesRead,
    TurnEnded,
    QuestionAsked,
    Decided,
    Revised,
    FactSet,
    Told,
    Asked,
    Answered,
    Used,
    Rated,
    ToolStarted,
    ToolEnded,
    Queued,
    Deferred,
    Sending,
    Returned,
    Uncertain,
    Shown,
    RowEnded,
    Cut,
    SessionMoved,
    Masked,
    Injected,
    Framed,
    Remembered,
    Removed,
    Expired,
    Unreadable,
)
Adapter: TypeAlias = "TypeAdapter[Any]"


class Codec:
    """Converts event data to JSON and back. Features register their kinds with `add`."""

    def __init__(self, *more: type[EventData]) -> None:
        self._kinds: dict[str, type[EventData]] = {}
        self._adapters: dict[str, Adapter] = {}
        for kind in (*CORE, *more):
            self.add(kind)

    def add(self, kind: type[EventData]) -> None:
        """Register a kind. Raises ValueError if the name is taken."""
        if kind.kind in self._kinds:
            raise ValueError(f"two kinds of events are called {kind.kind}")
        self._kinds[kind.kind] = kind

    def encode(self, data: EventData) -> str:
        """Return the data as JSON. Lone surrogates, which databases reject, become U+FFFD."""
        adapter = self._adapter(data.kind)
        try:
            raw: bytes = adapter.dump_json(data, exclude_defaults=True)
        except ValueError:
            value = adapter.dump_python(data, mode="json", exclude_defaults=True)
            return text.clean(json.dumps(value, ensure_ascii=False))
        return raw.decode()

    def decode(self, kind: str, raw: str) -> EventData:
        """Return the data of a row, or `Damaged` if it cannot be parsed, so that the rest of the chat
        remains usable.
        """
        if kind not in self._kinds:
            return Damaged(kind)
        try:
            data: EventData = self._adapter(kind).validate_json(raw)
        except ValidationError:
            return Damaged(kind)
        return data

    def _adapter(self, kind: str) -> Adapter:
        # Created on demand: creating all takes a tenth of a second.
        if kind not in self._adapters:
            self._adapters[kind] = TypeAdapter(self._kinds[kind])
        return self._adapters[kind]
