"""Events of a transcript: what happened in a chat, one event a line, and every change of what the model is shown of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.alias_generators import to_camel

from bot.contracts.archive import ArchiveKey
from bot.contracts.base import Json, Message, Role
from bot.contracts.identity import ChatKey
from bot.contracts.journal import FinalTurnState

VERSION: Final = 3
"""The version of a line. One of another version cannot be read."""
LineType = Literal["turn_start", "user", "assistant", "injection", "turn_end", "boundary", "mask", "meta"]


class Unchanged(Enum):
    """Says that a boundary leaves the summary as it is, where None would take it away."""

    UNCHANGED = "same"


UNCHANGED = Unchanged.UNCHANGED


def key(name: str) -> str:
    """Return the key of a field in a line's data."""
    return to_camel(name.rstrip("_"))


def _readable(otherwise: object) -> WrapValidator:
    """A field that cannot be read counts as absent, and costs nothing but itself."""

    def read(value: Any, validated: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validated(value)
        except ValidationError:
            return otherwise

    return WrapValidator(read)


_Readable = _readable(None)
_Ids = Annotated[tuple[str, ...], _readable(())]


Maker = Literal["memory", "summary", "provider"]
"""The maker of a compaction: the memory stands for what went, or a summary of ours or of the provider."""


class _Data:
    """Base of what stands in the data of a line."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(alias_generator=key, extra="ignore")


@dataclass(frozen=True, slots=True)
class PrefixDigest(_Data):
    """The part of a request before its messages: the model and how it answers, and a digest of system prompt and tools.

    `surroundings` stand in that prompt: a runtime that is loaded again keeps them, so that it stays the same.
    """

    model: str
    digest: str
    surroundings: dict[str, str] | None = None
    manner: str | None = None
    """Effort and thinking, if they were sent: a change costs the cache of the messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingFacts(_Data):
    """Facts of a chat that outlive every boundary; None where a line does not tell them."""

    totals: Annotated[Json | None, _Readable] = None
    frame: Annotated[PrefixDigest | None, _Readable] = None
    chosen_model: Annotated[str | None, BeforeValidator(lambda model: model or "")] = None
    """The model that was chosen for the chat; "" if that of ship.json was chosen again."""
    chosen_effort: Annotated[str | None, BeforeValidator(lambda effort: effort or "")] = None
    """The same of the effort."""
    answered_at: int | None = None
    """Time of the model's last answer (ms)."""


def newer(before: LastingFacts, event: LastingFacts) -> LastingFacts:
    """Return the facts after an event: what it does not tell holds as before."""
    return LastingFacts(
        totals=event.totals if event.totals is not None else before.totals,
        frame=event.frame or before.frame,
        chosen_model=event.chosen_model if event.chosen_model is not None else before.chosen_model,
        chosen_effort=event.chosen_effort if event.chosen_effort is not None else before.chosen_effort,
        answered_at=event.answered_at if event.answered_at is not None else before.answered_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurn(_Data):
    """A turn that a boundary leaves, with the uuids of its messages."""

    request_id: str
    sources: tuple[str, ...]
    uuids: tuple[str, ...]
    began: int | None = None
    """The time at which it began (ms); None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedView(LastingFacts):
    """The view that a boundary leaves (`bot.context.checkpoint`), so that no reader has to look before it."""

    turns: tuple[KeptTurn, ...]
    masked: Mapping[str, str]
    digest: str
    head: Message | None = None
    blank: tuple[str, ...] = ()
    """Messages that were redacted by then, by uuid."""
    unquoted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The messages that quote others without their words, by uuid, each with the ids of those others."""
    since: str | None = None
    """The first line of the turn that was running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(LastingFacts):
    """A turn begins."""

    type: ClassVar[LineType] = "turn_start"
    from_: str = ""
    """ "archive" for what was taken over from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent(_Data):
    """A message of the model's API, with facts about it. `message` is kept as it is."""

    role: Role
    message: Message
    sources: tuple[str, ...] = ()
    """The requestIds of inbound that joined the turn with it."""
    adopted: Annotated[ArchiveKey | None, _Readable] = None
    """The line of the archive that it was taken from."""
    unquoted: _Ids = ()
    """Ids of messages that it quotes without their words: these were removed before."""
    written: tuple[str, ...] = ()
    """Ids in the outbox of what the turn has sent since its last message."""
    instead: str | None = None
    """The uuid of the turn's last message, which this one replaces: an answer that went on is one message."""
    continued: int = 0
    """The number of times that an answer was continued so far."""
    stop_reason: str | None = None
    cut: tuple[str, ...] = ()
    """Ids of tool calls that the length limit cut."""
    usage: Json | None = None
    cost_usd: float | None = None

    @property
    def type(self) -> LineType:
        return self.role


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection(_Data):
    """Older `messages` are shown before the running turn, with their times and keys; with `kept`, only so many of the newest
    stay.
    """

    type: ClassVar[LineType] = "injection"
    reason: str = ""
    before: str | None = None
    messages: tuple[Message, ...] = ()
    ts: tuple[int, ...] = ()
    keys: tuple[ArchiveKey, ...] = ()
    kept: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(LastingFacts):
    """A turn ends."""

    type: ClassVar[LineType] = "turn_end"
    status: FinalTurnState = field(default_factory=lambda: "done")  # always written
    notice: str | None = None
    """The words that the person is told of it."""
    owed: str = ""
    """Words of a stopped turn that nobody has seen yet."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary(LastingFacts):
    """A part of the history goes, or changes; all thinking in it goes."""

    type: ClassVar[LineType] = "boundary"
    reason: str = ""
    dropped: tuple[str, ...] | Literal["all"] = field(default_factory=tuple)  # always written
    """The messages that go, by uuid."""
    head: Message | Unchanged | None = UNCHANGED
    """The message that stands for what went, from now on."""
    again: bool = False
    """True if `head` is the summary before in other words."""
    blank: tuple[str, ...] = ()
    """Messages that stay without what was said in them."""
    unquoted: _Ids = ()
    """Ids of messages that others quote without their words from now on."""
    restored: bool = False
    """True if the view is what `kept` names, whatever it was: something came back, or lines before were never read."""
    how: Annotated[Maker | None, _Readable] = None
    """The maker of a compaction."""
    kept: Annotated[RetainedView | None, _Readable] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(LastingFacts):
    """Tool results are shown in other words from now on, by id of the call."""

    type: ClassVar[LineType] = "mask"
    reason: str = ""
    results: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta(LastingFacts):
    """Facts that change nothing in the view: a choice, where a session comes from."""

    type: ClassVar[LineType] = "meta"
    reason: str = ""
    from_: Json | None = None


Event = TurnStart | MessageEvent | Injection | TurnEnd | Boundary | Mask | Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLine:
    """An event with its place in the transcript. `session_id` is given by `append` where it is empty."""

    uuid: str
    ts: int
    event: Event
    chat_key: ChatKey | None = None
    """None of what another making wrote, or another grammar of keys."""
    request_id: str | None = None
    parent_uuid: str | None = None
    session_id: str = ""
    v: int = VERSION

    @property
    def type(self) -> LineType:
        return self.event.type

    @property
    def message(self) -> Message | None:
        """The message of a line that is one."""
        return self.event.message if isinstance(self.event, MessageEvent) else None


def messages(lines: Iterable[TranscriptLine]) -> dict[str, MessageEvent]:
    """Return the messages of these lines, by uuid."""
    return {line.uuid: line.event for line in lines if isinstance(line.event, MessageEvent)}
