"""Finds the turn that a person means: by the turn's id, by a message of the person or the bot, or the latest turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import events
from bot.core.chats import Chats
from bot.core.event_log import EventLog
from bot.core.events import Event

NEWEST = 500
"""Events searched first for the latest answer; if none is found, all events are searched."""


@dataclass(frozen=True, slots=True)
class TurnRef:
    """Reference to a turn of a chat. `about` is the request that caused the turn, if not the turn's own."""

    chat: ChatKey
    id: str
    about: str | None = None


class TurnLookup:
    """Searches the event log for turns. A chat sees its own turns. A person sees their own turns in threads
    of the chat as well, but never turns of another chat.
    """

    def __init__(self, chats: Chats, event_log: EventLog) -> None:
        self._chats = chats
        self._log = event_log

    async def found(self, inbound: Inbound, asked: str | None) -> TurnRef | None:
        """Return the turn with this id, or the turn of the message with this id; without an id, the latest
        turn that answered. Raises `errors.StorageError`.
        """
        if asked is not None:
            place = inbound.chat_key.chat
            named = await self._log.naming(place, {asked})
            for one in self._called(named, asked):
                if (turn := await self._shown(inbound, one)) is not None:
                    return turn
            return None
        return await self._newest(inbound.chat_key) or await self._near(inbound)

    async def of_message(self, chat: ChatKey, message: str) -> str | None:
        """Return the latest turn that sent this message to a chat, or sent it again. Raises `errors.StorageError`."""
        named = reversed(await self._log.naming(chat, {message}))
        return next((one.turn for one in named if one.chat == chat and _is_sent(one, message)), None)

    @staticmethod
    def _called(named: Iterable[Event], asked: str) -> list[TurnRef]:
        """Return the turns that the id may mean, ordered by the kind of id."""
        sent, turns, said = list[TurnRef](), list[TurnRef](), list[TurnRef]()
        for one in named:
            match one.data:
                case _ if one.turn is not None and _is_sent(one, asked):
                    sent.insert(0, TurnRef(one.chat, one.turn))
                case events.TurnStarted() | events.Joined() if one.turn is not None and (
                    asked in (one.turn, *one.data.members)
                ):
                    turns.append(TurnRef(one.chat, one.turn, asked))
                case events.Received(inbound) | events.Edited(inbound) if asked in {
                    inbound.request_id,
                    inbound.message_id,
                }:
                    said.append(TurnRef(one.chat, inbound.request_id))
        return [*turns, *sent, *said]

    async def _shown(self, reader: Inbound, found: TurnRef) -> TurnRef | None:
        """Return the turn if the reader may see it."""
        here = reader.chat_key
        named = await self._log.naming(found.chat, {found.id})
        start = next(
            (
                one
                for one in named
                if isinstance(one.data, events.TurnStarted | events.Joined)
                and found.id in (one.turn, *one.data.members)
            ),
            None,
        )
        turn = start.turn if start is not None and start.turn is not None else found.id
        if found.chat != here:
            own = any(
                isinstance(one.data, events.Received)
                and one.data.inbound.person == reader.person
                and (here.contains(one.chat) or one.data.inbound.target == reader.target)
                for one in named
            )
            if not own:
                return None
        return TurnRef(found.chat, turn, found.about or found.id)

    async def _newest(self, chat: ChatKey) -> TurnRef | None:
        newest = (await self._chats.get(chat)).seq
        for since in (max(0, newest - NEWEST), 0):
            for one in reversed(await self._log.read(chat, since)):
                match one.data:
                    case events.Queued(form="reply") if one.turn is not None:
                        return TurnRef(chat, one.turn)
                    case events.TurnEnded(end) if end != "handled" and one.turn is not None:
                        return TurnRef(chat, one.turn)
        return None

    async def _near(self, inbound: Inbound) -> TurnRef | None:
        """Return the latest turn that answered this person in a thread of the chat, or in the chat around
        the thread.
        """
        named = await self._log.naming(inbound.chat_key.chat, {inbound.user_id})
        for one in reversed(named):
            match one.data:
                case events.Received(said) if said.command is None and said.kind == "message":
                    ref = TurnRef(one.chat, said.request_id)
                    if said.person == inbound.person and (turn := await self._shown(inbound, ref)):
                        return turn
        return None


def _is_sent(event: Event, message: str) -> bool:
    """Return True if an event says that our message with this id was delivered."""
    return isinstance(event.data, events.RowEnded | events.Shown) and event.data.message_id == message
