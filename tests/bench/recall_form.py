"""Conversations with questions, in the small JSON format that docs/recall.md describes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

GAP_MS = 30_000
"""Interval in milliseconds between turns that have no time of their own."""


class FormError(ValueError):
    """A file does not follow the format. The text says where, and what was expected."""


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
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormError(f"{path.name} is no JSON: {error}") from error
    return parse(value)


def parse(value: Any) -> list[Conversation]:
    """Return the conversations in parsed JSON. Raises `FormError`."""
    found = [
        _conversation(one, f"conversations[{number}]")
        for number, one in enumerate(_list(value, "conversations", "the file"))
    ]
    if len({one.id for one in found}) != len(found):
        raise FormError("two conversations have the same id")
    return found


def _conversation(value: Any, where: str) -> Conversation:
    sessions = tuple(
        _session(one, f"{where}.sessions[{number}]")
        for number, one in enumerate(_list(value, "sessions", where))
    )
    ids = [turn.id for session in sessions for turn in session]
    if len(set(ids)) != len(ids):
        raise FormError(f"{where}: two turns have the same id")
    known = frozenset(ids)
    questions = tuple(
        _question(one, known, f"{where}.questions[{number}]")
        for number, one in enumerate(_list(value, "questions", where))
    )
    ordered = sorted((session for session in sessions if session), key=lambda session: session[0].ts)
    return Conversation(_text(value, "id", where), tuple(ordered), questions)


def _session(value: Any, where: str) -> tuple[Turn, ...]:
    start = _time(_get(value, "start", where), f"{where}.start")
    return tuple(
        _turn(one, start + number * GAP_MS, f"{where}.turns[{number}]")
        for number, one in enumerate(_list(value, "turns", where))
    )


def _turn(value: Any, ts: int, where: str) -> Turn:
    role = _text(value, "role", where)
    if role not in {"user", "assistant"}:
        raise FormError(f"{where}.role is {role!r}, not user or assistant")
    said = value.get("ts")
    return Turn(
        _text(value, "id", where),
        role,
        str(value.get("speaker") or role),
        _text(value, "text", where),
        ts if said is None else _time(said, f"{where}.ts"),
    )


def _question(value: Any, known: frozenset[str], where: str) -> Question:
    evidence = frozenset(map(str, _list(value, "evidence", where)))
    if strange := evidence - known:
        raise FormError(f"{where}.evidence: no turn has the id {min(strange)!r}")
    asked = _time(_get(value, "asked_at", where), f"{where}.asked_at")
    phrasings = tuple(map(str, _list(value, "phrasings", where))) if "phrasings" in value else ()
    kind = str(value.get("kind") or "question")
    return Question(_text(value, "text", where), asked, evidence, kind, phrasings)


def _get(value: Any, key: str, where: str) -> Any:
    if not isinstance(value, Mapping) or key not in value:
        raise FormError(f"{where} has no {key}")
    return value[key]


def _list(value: Any, key: str, where: str) -> list[Any]:
    found = _get(value, key, where)
    if not isinstance(found, list):
        raise FormError(f"{where}.{key} is no list")
    return found


def _text(value: Any, key: str, where: str) -> str:
    found = _get(value, key, where)
    if not isinstance(found, str) or not found:
        raise FormError(f"{where}.{key} is no text")
    return found


def _time(value: Any, where: str) -> int:
    """Return a time in epoch milliseconds. A number is used as it is; ISO 8601 text without a zone is read as UTC."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise FormError(f"{where} is neither ISO 8601 nor milliseconds") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
