"""Conversations with questions, in the small JSON format that docs/recall.md describes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

GAP_MS = 30_000
"""Interval in milliseconds between turns that have no time of their own."""


class FormError(ValueError):
    """A file does not follow the format. The text says where, and what was expected."""


def _time(value: Any) -> Any:
    """Return ISO 8601 text, which is UTC without a zone, as epoch milliseconds."""
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


Time = Annotated[int, BeforeValidator(_time)]
Text = Annotated[str, Field(min_length=1)]


class _Said(BaseModel):
    id: Text
    role: Literal["user", "assistant"]
    speaker: str = ""
    text: Text
    ts: Time | None = None


class _Session(BaseModel):
    start: Time
    turns: list[_Said]


class _Asked(BaseModel):
    text: Text
    asked_at: Time
    evidence: frozenset[str]
    kind: str = "question"
    phrasings: tuple[str, ...] = ()


class _Talk(BaseModel):
    id: Text
    sessions: list[_Session]
    questions: list[_Asked]


class _File(BaseModel):
    conversations: list[_Talk]


@dataclass(frozen=True, slots=True)
class Turn:
    """A line that somebody said. `ts` is in epoch milliseconds."""

    id: str
    role: str
    speaker: str
    text: str
    ts: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the ids of the turns that answer it; no ids if no turn answers it."""

    text: str
    asked_at: int
    evidence: frozenset[str]
    kind: str
    phrasings: tuple[str, ...] = ()
    """Other wordings of the question, which a model may search for at the same time."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat: its sessions in order of time, and the questions about it."""

    id: str
    sessions: tuple[tuple[Turn, ...], ...]
    questions: tuple[Question, ...]

    @property
    def turns(self) -> Iterable[Turn]:
        return chain.from_iterable(self.sessions)


def load(path: Path) -> list[Conversation]:
    """Return the conversations in a file. Raises `FormError`, and `OSError` if the file cannot be read."""
    return _found(_File.model_validate_json, path.read_bytes())


def parse(value: Any) -> list[Conversation]:
    """Return the conversations in parsed JSON. Raises `FormError`."""
    return _found(_File.model_validate, value)


def _found(read: Any, value: Any) -> list[Conversation]:
    try:
        file = read(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise FormError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return [_conversation(one) for one in file.conversations]


def _conversation(talk: _Talk) -> Conversation:
    sessions = [
        tuple(
            Turn(one.id, one.role, one.speaker or one.role, one.text, one.ts or session.start + at * GAP_MS)
            for at, one in enumerate(session.turns)
        )
        for session in talk.sessions
        if session.turns
    ]
    known = {turn.id for session in sessions for turn in session}
    questions = tuple(
        Question(one.text, one.asked_at, one.evidence, one.kind, one.phrasings) for one in talk.questions
    )
    if strange := frozenset[str]().union(*(one.evidence for one in questions)) - known:
        raise FormError(f"{talk.id}: no turn has the id {min(strange)!r}")
    return Conversation(talk.id, tuple(sorted(sessions, key=lambda one: one[0].ts)), questions)
