"""Event kinds and their codec. All state is folded from events.

An event is appended once and never changes, except that a removal blanks the fields listed in `words`. The
fields of a released kind are kept; a new field has a default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import TypeAdapter, ValidationError

from bot import text
from bot.contracts.approvals import Approval, QuestionButtons, Verdict
from bot.contracts.base import ChatType, Json, Message, Role
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core.file_words import SeenFile
from bot.core.prompt import Frozen
from bot.tools.context import TaskMode
from bot.words import DEFAULT, UTC

TurnEndState = Literal["answered", "failed", "stopped", "withdrawn", "handled"]
RowEndState = Literal["sent", "failed", "unknown"]


KINDS: dict[str, type[EventData]] = {}
"""All event kinds by name."""


class EventData:
    """Base of all event kinds. `kind` is the kind's name on disk; `words` lists the fields that contain text
    written by people or the model.
    """

    __slots__ = ()
    kind: ClassVar[str]
    words: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, kind: str = "", words: str = "") -> None:
        if kind:
            cls.kind, cls.words = kind, frozenset(words.split())
        if "kind" in cls.__dict__:
            # A dataclass with slots is created twice; the second class replaces the first.
            KINDS[cls.kind] = cls


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a chat. `id` is unique: appending the same id again changes nothing. `turn` is the
    request id of the turn's first message, `at` is in epoch seconds, `seq` is the event's number in the
    chat, assigned by the log.
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

    def facts(self) -> Json:
        """Return the event's data without words of people and the model, and without nested values."""
        found: Json = json.loads(encode(self.data))
        facts = {name: one for name, one in found.items() if name not in self.data.words}
        if isinstance(inbound := found.get("inbound"), dict):
            facts |= {"message": inbound.get("message_id"), "from": inbound.get("user_id")}
        return {name: one for name, one in facts.items() if isinstance(one, str | int | float)}


# ------------------------------------------------------------ events from people


@dataclass(frozen=True, slots=True)
class Received(EventData, kind="received", words="inbound"):
    """Event: a message, a command or a due job was accepted. `beside`: a command or signal that needs no turn."""

    inbound: Inbound
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Ordered(EventData, kind="ordered", words="inbound label"):
    """Event: a turn started a subagent task; the first event of the task's chat. `inbound` has the task's
    instructions in the name of the turn's person, `label` is the name that people see. With mode `fork`, the
    task starts with the model context of its parent.
    """

    inbound: Inbound
    label: str
    mode: TaskMode


@dataclass(frozen=True, slots=True)
class Edited(EventData, kind="edited", words="inbound"):
    """Event: the author edited a message."""

    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Deleted(EventData, kind="deleted"):
    """Event: the author deleted a message."""

    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Stop(EventData, kind="stop"):
    """Event: a person stopped their work, or an operator (`everyones`) anybody's. Later messages than `since`
    (epoch ms) are not affected.
    """

    inbound: Inbound
    since: int | None = None
    everyones: bool = False


@dataclass(frozen=True, slots=True)
class Closed(EventData, kind="closed"):
    """Event: an incoming command, stranger's message or late edit was handled without a turn."""

    request: str
    reason: str = ""


# ------------------------------------------------------------ a turn


@dataclass(frozen=True, slots=True)
class TurnStarted(EventData, kind="turn_started"):
    """Event: a turn was started, or restarted after its process died. `members` are the answered requests."""

    members: tuple[str, ...]
    boot: str


