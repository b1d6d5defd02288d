"""The backlog: what waits in memory and what in the journal, and what is being written down or carried out beside the queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.core.message_versions import stops

BURST = 16
"""Messages being written down side by side: more come in than are taken in one after another."""
REST = 0.05
"""Seconds between the beginnings of two turns while more comes in than is taken in at once."""


@dataclass(slots=True)
class InFlight:
    """Inbound that do not wait in a chat. `first` is the first requestId of this process; "" before there is one. `writing` are the requestIds of what is
    being written down, `at_once` those of what is carried out beside the queues.
    """

    first: str = ""
    writing: set[str] = field(default_factory=set)
    at_once: set[str] = field(default_factory=set)

    def begin(self, request_id: str) -> None:
        """An inbound has its id."""
        self.first = self.first or request_id

    @property
    def burst(self) -> bool:
        """True while much comes in."""
        return len(self.writing) >= BURST

    async def rest(self) -> None:
        """Return once the next turn may begin: after one pass of the event loop, after 50 ms while much comes in. A turn costs many
        times what taking in a message costs: if all that can begin began at once, a message that comes then would wait behind
        every step of every one of them, and its platform would give up waiting.
        """
        await asyncio.sleep(0)
        if self.burst:
            await asyncio.sleep(REST)

    def request_ids(self) -> Iterator[str]:
        """The requestIds of all of them."""
        yield from self.writing
        yield from self.at_once


LIMIT = 10_000
"""The number of inbound that wait in memory, over all chats."""
SHARES = 10
"""One person may fill this part of them, so that there is room for what others write."""

Behind = dict[UserRef, set[ChatKey]]


class Backlog:
    """Decides what waits in memory and what in the journal, and when that is to be read back. It reads nothing itself.

    A person's messages in a chat keep their order: once one of them waits in the journal alone, so do those after it.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.settling = asyncio.Lock()
        """Whoever brings inbound from the journal to the chats holds it."""
        self.wanted = asyncio.Event()
        """There is room for what waits in the journal: it is to be read."""
        self.total = 0
        """The number of inbound that wait in memory."""
        self._limit = limit
        self._share = max(1, limit // SHARES)
        self._waiting: Counter[UserRef] = Counter()
        self._opened: set[str] = set()
        self._opening: set[str] = set()
        self._behind: Behind = {}
        self._missed: Behind = {}
        self._stops: list[Inbound] = []
        self._reading = False
        self._beyond = False
        self._coming = 0
        self._mark = 0

    # ------------------------------------------------------------ what waits in memory

    def entered(self, who: UserRef, count: int) -> None:
        """So many more inbound of a person wait in memory."""
        self.total += count
        self._waiting[who] += count

    def left(self, who: UserRef, count: int) -> None:
        """So many inbound of a person wait in memory no more."""
        self.total -= count
        self._waiting[who] -= count
        if not self._waiting[who]:
            del self._waiting[who]
        self._room_freed(who)

    def waiting_of(self, who: UserRef) -> int:
        """The number of inbound of one person that wait in memory, in all chats."""
        return self._waiting[who]

    def opened(self, channel: str) -> bool:
        """True where a channel has connected, and what it has in the journal was read."""
        return channel in self._opened

    def admits(self, inbound: Inbound) -> bool:
        """True where an inbound may wait in memory; where it may not it is read back later."""
        who = inbound.person
        opened = inbound.channel in self._opened
        full = self.total + self._coming >= self._limit or self.waiting_of(who) >= self._share
        if opened and not full and not self._beyond and inbound.chat_key not in self._behind.get(who, ()):
            return True
        if opened or inbound.channel in self._opening:
            for behind in (self._behind, self._missed):
                behind.setdefault(who, set()).add(inbound.chat_key)
            self._room_freed(who)
        return False

    # ------------------------------------------------------------ stops

    def stop(self, stop: Inbound) -> int:
        """Stop what a person has in the journal alone; how many chats that may be."""
        behind = self._behind.get(stop.person, set())
        if not (self._reading or self._beyond or behind):
            return 0
        self._stops.append(stop)
        return int(stop.chat_key in behind or self._beyond)

    def stopped_by(self, inbound: Inbound) -> Inbound | None:
        """The stop that came after an inbound and has ended it."""
        after = (stop for stop in self._stops if stop.request_id > inbound.request_id)
        return next((stop for stop in after if stops(stop, inbound)), None)

    # ------------------------------------------------------------ reading

    @property
    def reading(self) -> bool:
        """True where the journal is being read, or about to be."""
        return self._reading

    @contextmanager
    def opening(self, channel: str) -> Iterator[None]:
        """Inbound of a channel that come in during the block stand behind those that are read."""
        self._opening.add(channel)
        try:
            yield
        finally:
            self._opening.discard(channel)
        for who in list(self._behind):
            self._room_freed(who)

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """The journal is read in the block."""
        self._reading = True
        try:
            yield
        finally:
            self._reading = False

    def begin(self) -> int:
        """Begin one reading; how many more may wait in memory."""
        self._missed = {}
        return max(0, self._limit - self.total)

    def reads(self, channel: str, opening: str | None) -> bool:
        """True where a reading, which may open a channel, takes what there is of this one."""
        return channel in self._opened or channel == opening

    def choose(self, rows: Sequence[Inbound], behind: Behind, room: int) -> list[Inbound]:
        """Choose those that come into memory, people in turn, and every stop; `behind` hears whose do not."""
        chosen, rest = self._fair([row for row in rows if not row.is_stop], room)
        for who, chats in rest.items():
            behind.setdefault(who, set()).update(chats)
        self._coming = len(chosen)
        waiting = {row.request_id for row in chosen}
        return [row for row in rows if row.is_stop or row.request_id in waiting]

    def arrived(self) -> None:
        """The chosen inbound wait in memory now."""
        self._coming = 0

    def end(self, behind: Behind, *, whole: bool, opening: str | None) -> None:
        """Remember who has something in the journal alone, after a reading that saw all of it or only its beginning."""
        if opening is not None:
            self._opened.add(opening)
        self._beyond = not whole and (opening is not None or self._beyond)
        for seen in (self._missed, {} if whole else self._behind):
            for who, chats in seen.items():
                behind.setdefault(who, set()).update(chats)
        self._behind = behind
        self._mark = self.total
        self._stops = [stop for stop in self._stops if self._beyond or stop.person in behind]

    @property
    def missed(self) -> bool:
        """True where something came during the reading that has to be read too."""
        return bool(self._missed)

    def wants(self) -> bool:
        """True where there is room worth reading for, and something to be read."""
        return any(self._due(who) for who in self._behind) or (self._beyond and 2 * self.total <= self._limit)

    def enough(self, count: Mapping[UserRef, int], room: int, *, opening: bool) -> bool:
        """True where nothing more needs to be read: there is no room for it, or nobody who has something there may have
        more.
        """
        if sum(count.values()) >= room:
            return True
        if opening or self._beyond:
            return False
        people: Iterable[UserRef] = {**self._behind, **self._missed}
        return all(count.get(who, 0) >= self.open_share(who) for who in people)

    def open_share(self, who: UserRef) -> int:
        """The number of further inbound of a person that may wait in memory."""
        return max(0, self._share - self.waiting_of(who))

    def _room_freed(self, who: UserRef) -> None:
        """Something less of this person waits in memory."""
        if self._reading or not (self._behind or self._beyond):
            return
        if self._due(who) or 2 * self.total <= self._mark:
            self._reading = True
            self.wanted.set()

    def _due(self, who: UserRef) -> bool:
        """True where there is room worth reading for, and this person has something to be read."""
        room = self._limit - self.total
        return who in self._behind and 2 * room >= self._share and 2 * self.waiting_of(who) <= self._share

    def _fair(self, rows: Sequence[Inbound], room: int) -> tuple[list[Inbound], Behind]:
        """Choose those that fit into memory, people in turn; also returns whose do not."""
        queues: dict[UserRef, list[Inbound]] = {}
        for row in rows:
            queues.setdefault(row.person, []).append(row)
        shares = {who: self.open_share(who) for who in queues}
        longest = max((min(len(queue), shares[who]) for who, queue in queues.items()), default=0)
        turns = [
            queue[turn]
            for turn in range(longest)
            for who, queue in queues.items()
            if turn < min(len(queue), shares[who])
        ]
        chosen = {row.request_id for row in turns[:room]}
        behind: Behind = {}
        for row in rows:
            if row.request_id not in chosen:
                behind.setdefault(row.person, set()).add(row.chat_key)
        return [row for row in rows if row.request_id in chosen], behind
