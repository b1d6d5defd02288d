"""Transcript of a chat, folded from its events: every API message and every change of the model's context,
one line each, with the parent line. A boundary line has no parent, since the model no longer sees what
precedes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core import events
from bot.core.chat import Chat
from bot.core.context import ContextEntry
from bot.core.events import Event

VERSION = 4


def lines(key: ChatKey, log: Iterable[Event]) -> Iterator[Json]:
    """Yield the transcript lines of a chat, given all of its events."""
    chat, parent, session = Chat(key), None, ""
    chat.context.left = {}
    named = dict[int, str]()
    for event in log:
        chat.apply(event)
        session = _session(event, session)
        named[event.seq] = event.id
        found = [
            (entry.message["role"], entry.message, _facts(event)) for entry in _entries(chat, event)
        ] + _told(event, named)
        for number, (kind, message, data) in enumerate(found):
            name = event.id if not number else f"{event.id}-{number}"
            line: dict[str, Any] = {
                "v": VERSION,
                "uuid": name,
                "parentUuid": None if kind == "boundary" else parent,
                "type": kind,
                "ts": int(event.at * 1000),
                "chatKey": str(key),
                "sessionId": session,
                "requestId": event.turn,
                "message": message,
                "data": {field: value for field, value in data.items() if value not in (None, "", ())},
            }
            yield {field: value for field, value in line.items() if value or field == "parentUuid"}
            parent = name


def _session(event: Event, before: str) -> str:
    match event.data:
        case events.SessionMoved(session):
            return session
        case events.Cut(reason="new"):
            return event.id
        case _:
            return before or event.id


def _entries(chat: Chat, event: Event) -> list[ContextEntry]:
    """Return the messages that an event added to the model's context."""
    context = chat.context
    turn = context.running if context.running is not None else next(reversed(context.turns), None)
    made = isinstance(event.data, events.Told | events.Answered | events.ToolEnded | events.TurnEnded)
    last = turn.entries[-1:] if made and turn is not None and turn.id == event.turn else ()
    return [entry for entry in last if entry.seq == event.seq]


def _facts(event: Event) -> Json:
    match data := event.data:
        case events.Told():
            return {"sources": list(data.sources)}
        case events.Answered():
            facts = {"stopReason": data.stop_reason, "model": data.model, "cut": list(data.cut)}
            return facts | {"usage": dict(data.usage), "costUsd": data.cost_usd}
        case _:
            return {}


def _told(event: Event, named: dict[int, str]) -> list[tuple[str, Json | None, Json]]:
    """Return the transcript line of an event that is not a message; [] for other events."""
    kind = "boundary"
    facts: Json = {}
    match data := event.data:
        case events.TurnStarted():
            kind = "turn_start"
        case events.TurnEnded():
            kind, facts = "turn_end", {"status": data.end, "reason": data.reason}
        case events.Injected():
            kind = "injection"
            facts = {"messages": list(data.messages), "ts": list(data.times), "kept": data.kept}
        case events.Masked():
            kind, facts = "mask", {"reason": data.reason, "results": dict(data.results)}
        case events.Cut():
            dropped = "all" if data.dropped == "all" else [named.get(seq, "") for seq in data.dropped]
            facts = {"reason": data.reason, "dropped": dropped, "head": data.head}
        case events.SessionMoved():
            why = "fork" if data.forked_at else "resume"
            facts = {"reason": why, "turns": list(data.turns), "head": data.head}
        case events.Expired():
            facts = {"reason": "retention"}
        case events.Removed():
            facts = {"reason": "removal", "related": list(data.related)}
        case _:
            return []
    return [(kind, None, facts)]
