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
    """A turn of a chat. `about` is the id of the message of this turn that the person named; None if the person named no message."""

    chat: ChatKey
    id: str
    about: str | None = None


@dataclass(eq=False)
class TurnLookup:
    """Searches the event log for turns that a person may see: all turns of the chat in which the person asks, and the
    person's own turns in that chat's threads. Methods raise `errors.StorageError`.
    """

    chats: Chats
    event_log: EventLog

    async def found(self, inbound: Inbound, asked: str | None) -> TurnRef | None:
        """Return the turn to which `asked` refers; None if there is no such turn. `asked` is the id of a turn, request,
        sent message or received message; these are tried in this order. If `asked` is None, return the latest turn.
        """
        if asked is None:
            return await self._latest(inbound)
        turns, sent, said = list[TurnRef](), list[TurnRef](), list[TurnRef]()
        for one in await self.event_log.naming(inbound.chat_key.chat, {asked}):
            match one.data:
                case _ if one.turn is not None and _is_sent(one, asked):
                    sent.insert(0, TurnRef(one.chat, one.turn))
                case events.TurnStarted() | events.Joined() if _has(one, asked):
                    turns.append(TurnRef(one.chat, one.turn or "", asked))
                case events.Received(inbound=words) | events.Edited(inbound=words):
                    if asked in {words.request_id, words.message_id}:
                        said.append(TurnRef(one.chat, words.request_id))
        for ref in (*turns, *sent, *said):
            if (turn := await self._shown(inbound, ref)) is not None:
                return turn
        return None

    async def of_message(self, chat: ChatKey, message: str) -> str | None:
        """Return the id of the turn that sent this message to a chat; None if unknown."""
        named = reversed(await self.event_log.naming(chat, {message}))
        return next((one.turn for one in named if one.chat == chat and _is_sent(one, message)), None)

    async def _shown(self, reader: Inbound, found: TurnRef) -> TurnRef | None:
        named = await self.event_log.naming(found.chat, {found.id})
        turn = next((one.turn for one in named if _has(one, found.id) and one.turn), found.id)
        own = found.chat == reader.chat_key or any(
            isinstance(one.data, events.Received)
            and one.data.inbound.person == reader.person
            and (reader.chat_key.contains(one.chat) or one.data.inbound.target == reader.target)
            for one in named
        )
        return TurnRef(found.chat, turn, found.about or found.id) if own else None

    async def _latest(self, inbound: Inbound) -> TurnRef | None:
        """Return the chat's latest turn; if there is none, this person's latest turn in the chat's threads."""
        chat = await self.chats.get(inbound.chat_key)
        for one in reversed(await self.event_log.read(chat.key, max(0, chat.seq - NEWEST))):
            match one.data:
                case events.Queued(form="reply") if one.turn is not None:
                    return TurnRef(chat.key, one.turn)
                case events.TurnEnded(end) if end != "handled" and one.turn is not None:
                    return TurnRef(chat.key, one.turn)
        for one in reversed(await self.event_log.naming(chat.key.chat, {inbound.user_id})):
            match one.data:
                case events.Received(said) if said.command is None and said.kind == "message":
                    ref = TurnRef(one.chat, said.request_id)
                    if said.person == inbound.person and (turn := await self._shown(inbound, ref)):
                        return turn
        return None


def _has(event: Event, request: str) -> bool:
    """Return True if an event started the turn with this id, or added the request with this id to a turn."""
    data = event.data
    return isinstance(data, events.TurnStarted | events.Joined) and request in (event.turn, *data.members)


def _is_sent(event: Event, message: str) -> bool:
    return isinstance(event.data, events.RowEnded | events.Shown) and event.data.message_id == message
