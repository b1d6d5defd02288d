"""All event kinds, and their JSON form. A stored event changes only if a removal blanks the fields listed in `words`. A
released kind keeps all its fields, and a field that is added later has a default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, dataclass_transform

from pydantic import TypeAdapter, ValidationError

from bot import text
from bot.contracts.approvals import Approval, QuestionButtons, Verdict
from bot.contracts.base import ChatType, Json, Message, Role
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, OutboundKind, SeenFile
from bot.core.prompt import Frozen
from bot.tools.context import TaskMode
from bot.words import DEFAULT, UTC

TurnEndState = Literal["answered", "failed", "stopped", "withdrawn", "handled"]
RowEndState = Literal["sent", "failed", "unknown"]


KINDS: dict[str, type[EventData]] = {}
"""All event kinds by name."""


@dataclass_transform(frozen_default=True)
class EventData:
    """Base class of event kinds, which are frozen dataclasses. `kind` is the name in the database. `words` names the fields
    with text by people or the model.
    """

    kind: ClassVar[str]
    words: ClassVar[frozenset[str]]

    def __init_subclass__(cls, kind: str = "", words: str = "", *, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)
        if kind:
            cls.kind, cls.words, KINDS[kind] = kind, frozenset(words.split()), cls


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a chat. `id` is unique: a second append with the same id is ignored. `turn` is the request id of the
    turn's first message. `at` is in epoch seconds. `seq` is the event's number in the chat, which the log assigns.
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
        """Return the event's plain values for operators, without text by people or the model."""
        facts: Json = json.loads(encode(self.data))
        if inbound := facts.get("inbound"):
            facts |= {"message": inbound.get("message_id"), "from": inbound.get("user_id")}
        shown = {name: one for name, one in facts.items() if name not in self.data.words}
        return {name: one for name, one in shown.items() if isinstance(one, str | int | float)}


class Received(EventData, kind="received", words="inbound"):
    """The bot accepted a message, a command or a due job. `beside` is True for a command or signal that needs no turn."""

    inbound: Inbound
    beside: bool = False


class Ordered(EventData, kind="ordered", words="inbound label"):
    """A turn started a subagent task. This is the first event of the task's own chat. `inbound` holds the task's
    instructions as a message of the turn's person. `label` is the task's name for people. In mode `fork`, the task starts
    with the messages of the turn's context.
    """

    inbound: Inbound
    label: str
    mode: TaskMode


class Edited(EventData, kind="edited", words="inbound"):
    """The author edited a message."""

    inbound: Inbound


class Deleted(EventData, kind="deleted"):
    """The author deleted a message."""

    inbound: Inbound


class Stop(EventData, kind="stop"):
    """A person stopped their own work or, if `everyones` is True, an operator stopped the work of anybody. Messages later
    than `since` (epoch ms) are not affected.
    """

    inbound: Inbound
    since: int | None = None
    everyones: bool = False


class Closed(EventData, kind="closed"):
    """A command, a stranger's message or an edit of an answered message was handled without a turn."""

    request: str
    reason: str = ""


class TurnStarted(EventData, kind="turn_started"):
    """A turn started, or restarted after its process died. `members` are the requests that the turn answers."""

    members: tuple[str, ...]
    boot: str


class Joined(EventData, kind="joined"):
    """The messages `members` joined the running turn."""

    members: tuple[str, ...]


class TurnLeft(EventData, kind="turn_left"):
    """A process that shuts down left its turn to the next process, where the restart does not count as an attempt."""


class FilesRead(EventData, kind="files_read", words="files"):
    """The files attached to the message `request` were read. `files` holds one result per file, in order."""

    request: str
    files: tuple[SeenFile, ...]


class TurnEnded(EventData, kind="turn_ended"):
    """A turn ended. Its last message, if any, was queued before. `reason` tells the model why the turn failed. `model` is
    the model that the turn called last.
    """

    end: TurnEndState
    reason: str = ""
    model: str = ""


class Waited(EventData, kind="waited"):
    """The person saw the first words of a turn's answer, `ms` milliseconds after writing. `rounded` is `ms` rounded to two
    digits. `parts` divides `ms` by activity: `queue`, `approval`, `model`, `tools` and `delivery`.
    """

    ms: int
    rounded: int
    parts: Mapping[str, int] = field(default_factory=dict)


