"""Builds the transcript of a chat: one line for each API message and each change of the model's context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core import events
from bot.core.chat import Chat
from bot.core.events import Event

VERSION = 4


def lines(key: ChatKey, log: Iterable[Event]) -> Iterator[Json]:
    """Yield the transcript lines of a chat. `log` must contain all events of the chat."""
    chat, parent, session = Chat(key), None, ""
    context = chat.context
    context.left = {}
    named = dict[int, str]()
    for event in log:
        chat.apply(event)
        named[event.seq] = event.id
        match event.data:
            case events.SessionMoved(moved):
                session = moved
            case events.Cut(reason="new"):
                session = event.id
            case _:
                session = session or event.id
        turn = context.running if context.running is not None else next(reversed(context.turns), None)
        added = turn.entries[-1:] if turn is not None and turn.id == event.turn else ()
        said, facts = _facts(event, named)
        own = {} if said else facts
        found: list[tuple[str, Json | None, Json]] = [
            (one.message["role"], one.message, own) for one in added if one.seq == event.seq
        ]
        if said:
            found.append((said, None, facts))
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


def _facts(event: Event, named: dict[int, str]) -> tuple[str, Json]:  # noqa: C901, PLR0911 - one `match` of all event types
    """Return the type and the data of an event's line. The type is "" if the event has no line of its own."""
    match data := event.data:
        case events.Told():
            return "", {"sources": list(data.sources)}
        case events.Answered():
            facts = {"stopReason": data.stop_reason, "model": data.model, "cut": list(data.cut)}
            return "", facts | {"usage": dict(data.usage), "costUsd": data.cost_usd}
        case events.TurnStarted():
            return "turn_start", {}
        case events.TurnEnded():
            return "turn_end", {"status": data.end, "reason": data.reason}
        case events.Injected():
            messages, times = list(data.messages), list(data.times)
            return "injection", {"messages": messages, "ts": times, "kept": data.kept}
        case events.Masked():
            return "mask", {"reason": data.reason, "results": dict(data.results)}
        case events.Cut():
            dropped = "all" if data.dropped == "all" else [named.get(seq, "") for seq in data.dropped]
            return "boundary", {"reason": data.reason, "dropped": dropped, "head": data.head}
        case events.SessionMoved():
            why = "fork" if data.forked_at else "resume"
            return "boundary", {"reason": why, "turns": list(data.turns), "head": data.head}
        case events.Expired():
            return "boundary", {"reason": "retention"}
        case events.Removed():
            return "boundary", {"reason": "removal", "related": list(data.related)}
        case _:
            return "", {}
