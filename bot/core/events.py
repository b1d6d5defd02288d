"""The events of a chat: the facts of which everything else is a fold, and their codec.

An event is appended once and never changed. A removal alone blanks the fields of `words` in what it reaches. A kind of which a
release has written events keeps its fields: a field that is added has a default.
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
from bot.contracts.inbound import Inbound, SeenFile
from bot.contracts.outbound import OutboundKind, StoredFile
from bot.contracts.tasks import TaskMode
from bot.core.assembly import Frozen
from bot.words import DEFAULT, UTC

TurnEndState = Literal["answered", "failed", "stopped", "withdrawn", "handled"]
RowEndState = Literal["sent", "failed", "unknown"]


class EventData:
    """Base of the kinds. `kind` is the name on disk; `words` names the fields that hold what somebody said."""

    __slots__ = ()
    kind: ClassVar[str]
    words: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """One fact of a chat. `id` is unique: to append the same event again changes nothing. `turn` is the request id of the message
    that began the turn, `at` epoch seconds, `seq` its number in the chat, which the log gives.
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
    """A message, a command or a job that is due was taken in."""

    kind: ClassVar[str] = "received"
    words: ClassVar[frozenset[str]] = frozenset({"inbound"})
    inbound: Inbound
    beside: bool = False
    """It needs no turn: a command that passes the queues, a signal."""


@dataclass(frozen=True, slots=True)
class Ordered(EventData):
    """A turn has given out a task: its chat begins with this. `inbound` has the words of the order in the name of the person whose turn it
    is, `label` names the task for people. A `fork` begins with what the turn has sent.
    """

    kind: ClassVar[str] = "ordered"
    words: ClassVar[frozenset[str]] = frozenset({"inbound", "label"})
    inbound: Inbound
    label: str
    mode: TaskMode


@dataclass(frozen=True, slots=True)
class Edited(EventData):
    """The author of a message has changed its words."""

    kind: ClassVar[str] = "edited"
    words: ClassVar[frozenset[str]] = frozenset({"inbound"})
    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Deleted(EventData):
    """The author of a message has deleted it."""

    kind: ClassVar[str] = "deleted"
    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Stop(EventData):
    """A person stops what they have asked for, an operator (`everyones`) what runs for anybody. `since` (epoch ms): it reaches nothing said
    later than that.
    """

    kind: ClassVar[str] = "stop"
    inbound: Inbound
    since: int | None = None
    everyones: bool = False


@dataclass(frozen=True, slots=True)
class Closed(EventData):
    """An inbound that needed no turn has come to its end: a command, a stranger's line, a late edit."""

    kind: ClassVar[str] = "closed"
    request: str
    reason: str = ""


# ------------------------------------------------------------ a turn


@dataclass(frozen=True, slots=True)
class TurnStarted(EventData):
    """A turn begins, or begins again after the process that ran it has died. `members` are the requests that it answers."""

    kind: ClassVar[str] = "turn_started"
    members: tuple[str, ...]
    boot: str


@dataclass(frozen=True, slots=True)
class Joined(EventData):
    """A message became part of the running turn."""

    kind: ClassVar[str] = "joined"
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnLeft(EventData):
    """A process that ends leaves its turn to the next one: that was no attempt."""

    kind: ClassVar[str] = "turn_left"


@dataclass(frozen=True, slots=True)
class FilesRead(EventData):
    """The files of a message of the running turn were read, in their order, as far as they can be."""

    kind: ClassVar[str] = "files_read"
    words: ClassVar[frozenset[str]] = frozenset({"files"})
    request: str
    files: tuple[SeenFile, ...]


@dataclass(frozen=True, slots=True)
class TurnEnded(EventData):
    """A turn is over. Its last words, if any, were queued with it or before. `reason` says to the model what went wrong."""

    kind: ClassVar[str] = "turn_ended"
    end: TurnEndState
    reason: str = ""


# ------------------------------------------------------------ questions to people


@dataclass(frozen=True, slots=True)
class QuestionAsked(EventData):
    """People are asked whether something may be done. A turn that asks is suspended until the verdict."""

    kind: ClassVar[str] = "question_asked"
    words: ClassVar[frozenset[str]] = frozenset({"asked"})
    question: str
    asked: Approval


@dataclass(frozen=True, slots=True)
class Decided(EventData):
    """A question has its verdict; the first one counts."""

    kind: ClassVar[str] = "decided"
    question: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Revised(EventData):
    """A message that shows a question has its outcome in the chat, without buttons."""

    kind: ClassVar[str] = "revised"
    row: str