class QuestionAsked(EventData, kind="question_asked", words="asked"):
    """People were asked whether something may be done. The turn that asked pauses until the verdict."""

    question: str
    asked: Approval


class Decided(EventData, kind="decided"):
    """A question got a verdict. Later verdicts on the same question are ignored."""

    question: str
    verdict: Verdict


class Revised(EventData, kind="revised", words="text"):
    """A sent message with a question was edited. It now shows the outcome `text` and no buttons. `shown_at` is the
    message's time in epoch seconds.
    """

    row: str
    text: str = ""
    shown_at: float = 0.0


class FactSet(EventData, kind="fact_set"):
    """A lasting value outside of any turn (a fact) changed. `of` is the kind of fact, such as a person's language. A
    `value` of None deletes the fact.
    """

    of: str
    key: str
    value: Json | None


class Told(EventData, kind="told", words="message"):
    """A user message was added to the model's context: a person's message as the model sees it, instructions, or a request
    to continue. `sources` are the requests whose text the message contains, `edits` the edits that it shows.
    """

    message: Message
    sources: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


class Asked(EventData, kind="asked"):
    """The model was called. From now on, answers to earlier calls of this turn are ignored."""

    call: str
    boot: str
    model: str


class Answered(EventData, kind="answered", words="content"):
    """The model's answer is complete. `cut` lists tool calls that did not arrive completely. `continues` is the number of
    continuations merged into this answer. `unshown` lists the artifacts of files that the provider refused; `blind` is True
    if the provider refused all files. `note` is a sentence that is added below the next message. `origin` lists all sources
    in the model's context (`Provenance.packed`), because the answer may repeat their text; None if there are none.
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


class Used(EventData, kind="used"):
    """A model call ended. `purpose` is the request's purpose, such as `turn`. `usage` is what the provider bills; None if
    unknown. `error` is the type of the failure; "" on success. Usage totals are sums over these events.
    """

    model: str
    purpose: str
    person: str = ""
    usage: Mapping[str, int] | None = None
    cost_usd: float | None = None
    error: str = ""


class Rated(EventData, kind="rated"):
    """A person rated a turn's answer. A `rating` of "" withdraws the rating."""

    rating: str


class ToolStarted(EventData, kind="tool_started"):
    """A tool call started. If no `ToolEnded` follows, nobody knows whether the call had an effect. Only a call that runs a
    subagent `task` can continue, because the task has its own event log.
    """

    call: str
    name: str
    boot: str
    task: str = ""


class ToolEnded(EventData, kind="tool_ended", words="result"):
    """A tool call ended. `result` is its `tool_result` block with metadata."""

    call: str
    result: Json


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The stored form of an `OutgoingFile`. Its bytes are in `.ship/outgoing`, in a file named after their SHA-256."""

    name: str
    mime_type: str
    size: int
    sha256: str
    path: str = ""


class Queued(EventData, kind="queued", words="text"):
    """A message was queued in the outbox. `call` is the tool call that sent the message. `part_of` is the first row of a
    message in several parts. `ends` is True for the turn's last message. `replaces` is the platform id of the live message
    that this message replaces. `repeat_of` is the row that this row repeats. The `buttons` are shown until the `question`
    is decided; then `closes_as` replaces the text. `zone` is the time zone of times in the text. If the row sends a `file`,
    `text` is the passage of the answer that the file replaces.
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


class Deferred(EventData, kind="deferred"):
    """Sending a message was postponed until the time `until` (epoch seconds)."""

    row: str
    until: float


class Sending(EventData, kind="sending"):
    """A send began. If no event ends the send, nobody knows whether the message arrived. If the send edits an existing
    message, `replaces` is that message's platform id.
    """

    row: str
    boot: str
    replaces: str | None = None


class Returned(EventData, kind="returned"):
    """A send failed and the message certainly did not arrive. The send may be retried."""

    row: str
    reason: str = ""


class Uncertain(EventData, kind="uncertain"):
    """The platform did not answer a send. The platform must be asked whether the message arrived."""

    row: str


class Shown(EventData, kind="shown"):
    """A live message is visible in the chat. The turn may still edit it."""

    row: str
    message_id: str