@dataclass(frozen=True, slots=True)
class Joined(EventData, kind="joined"):
    """Event: further messages joined the running turn."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnLeft(EventData, kind="turn_left"):
    """Event: at shutdown a process left its turn to the next process, whose restart counts as no attempt."""


@dataclass(frozen=True, slots=True)
class FilesRead(EventData, kind="files_read", words="files"):
    """Event: the attached files of one message of the running turn were read, in order, as far as possible."""

    request: str
    files: tuple[SeenFile, ...]


@dataclass(frozen=True, slots=True)
class TurnEnded(EventData, kind="turn_ended"):
    """Event: a turn ended; its last message, if any, was queued before. `reason` tells the model what went
    wrong, `model` was called last.
    """

    end: TurnEndState
    reason: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Waited(EventData, kind="waited"):
    """Event: the person sees the first words of a turn's answer, `ms` milliseconds after the message.
    `rounded` is the same number to two digits. `parts` are the milliseconds by what they were spent on:
    `queue`, `approval`, `model`, `tools` and `delivery`.
    """

    ms: int
    rounded: int
    parts: Mapping[str, int] = field(default_factory=dict)


# ------------------------------------------------------------ questions to people


@dataclass(frozen=True, slots=True)
class QuestionAsked(EventData, kind="question_asked", words="asked"):
    """Event: people were asked whether something may be done. The turn is suspended until the verdict."""

    question: str
    asked: Approval


@dataclass(frozen=True, slots=True)
class Decided(EventData, kind="decided"):
    """Event: a question got its verdict. Only the first verdict counts."""

    question: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Revised(EventData, kind="revised", words="text"):
    """Event: a message that shows a question was edited to the `text` with the outcome, without buttons.
    `shown_at` is the time of the message in epoch seconds.
    """

    row: str
    text: str = ""
    shown_at: float = 0.0


@dataclass(frozen=True, slots=True)
class FactSet(EventData, kind="fact_set"):
    """Event: a fact outside any turn changed, `of` the kind of a person's language or a lasting approval. A
    `value` of None deletes the fact.
    """

    of: str
    key: str
    value: Json | None


# ------------------------------------------------------------ the model and its tools


@dataclass(frozen=True, slots=True)
class Told(EventData, kind="told", words="message"):
    """Event: a user message was added to the model's context: a person's message in the form that the model
    sees, instructions, or a line that asks the model to continue. `sources` are the requests whose text
    the message contains, `edits` the ids of edits of earlier messages that it contains.
    """

    message: Message
    sources: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked(EventData, kind="asked"):
    """Event: the model was called. Answers to earlier calls of the turn are ignored."""

    call: str
    boot: str
    model: str


@dataclass(frozen=True, slots=True)
class Answered(EventData, kind="answered", words="content"):
    """Event: the model's complete answer. `cut` lists the tool calls that did not arrive completely.
    `continues` counts how often this answer was continued. `unshown` lists the artifacts of files that the
    provider refused; `blind`: all files were refused. `note` is a sentence for the person, added below the next
    message. `origin` lists every source in the model's context (`Provenance.packed`), whose text the answer may
    repeat; None if there were no sources.
    """

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
    origin: Json | list[str] | None = None


@dataclass(frozen=True, slots=True)
class Used(EventData, kind="used"):
    """Event: a model call ended, for a turn, a task or a summary. `usage` is what the provider bills, None
    if unknown. `error` is the type of a failure, "" on success. Usage totals are sums over these events.
    """

    model: str
    purpose: str
    person: str = ""
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rated(EventData, kind="rated"):
    """Event: a person rated the answer of a turn; "" withdraws the rating."""

    rating: str


@dataclass(frozen=True, slots=True)
class ToolStarted(EventData, kind="tool_started"):
    """Event: a tool call began. Without a `ToolEnded` event, it is unknown whether the call had an effect; but a
    call that runs a `task` is continued, since the task has an event log of its own.
    """

    call: str
    name: str
    boot: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class ToolEnded(EventData, kind="tool_ended", words="result"):
    """Event: a tool call ended, with its `tool_result` block and metadata."""

    call: str
    result: Json


# ------------------------------------------------------------ outgoing messages


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The stored part of an `OutgoingFile`. The bytes are in `.ship/outgoing`, under their SHA-256."""

    name: str
    mime_type: str
    size: int
    sha256: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Queued(EventData, kind="queued", words="text"):
    """Event: a message was queued in the outbox. `call` is the tool call that sends the message. `part_of`
    is the first row of a message in several parts. `ends` marks the turn's last message. `replaces` is
    the platform id of the live message that this message replaces, `repeat_of` the row that this row
    repeats. `buttons` are shown below the message until its `question` is decided; then `closes_as`
    replaces the text. Times in the text are shown in time zone `zone`. If there is a `file`, the text is
    the passage that the file replaces.
    """

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
class Deferred(EventData, kind="deferred"):
    """Event: a message was postponed until this time (epoch seconds)."""

    row: str
    until: float


@dataclass(frozen=True, slots=True)
class Sending(EventData, kind="sending"):
    """Event: sending a message began. Without an event that ends the send, it is unknown whether the message
    arrived. `replaces` is the platform id of the message that this message replaces.
    """

    row: str
    boot: str
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Returned(EventData, kind="returned"):
    """Event: a sent message certainly did not arrive, and the send may be retried."""

    row: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Uncertain(EventData, kind="uncertain"):
    """Event: the platform did not answer a send, so the platform must be asked whether the message arrived."""

    row: str


@dataclass(frozen=True, slots=True)
class Shown(EventData, kind="shown"):
    """Event: a live message is visible in the chat and may still change."""

    row: str
    message_id: str


@dataclass(frozen=True, slots=True)
class RowEnded(EventData, kind="row_ended"):
    """Event: a message was delivered in its final form (`sent`), was certainly not delivered (`failed`), or
    the outcome cannot be determined (`unknown`). `missing` is the name of a file that the chat cannot
    receive; another message reports that.
    """

    row: str
    state: RowEndState
    message_id: str | None = None
    reason: str = ""
    missing: str = ""


