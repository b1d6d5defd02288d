"""Finds the turn to which a person refers."""

from __future__ import annotations

from dataclasses import dataclass

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.core import events
from bot.core.chats import Chats
from bot.core.event_log import EventLog
from bot.core.events import Event

NEWEST = 500
"""Max number of a chat's newest events that are searched for its latest answer."""


@dataclass(frozen=True, slots=True)
class TurnRef:
    """A turn of a chat. `about` is the id of the message of this turn that the person named."""

    chat: ChatKey
    id: str
    about: str


async def find_turn(chats: Chats, log: EventLog, reader: Inbound, asked: str | None) -> TurnRef | None:
    """Return the turn to which `asked` refers; None if there is no such turn. `asked` is the id of a turn, request, sent
    message or received message; these are tried in this order. If `asked` is None, return the latest turn. Only turns that
    the reader may see are found: all turns of the reader's chat, and the reader's own turns in that chat's threads. Raises
    `errors.StorageError`.
    """
    found = await (_latest(chats, log, reader) if asked is None else _named(log, reader, asked))
    for place, name in found:
        named = await log.naming(place, {name})
        own = place == reader.chat_key or any(
            isinstance(one.data, events.Received)
            and one.data.inbound.person == reader.person
            and (reader.chat_key.contains(one.chat) or one.data.inbound.target == reader.target)
            for one in named
        )
        if own:
            turn = next((one.turn for one in named if _has(one, name) and one.turn), name)
            return TurnRef(place, turn, name)
    return None


async def _latest(chats: Chats, log: EventLog, reader: Inbound) -> list[tuple[ChatKey, str]]:
    chat = await chats.get(reader.chat_key)
    for one in reversed(await log.read(chat.key, max(0, chat.seq - NEWEST))):
        data, ended = one.data, isinstance(one.data, events.TurnEnded) and one.data.end != "handled"
        if one.turn is not None and (ended or (isinstance(data, events.Queued) and data.form == "reply")):
            return [(chat.key, one.turn)]
    named = reversed(await log.naming(chat.key.chat, {reader.user_id}))
    said = ((one.chat, one.data.inbound) for one in named if isinstance(one.data, events.Received))
    own = ((place, one) for place, one in said if one.person == reader.person and one.command is None)
    return [(place, one.request_id) for place, one in own if one.kind == "message"]


async def _named(log: EventLog, reader: Inbound, asked: str) -> list[tuple[ChatKey, str]]:
    turns, sent, said = list[tuple[ChatKey, str]](), list[tuple[ChatKey, str]](), list[tuple[ChatKey, str]]()
    for one in await log.naming(reader.chat_key.chat, {asked}):
        match one.data:
            case events.RowEnded() | events.Shown() if one.turn and one.data.message_id == asked:
                sent.insert(0, (one.chat, one.turn))
            case events.TurnStarted() | events.Joined() if _has(one, asked):
                turns.append((one.chat, asked))
            case events.Received(words) | events.Edited(words):
                if asked in {words.request_id, words.message_id}:
                    said.append((one.chat, words.request_id))
    return [*turns, *sent, *said]


def _has(event: Event, request: str) -> bool:
    """Return True if an event started the turn with this id, or added the request with this id to a turn."""
    data = event.data
    return isinstance(data, events.TurnStarted | events.Joined) and request in (event.turn, *data.members)