class RowEnded(EventData, kind="row_ended"):
    """A message was delivered in its final form (`sent`), was certainly not delivered (`failed`), or nobody can tell
    (`unknown`). `missing` names a file that this chat cannot receive. Another message tells people about that file.
    """

    row: str
    state: RowEndState
    message_id: str | None = None
    reason: str = ""
    missing: str = ""


class Cut(EventData, kind="cut", words="head"):
    """Messages left the model's context: all messages, or the messages with the event numbers in `dropped`. `head` is
    the message that replaces everything dropped so far.
    """

    dropped: tuple[int, ...] | Literal["all"]
    head: Message | None
    reason: str


class SessionMoved(EventData, kind="session_moved", words="head"):
    """The chat switched to the conversation `session`, or to a fork of the current one that ends with the turn `forked_at`.
    `turns` are now in the model's context, `masked` are the placeholders for tool results in these turns. `head` replaces
    earlier messages. The turns themselves stay in the log.
    """

    session: str
    turns: tuple[str, ...]
    head: Message | None = None
    masked: Mapping[str, str] = field(default_factory=dict)
    forked_at: str = ""


class Masked(EventData, kind="masked"):
    """Placeholders replace tool results in all later requests. `results` maps the results' call ids to placeholders."""

    results: Mapping[str, str]
    reason: str


class Injected(EventData, kind="injected", words="messages"):
    """Older messages were placed before the turn's own messages until the turn ends. If `kept` is not None, the event adds
    nothing and drops all but the newest `kept` older messages.
    """

    messages: tuple[Message, ...] = ()
    times: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    kept: int | None = None


class Framed(EventData, kind="framed"):
    """A turn set the frame: the system prompt, model, effort and thinking of all later requests. `prefix` is a digest of
    the system prompt and tools. The event is appended again when all turns in the context are newer than the event.
    """

    frozen: Frozen
    model: str
    manner: str
    prefix: str


class Remembered(EventData, kind="remembered", words="markdown"):
    """The session memory was written. The memory covers the messages up to event number `covers`; None if unknown. `origin` lists
    the sources of the memory's text. The event is appended again when all turns in the context are newer than the event.
    """

    markdown: str
    covers: int | None
    origin: Json | list[str]


class Removed(EventData, kind="removed"):
    """Content was erased for good: the messages of `requests`, the answers of `turns`, quotes of `messages`, and the
    summary if `head` is True. `message` and `role` identify the removed message, `related` lists the turns that the removal
    concerns. `by` is the request that asked for the removal.
    """

    requests: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    head: bool = False
    message: str = ""
    role: Role = "user"
    related: tuple[str, ...] = ()
    by: str = ""


class Expired(EventData, kind="expired"):
    """The events before number `before` were deleted, because they are older than time `at` (epoch seconds)."""

    before: int
    at: float


class Unreadable(EventData, kind="unreadable", words="raw"):
    """A channel received something from its platform that could not be parsed."""

    channel: str
    key: str
    raw: str
    reason: str


class Damaged(EventData, kind="damaged"):
    """Replaces a stored event that cannot be parsed. It changes no state."""

    was: str


def keys_of(data: EventData) -> tuple[str, ...]:
    """Return the platform's keys for an event. The keys show whether the platform has delivered the event before."""
    return data.inbound.keys if isinstance(data, Received | Edited | Deleted | Stop) else ()


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    # Adapters are created on demand, since creating all of them takes a tenth of a second.
    return TypeAdapter(KINDS[kind])


def encode(data: EventData) -> str:
    """Return the data as JSON. Lone surrogates, which databases reject, become U+FFFD."""
    adapter = _adapter(data.kind)
    try:
        raw: bytes = adapter.dump_json(data, exclude_defaults=True)
    except ValueError:
        value = adapter.dump_python(data, mode="json", exclude_defaults=True)
        return text.clean(json.dumps(value, ensure_ascii=False))
    return raw.decode()


def decode(kind: str, raw: str) -> EventData:
    """Return the data of a stored event; `Damaged` if it cannot be parsed, so that the chat stays usable."""
    try:
        data: EventData = _adapter(kind).validate_json(raw)
    except (KeyError, ValidationError):
        return Damaged(kind)
    return data
