"""Conversations with questions, in the small JSON form that docs/recall.md tells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

GAP_MS = 30_000
"""Between turns that have no time of their own."""


class FormError(ValueError):
    """A file is not of the form; the text says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One line that somebody said; `ts` in milliseconds."""

    id: str
    role: str
    speaker: str
    text: str
    ts: int


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked and the ids of the turns that answer it; none where nothing does."""

    text: str
    asked_at: int
    evidence: frozenset[str]
    kind: str
    phrasings: tuple[str, ...] = ()
    """Other ways to ask it, which a model may search with at once."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat: its sessions in order of time, and what is asked of it."""

    id: str
    sessions: tuple[tuple[Turn, ...], ...]
    questions: tuple[Question, ...]

    @property
    def turns(self) -> Iterable[Turn]:
        return chain.from_iterable(self.sessions)


def load(path: Path) -> list[Conversation]:
    """Every conversation of a file. Raises `FormError`, and `OSError` where the file cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormError(f"{path.name} is no JSON: {error}") from error
    return parse(value)


def parse(value: Any) -> list[Conversation]:
    """What the form says. Raises `FormError`."""
    found = [
        _conversation(one, f"conversations[{number}]")
        for number, one in enumerate(_list(value, "conversations", "the file"))
    ]
    if len({one.id for one in found}) != len(found):
        raise FormError("two conversations have the same id")
    return found


def dump(conversations: Iterable[Conversation]) -> dict[str, Any]:
    """The form of what `parse` returns."""
    return {
        "conversations": [
            {
                "id": one.id,
                "sessions": [
                    {
                        "start": _iso(turns[0].ts),
                        "turns": [
                            {"id": t.id, "role": t.role, "speaker": t.speaker, "text": t.text, "ts": t.ts}
                            for t in turns
                        ],
                    }
                    for turns in one.sessions
                ],
                "questions": [
                    {
                        "text": q.text,
                        "asked_at": _iso(q.asked_at),
                        "evidence": sorted(q.evidence),
                        "kind": q.kind,
                        "phrasings": list(q.phrasings),
                    }
                    for q in one.questions
                ],
            }
            for one in conversations
        ]
    }


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
    """Milliseconds as they are; ISO 8601, UTC where it names no zone."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise FormError(f"{where} is neither ISO 8601 nor milliseconds") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
