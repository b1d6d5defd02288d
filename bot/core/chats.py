"""Chats in memory. Each chat is loaded once, and every new event is appended through `Chats`. `find_turn` finds old turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar
from weakref import WeakValueDictionary

from bot.contracts.base import Json
from bot.contracts.environment import Clock, Ids
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.core.chat import Chat
from bot.core.event_log import Entry, EventLog
from bot.core.events import (
    Edited,
    Event,
    EventData,
    FactSet,
    Joined,
    Queued,
    Received,
    RowEnded,
    Shown,
    TurnEnded,
    TurnStarted,
    encode,
)

MOST_IDLE = 500
"""Max idle chats in memory. Loading a chat again takes about 10 ms."""
NEWEST = 500
"""Max number of a chat's newest events that are searched for its latest answer."""
BATCH = 500
"""Number of events processed before other tasks may run."""
TITLE = "title"
"""Kind of the `FactSet` events that store the names people gave to conversations. The key of an event is the chatKey."""
LONGEST_TITLE = 80
"""Max characters of a conversation's title."""
NO_CHAT = ChatKey("shipmate", "gateway")
"""Key of the gateway's own log, for events that belong to no chat."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fact:
    """An event to append to the log of `chat`."""

    chat: ChatKey
    data: EventData
    turn: str | None = None
    person: str | None = None
    id: str = ""
    """Id of the new event; "" to generate one."""
    blanks: Sequence[Event] = ()
    """Copies of earlier events without their text. The transaction also replaces the originals in the log by these copies."""


@dataclass(eq=False)
class Chats:
    """Loads chats and appends events. An appended event changes its chat's state at once and is then logged."""

    log: EventLog
    make: Callable[[ChatKey], Chat]
    _: KW_ONLY
    clock: Clock
    ids: Ids
    _chats: OrderedDict[ChatKey, Chat] = field(default_factory=OrderedDict)
    _alive: WeakValueDictionary[ChatKey, Chat] = field(default_factory=WeakValueDictionary)
    """All chats that any code still refers to, even if they are no longer in `_chats`. So no chat exists twice in memory."""
    _loading: dict[ChatKey, asyncio.Task[Chat]] = field(default_factory=dict)
    _watchers: list[Callable[[Chat], object]] = field(default_factory=list)
    _waiting: dict[ChatKey, list[asyncio.Future[None]]] = field(default_factory=dict)
    facts: defaultdict[str, dict[str, Json]] = field(default_factory=lambda: defaultdict(dict))
    """Lasting values outside the chats' states, such as a person's language: `facts[kind][key]`."""

    async def start(self) -> None:
        for kind, key, value in await self.log.facts():
            self.facts[kind][key] = value

    def __iter__(self) -> Iterator[Chat]:
        return iter(list(self._chats.values()))

    def watch(self, changed: Callable[[Chat], object]) -> None:
        self._watchers.append(changed)

    def loaded(self, key: ChatKey) -> Chat | None:
        return self._alive.get(key)

    async def get(self, key: ChatKey) -> Chat:
        """Return a chat. Load it from the log if it is not in memory. Raises `errors.StorageError`."""
        chat = self._alive.get(key)
        if chat is not None:
            self._chats[key] = chat
            self._chats.move_to_end(key)
            return chat
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.create_task(self._load(key))
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        return await asyncio.shield(task)

    async def _load(self, key: ChatKey) -> Chat:
        position = await self.log.position(key)
        chat = self.make(key)
        if position is not None:
            chat = await self.replayed(key, position.first)
            chat.context.left = None
        self._chats[key] = self._alive[key] = chat
        if len(self._chats) > MOST_IDLE:
            idle = [key for key, chat in self._chats.items() if chat.open_since is None]
            for one in idle[:-MOST_IDLE]:
                del self._chats[one]
        return chat

    async def replayed(
        self, key: ChatKey, since: int = 0, seen: Callable[[Event, Chat], object] = lambda *_: None
    ) -> Chat:
        """Rebuild a separate copy of a chat from its events, beginning with number `since`. In `context.left`, collect the
        turns that left the model's context. After each event, call `seen` with the event and the chat. Raises
        `errors.StorageError`.
        """
        chat = self.make(key)
        chat.context.left = {}
        for number, event in enumerate(await self.log.read(key, since), 1):
            chat.apply(event)
            seen(event, chat)
            if not number % BATCH:
                await asyncio.sleep(0)
        return chat

    def append(self, *facts: Fact) -> None:
        """Append events to the logs of loaded chats, in order and in one transaction. The log never refuses events."""
        entries = list[Entry]()
        now = self.clock.now()
        touched = dict[ChatKey, Chat]()
        for fact in facts:
            chat = touched[fact.chat] = self._chats[fact.chat] = self._alive[fact.chat]
            name = fact.id or self.ids.ulid()
            event = Event(name, fact.chat, now, fact.data, fact.turn, fact.person, chat.seq + 1)
            chat.apply(event)
            if isinstance(fact.data, FactSet):
                values = self.facts[fact.data.of]
                values.pop(fact.data.key, None)
                if fact.data.value is not None:
                    values[fact.data.key] = fact.data.value
            blanks = tuple((one, encode(one.data)) for one in fact.blanks)
            entries.append(Entry(event, chat.position, encode(fact.data), blanks))
        self.log.append(entries)
        for key, chat in touched.items():
            for changed in self._waiting.pop(key, ()):
                if not changed.done():
                    changed.set_result(None)
            for watcher in self._watchers:
                watcher(chat)

    async def until(self, key: ChatKey, done: Callable[[], T | None]) -> T:
        """Return the first result of `done` that is not None. Call `done` now and after each append to this chat."""
        while (found := done()) is None:
            changed = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, []).append(changed)
            await changed
        return found


# ------------------------------------------------------------ looking up turns


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
            isinstance(one.data, Received)
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
        data, ended = one.data, isinstance(one.data, TurnEnded) and one.data.end != "handled"
        if one.turn is not None and (ended or (isinstance(data, Queued) and data.form == "reply")):
            return [(chat.key, one.turn)]
    named = reversed(await log.naming(chat.key.chat, {reader.user_id}))
    said = ((one.chat, one.data.inbound) for one in named if isinstance(one.data, Received))
    own = ((place, one) for place, one in said if one.person == reader.person and one.command is None)
    return [(place, one.request_id) for place, one in own if one.kind == "message"]


async def _named(log: EventLog, reader: Inbound, asked: str) -> list[tuple[ChatKey, str]]:
    turns, sent, said = list[tuple[ChatKey, str]](), list[tuple[ChatKey, str]](), list[tuple[ChatKey, str]]()
    for one in await log.naming(reader.chat_key.chat, {asked}):
        match one.data:
            case RowEnded() | Shown() if one.turn and one.data.message_id == asked:
                sent.insert(0, (one.chat, one.turn))
            case TurnStarted() | Joined() if _has(one, asked):
                turns.append((one.chat, asked))
            case Received(words) | Edited(words):
                if asked in {words.request_id, words.message_id}:
                    said.append((one.chat, words.request_id))
    return [*turns, *sent, *said]


def _has(event: Event, request: str) -> bool:
    """Return True if an event started the turn with this id, or added the request with this id to a turn."""
    data = event.data
    return isinstance(data, TurnStarted | Joined) and request in (event.turn, *data.members)