@dataclass(frozen=True, slots=True)
class FactSet(EventData):
    """A fact that belongs to no turn is so from now on: a person's language, an approval that lasts. None takes it back."""

    kind: ClassVar[str] = "fact_set"
    of: str
    """The kind of fact."""
    key: str
    value: Json | None


# ------------------------------------------------------------ the model and its tools


@dataclass(frozen=True, slots=True)
class Told(EventData):
    """The gateway tells the model something as the user: a person's message as the model gets it, instructions, a line that
    asks it to go on. `sources` are the requests whose words it carries, `edits` those of edits of earlier messages that it tells of.
    """

    kind: ClassVar[str] = "told"
    words: ClassVar[frozenset[str]] = frozenset({"message"})
    message: Message
    sources: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked(EventData):
    """The model is asked. An answer to an earlier call of the turn no longer counts."""

    kind: ClassVar[str] = "asked"
    call: str
    boot: str
    model: str


@dataclass(frozen=True, slots=True)
class Answered(EventData):
    """The whole answer of the model. `cut` names the tool calls that did not arrive whole, `continues` counts how often
    this answer was continued. `unshown` are the artifacts of files that the model was not shown, since the provider refuses them, or
    all where it is `blind`.
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
    """A sentence for its person, below the next message."""
    origin: Json | list[str] | None = None
    """Sources of the words that it may repeat (`Provenance.packed`): all in view when it was written. None: nobody's words."""


@dataclass(frozen=True, slots=True)
class Used(EventData):
    """A call of the model has ended, whatever it was for: a turn, a task, a summary. `usage` is what the provider bills, None where
    nothing is known; `error` is the type of a failure, "" of an answer. Sums of usage count these.
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
    """A person thinks this of the answer of a turn: good, bad, or none any more."""

    kind: ClassVar[str] = "rated"
    rating: str


@dataclass(frozen=True, slots=True)
class ToolStarted(EventData):
    """A tool has begun: without a `ToolEnded` of the same boot nobody knows whether it took effect. What it does for a `task` stands in the
    chat of that, so it goes on.
    """

    kind: ClassVar[str] = "tool_started"
    call: str
    name: str
    boot: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class ToolEnded(EventData):
    """A tool call has its result, as a `tool_result` block with what is kept beside it."""

    kind: ClassVar[str] = "tool_ended"
    words: ClassVar[frozenset[str]] = frozenset({"result"})
    call: str
    result: Json


# ------------------------------------------------------------ what goes out


@dataclass(frozen=True, slots=True)
class Queued(EventData):
    """A message is to be sent. `call` is the tool call that says it, `part_of` the first row of a message in several parts,
    `ends` says that its turn ends with it, `replaces` the platform's id of the live message in whose place it comes, `repeat_of` the row whose words these are once more. `buttons` stand
    below it; of a `question` they go once that is decided, and `closes_as` are its words that stay then. Times in it are told in `zone`.
    Of a `file` the text is the passage in whose place it comes.
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
    """A message goes out by itself at a later time (epoch seconds)."""

    kind: ClassVar[str] = "deferred"
    row: str
    until: float


@dataclass(frozen=True, slots=True)
class Sending(EventData):
    """A send begins: without its end, and in another boot, nobody knows whether it arrived. `replaces` is the platform's id of the
    message in whose place it comes.
    """

    kind: ClassVar[str] = "sending"
    row: str
    boot: str
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Returned(EventData):
    """A send surely did not arrive, and may be tried again."""

    kind: ClassVar[str] = "returned"
    row: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Uncertain(EventData):
    """A send got no answer: its platform has to be asked."""

    kind: ClassVar[str] = "uncertain"
    row: str


@dataclass(frozen=True, slots=True)
class Shown(EventData):
    """A live message stands in the chat, and may still change."""

    kind: ClassVar[str] = "shown"
    row: str
    message_id: str