# ------------------------------------------------------------ changes of the model's context


@dataclass(frozen=True, slots=True)
class Cut(EventData, kind="cut", words="head"):
    """Event: messages were dropped from the model's context: all of them, or the event numbers in `dropped`.
    `head` is the message that replaces everything dropped so far.
    """

    dropped: tuple[int, ...] | Literal["all"]
    head: Message | None
    reason: str


@dataclass(frozen=True, slots=True)
class SessionMoved(EventData, kind="session_moved", words="head"):
    """Event: the chat switched to another conversation, or to a fork of the current conversation that ends
    with the turn `forked_at`. `session` is the conversation's name. `turns` lists the turns in the
    model's context, `masked` the masked results, `head` the message that replaces dropped messages.
    Nothing is copied, since the turns are in the log.
    """

    session: str
    turns: tuple[str, ...]
    head: Message | None = None
    masked: Mapping[str, str] = field(default_factory=dict)
    forked_at: str = ""


@dataclass(frozen=True, slots=True)
class Masked(EventData, kind="masked"):
    """Event: tool results were masked. `results` maps call ids to the texts that replace the results in all
    later requests.
    """

    results: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class Injected(EventData, kind="injected", words="messages"):
    """Event: older messages were placed before the current message until the turn ends. With `kept`, only
    the newest `kept` injected messages stay.
    """

    messages: tuple[Message, ...] = ()
    times: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class Framed(EventData, kind="framed"):
    """Event: the frame of all following requests was fixed: prompt, model, effort and thinking. `prefix` is
    a digest of the system prompt and tools as sent. The event is appended again once all turns in the
    model's context are newer than the event.
    """

    frozen: Frozen
    model: str
    manner: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Remembered(EventData, kind="remembered", words="markdown"):
    """Event: the session memory was written. The memory covers messages up to event number `covers` (None:
    unknown). `origin` lists the sources whose text the memory contains. The event is appended again once
    all turns in the model's context are newer than the event.
    """

    markdown: str
    covers: int | None
    origin: Json | list[str]


@dataclass(frozen=True, slots=True)
class Removed(EventData, kind="removed"):
    """Event: content was permanently removed: the messages of `requests`, the answers of `turns`, quotes of
    `messages`, and with `head` the summary. `message` and `role` identify the removed message, `related` lists
    the turns concerned, `by` is the request that asked for the removal.
    """

    requests: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    head: bool = False
    message: str = ""
    role: Role = "user"
    related: tuple[str, ...] = ()
    by: str = ""


@dataclass(frozen=True, slots=True)
class Expired(EventData, kind="expired"):
    """Event: events before number `before` are too old and deleted; `at` is the time of the next (epoch seconds)."""

    before: int
    at: float


@dataclass(frozen=True, slots=True)
class Unreadable(EventData, kind="unreadable", words="raw"):
    """Event: a channel received a platform event that could not be parsed."""

    channel: str
    key: str
    raw: str
    reason: str


@dataclass(frozen=True, slots=True)
class Damaged(EventData, kind="damaged"):
    """Replacement for a stored event that cannot be parsed; changes nothing."""

    was: str


def fact_of(data: EventData) -> tuple[str, str, Json | None] | None:
    """Return the kind, key and value of the fact that an event sets; a value of None deletes the fact."""
    return (data.of, data.key, data.value) if isinstance(data, FactSet) else None


def keys_of(data: EventData) -> tuple[str, ...]:
    """Return the platform keys by which a redelivered platform event is recognised."""
    return data.inbound.keys if isinstance(data, Received | Edited | Deleted | Stop) else ()


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    # Adapters are created on demand, since creating all of them takes a tenth of a second.
    return TypeAdapter(KINDS[kind])


def encode(data: EventData) -> str:
    """Return event data as JSON. Lone surrogates, which databases reject, become U+FFFD."""
    adapter = _adapter(data.kind)
    try:
        raw: bytes = adapter.dump_json(data, exclude_defaults=True)
    except ValueError:
        value = adapter.dump_python(data, mode="json", exclude_defaults=True)
        return text.clean(json.dumps(value, ensure_ascii=False))
    return raw.decode()


def decode(kind: str, raw: str) -> EventData:
    """Return the data of a stored event. Returns `Damaged` if the data cannot be parsed, so that the rest of
    the chat remains usable.
    """
    try:
        data: EventData = _adapter(kind).validate_json(raw)
    except (KeyError, ValidationError):
        return Damaged(kind)
    return data
