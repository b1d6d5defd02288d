"""An `EventLog` in memory, for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core.event_log import ChatStats, Committed, Entry, EventLog, Position
from bot.core.events import Event, FactSet, Received, TurnEnded, Used, keys_of


class MemoryLog(EventLog):
    """An `EventLog` in memory. A test can make the log refuse writes, and can read what a killed process
    would leave on disk.
    """

    _writing_session: Any = None
    _reading: Any = None
    _again: Any = None

    def __init__(self) -> None:
        self.on_disk: dict[ChatKey, dict[str, Event]] = defaultdict(dict)
        self.positions: dict[ChatKey, Position] = {}
        self.keys: set[str] = set()
        self.facts_set: dict[tuple[str, str], Json] = {}
        self.trouble = ""
        self.cursors: dict[str, int] = {}
        self._order: list[Event] = []
        self._heard: list[Committed] = []
        self._unsaved: list[Entry] = []

    def watch(self, committed: Committed) -> None:
        self._heard.append(committed)

    def append(self, entries: Sequence[Entry]) -> None:
        self._unsaved += entries

    def write(self) -> None:
        """Write the pending events."""
        newest = dict[ChatKey, int]()
        for entry in self._unsaved:
            event = entry.event
            if event.id not in self.on_disk[event.chat]:
                self.on_disk[event.chat][event.id] = event
                self._order.append(event)
            for blank, _ in entry.blanks:
                self.on_disk[blank.chat][blank.id] = blank
            self.positions[event.chat] = entry.position
            newest[event.chat] = event.seq
            self.keys.update(keys_of(event.data))
            if isinstance(fact := event.data, FactSet):
                self.facts_set.pop((fact.of, fact.key), None)
                if fact.value is not None:
                    self.facts_set[fact.of, fact.key] = fact.value
        self._unsaved = []
        for watcher in self._heard if newest else ():
            watcher(newest)

    @property
    def pending(self) -> int:
        return len(self._unsaved)

    async def committed(self, *, patient: bool = True) -> None:
        self.write()

    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]:
        found = list(self.on_disk[chat].values())
        found += [entry.event for entry in self._unsaved if pending and entry.event.chat == chat]
        return [one for one in found if one.seq >= since]

    async def of_kinds(self, chat: ChatKey, kinds: Collection[str], since: float) -> list[Event]:
        return [one for one in await self.read(chat) if one.kind in kinds and one.at >= since]

    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]:
        return [(at, one) for at, one in enumerate(self._order, 1) if at > n and self._has(one)][:limit]

    def _has(self, event: Event) -> bool:
        return event.id in self.on_disk[event.chat]

    async def chats(self) -> list[ChatKey]:
        return list(self.positions)

    async def cursor(self, export: str) -> int:
        return self.cursors.get(export, 0)

    async def move_cursor(self, export: str, n: int) -> None:
        self.cursors[export] = n

    async def position(self, chat: ChatKey) -> Position | None:
        pending = [entry.position for entry in self._unsaved if entry.event.chat == chat]
        return pending[-1] if pending else self.positions.get(chat)

    async def open_chats(self) -> list[ChatKey]:
        return [chat for chat, one in self.positions.items() if one.open is not None]

    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> dict[ChatKey, float]:
        self.write()
        said = [one for events in self.on_disk.values() for one in events.values() if one.kind == "received"]
        newest = {one.chat: one for one in sorted(said, key=lambda one: one.id) if one.at >= since}
        last = sorted(newest.values(), key=lambda one: one.id, reverse=True)
        return {one.chat: one.at for one in last if place.contains(one.chat)}

    async def first_words(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        self.write()
        said = [
            one.data.inbound
            for chat in chats
            for one in reversed(self.on_disk[chat].values())
            if isinstance(one.data, Received) and one.data.inbound.command is None and one.data.inbound.text
        ]
        return {one.chat_key: one.text for one in said}

    async def facts(self) -> dict[tuple[str, str], Json]:
        self.write()
        return dict(self.facts_set)

    async def newest(self) -> str:
        return max((name for events in self.on_disk.values() for name in events), default="")

    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]:
        self.write()
        found = (
            one for chat, some in self.on_disk.items() if place.chat.contains(chat) for one in some.values()
        )
        return [
            one for one in found if any(name == one.turn or f"'{name}'" in repr(one.data) for name in names)
        ]

    async def chat_of(self, request: str) -> ChatKey | None:
        return next(
            (one.chat for one in self._order if self._has(one) and request in {one.id, one.turn}), None
        )

    async def usage(self, chat: ChatKey) -> ChatStats:
        self.write()
        data = [one.data for one in self._order if one.chat == chat]
        used = [one for one in data if isinstance(one, Used)]
        billed = [one for one in used if one.usage is not None]
        counted = {
            field: sum((one.usage or {}).get(name, 0) for one in billed)
            for field, name in (
                ("input_tokens", "inputTokens"),
                ("output_tokens", "outputTokens"),
                ("cache_read_tokens", "cacheReadTokens"),
                ("cache_write_tokens", "cacheWriteTokens"),
            )
        }
        return ChatStats(
            sum(isinstance(one, TurnEnded) and one.end == "answered" for one in data),
            calls=sum(not one.error for one in used),
            unpriced=sum(one.cost_usd is None for one in billed),
            cost_usd=sum(one.cost_usd or 0.0 for one in billed),
            **counted,
        )

    async def known(self, keys: Collection[str]) -> bool:
        pending = (key for entry in self._unsaved for key in keys_of(entry.event.data))
        return not self.keys.union(pending).isdisjoint(keys)

    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]:
        self.write()
        found = sorted(self.on_disk[chat].values(), key=lambda one: one.seq)
        young = (one.seq for one in found if one.at >= at)
        return (found[0].seq, next(young, found[-1].seq + 1)) if found else (0, 0)

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        gone = [one for one in self.on_disk[chat].values() if one.seq < seq]
        for one in gone:
            del self.on_disk[chat][one.id]
            self.keys.difference_update(keys_of(one.data))

    async def close(self) -> None:
        self.write()