@dataclass(frozen=True, slots=True)
class RowEnded(EventData):
    """A message is in the chat as it stays (`sent`), surely is not (`failed`), or nobody can tell (`unknown`).
    `missing` is the name of a file that its chat cannot have; a message in its place says so.
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
    """Messages leave the view: all, or the entries `dropped`. `head` stands for all that has gone so far; each cut states it anew."""

    kind: ClassVar[str] = "cut"
    words: ClassVar[frozenset[str]] = frozenset({"head"})
    dropped: tuple[int, ...] | Literal["all"]
    head: Message | None
    reason: str


@dataclass(frozen=True, slots=True)
class SessionMoved(EventData):
    """Another conversation of the chat goes on, or a new one that is the present one up to the turn `forked_at`: `session` is its name,
    `turns` are in view, with these `masked` results and this `head`. What the turns hold stands in the log: nothing is copied.
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
    """Tool results are shown as these words from now on, by the id of their call."""

    kind: ClassVar[str] = "masked"
    results: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class Injected(EventData):
    """Older messages stand before the current one until the turn ends, or only the newest `kept` of them."""

    kind: ClassVar[str] = "injected"
    words: ClassVar[frozenset[str]] = frozenset({"messages"})
    messages: tuple[Message, ...] = ()
    times: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class Framed(EventData):
    """The frame of each request until the next such event: the prompt, the model, effort and thinking, and a digest of system
    prompt and tools as they are sent. It is stated anew where the view no longer reaches back to it.
    """

    kind: ClassVar[str] = "framed"
    frozen: Frozen
    model: str
    manner: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Remembered(EventData):
    """The memory of the chat was written: it knows what was said up to the message `covers`, None where that is not sure. `origin` says
    whose words it holds. It is stated anew where the view no longer reaches back to it.
    """

    kind: ClassVar[str] = "remembered"
    words: ClassVar[frozenset[str]] = frozenset({"markdown"})
    markdown: str
    covers: int | None
    origin: Json | list[str]


@dataclass(frozen=True, slots=True)
class Removed(EventData):
    """Words are gone for good, from the log and from all that was made of it: those of `requests`, the answers of `turns`, quotes of
    `messages`, and with `head` the summary that may tell of them. `message` and `role` name what was removed, `related` are the turns
    that had to do with it, `by` the request that asked for it.
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
    """Events before the number `before` are older than the chat is kept and leave the log: nothing rests on them any more. `at` (epoch
    seconds) is the time of the oldest that stays.
    """

    kind: ClassVar[str] = "expired"
    before: int
    at: float


@dataclass(frozen=True, slots=True)
class Unreadable(EventData):
    """A channel brought an event that nobody can read."""

    kind: ClassVar[str] = "unreadable"
    words: ClassVar[frozenset[str]] = frozenset({"raw"})
    channel: str
    key: str
    raw: str
    reason: str


@dataclass(frozen=True, slots=True)
class Damaged(EventData):
    """Stands in the place of an event that cannot be read: it changes nothing."""

    kind: ClassVar[str] = "damaged"
    was: str


def fact_of(data: EventData) -> tuple[str, str, Json | None] | None:
    """The kind, key and value of a fact that an event sets; a value of None takes it back."""
    return (data.of, data.key, data.value) if isinstance(data, FactSet) else None


def keys_of(data: EventData) -> tuple[str, ...]:
    """The keys by which a platform's event is known when it is brought again."""
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
    """Turns the data of events into JSON and back. Features add their kinds with `add`."""

    def __init__(self, *more: type[EventData]) -> None:
        self._kinds: dict[str, type[EventData]] = {}
        self._adapters: dict[str, Adapter] = {}
        for kind in (*CORE, *more):
            self.add(kind)

    def add(self, kind: type[EventData]) -> None:
        """Raises ValueError where the name is taken."""
        if kind.kind in self._kinds:
            raise ValueError(f"two kinds of events are called {kind.kind}")
        self._kinds[kind.kind] = kind

    def encode(self, data: EventData) -> str:
        """The data as JSON; halves of surrogate pairs, which no database takes, become U+FFFD."""
        adapter = self._adapter(data.kind)
        try:
            raw: bytes = adapter.dump_json(data, exclude_defaults=True)
        except ValueError:
            value = adapter.dump_python(data, mode="json", exclude_defaults=True)
            return text.clean(json.dumps(value, ensure_ascii=False))
        return raw.decode()

    def decode(self, kind: str, raw: str) -> EventData:
        """The data of a row. Where it cannot be read it is `Damaged`, so that the rest of the chat goes on."""
        if kind not in self._kinds:
            return Damaged(kind)
        try:
            data: EventData = self._adapter(kind).validate_json(raw)
        except ValidationError:
            return Damaged(kind)
        return data

    def _adapter(self, kind: str) -> Adapter:
        # Made when one is needed: making them all takes a tenth of a second.
        if kind not in self._adapters:
            self._adapters[kind] = TypeAdapter(self._kinds[kind])
        return self._adapters[kind]
