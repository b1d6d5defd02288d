"""The backlog: what waits in the journal alone, because its channel is not open yet or memory holds enough already."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.gateway.lanes import Lanes
from bot.gateway.relations import person, stops

LIMIT = 10_000
"""How many inbound wait in memory, over all lanes."""
SHARES = 10
"""One person may fill this part of them, so that there is room for what others write."""
PAGE = 500
"""Rows of the journal that are read at once: more would hold up everything else."""
RETRY_SECONDS = 5.0

Bring = Callable[[Sequence[Inbound], Callable[[Inbound], bool]], Awaitable[int]]
Behind = dict[UserRef, set[ChatKey]]


class Backlog:
    """Decides what waits in memory and what in the journal, and reads that back, oldest first, when there is room.

    A person's messages in a chat keep their order: once one of them waits in the journal alone, so do those after it.
    `bring` sees to what was read and puts it into the lanes, asking of each at the very end whether it was stopped.
    `known` are the requestIds of all that somebody sees to already.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        lanes: Lanes,
        bring: Bring,
        known: Callable[[], Iterable[str]],
        clock: Clock,
        log: Log,
        limit: int = LIMIT,
    ) -> None:
        self.settling = asyncio.Lock()
        self._journal = journal
        self._lanes = lanes
        self._bring = bring
        self._known = known
        self._clock = clock
        self._log = log
        self._limit = limit
        self._share = max(1, limit // SHARES)
        self._opened: set[str] = set()
        self._opening: set[str] = set()
        self._behind: Behind = {}
        self._missed: Behind = {}
        self._stops: list[Inbound] = []
        self._reading = False
        self._beyond = False
        self._coming = self._brought = 0
        self._mark = 0

    def opened(self, channel: str) -> bool:
        return channel in self._opened

    def admits(self, inbound: Inbound) -> bool:
        """Whether an inbound may wait in memory; where it may not it is read back later."""
        who = person(inbound)
        opened = inbound.channel in self._opened
        full = self._lanes.total + self._coming >= self._limit or self._lanes.waiting_of(who) >= self._share
        if opened and not full and not self._beyond and inbound.chat_key not in self._behind.get(who, ()):
            return True
        if opened or inbound.channel in self._opening:
            for behind in (self._behind, self._missed):
                behind.setdefault(who, set()).add(inbound.chat_key)
            self.freed(who)
        return False

    def freed(self, who: UserRef) -> None:
        """Something less of this person waits in memory."""
        if self._reading or not (self._behind or self._beyond):
            return
        if self._due(who) or 2 * self._lanes.total <= self._mark:
            self._reading = True
            self._lanes.beside(self._read_back())

    async def stop(self, stop: Inbound) -> int:
        """Stop what a person has in the journal alone; how many chats that may be."""
        behind = self._behind.get(person(stop), set())
        if not (self._reading or self._beyond or behind):
            return 0
        self._stops.append(stop)
        return int(stop.chat_key in behind or self._beyond)

    async def open(self, channel: str) -> int:
        """A channel is connected: read what it has in the journal, oldest first. Returns how many go on that an
        earlier process had left. Raises `errors.StorageError`.
        """
        self._opening.add(channel)
        async with self.settling:
            self._reading = True
            try:
                count = await self._read(channel)
            finally:
                self._reading = False
                self._opening.discard(channel)
        for who in list(self._behind):
            self.freed(who)
        return count

    async def _read_back(self) -> None:
        try:
            async with self.settling:
                while self._wants():
                    try:
                        await self._read(None)
                    except errors.StorageError as error:
                        self._log.write("error", "what waits cannot be read", level="error", cause=str(error))
                        await self._clock.sleep(RETRY_SECONDS)
                        continue
                    if not (self._brought or self._missed):
                        break  # what there is is being written down at this moment, and comes by itself
        finally:
            self._reading = False

    def _wants(self) -> bool:
        return any(self._due(who) for who in self._behind) or (
            self._beyond and 2 * self._lanes.total <= self._limit
        )

    def _due(self, who: UserRef) -> bool:
        """Whether there is room worth reading for, and this person has something to be read."""
        room = self._limit - self._lanes.total
        return (
            who in self._behind and 2 * room >= self._share and 2 * self._lanes.waiting_of(who) <= self._share
        )

    async def _read(self, channel: str | None) -> int:
        self._missed = {}
        room = max(0, self._limit - self._lanes.total)
        fresh, behind, whole = await self._gathered(channel, room)
        chosen, rest = self._fair(fresh, room)
        for who, chats in rest.items():
            behind.setdefault(who, set()).update(chats)
        self._coming = self._brought = len(chosen)
        try:
            count = await self._bring(chosen, self._stopped)
        finally:
            self._coming = 0
        if channel is not None:
            self._opened.add(channel)
        self._note(behind, whole=whole, first=channel is not None)
        self._lanes.go_on()
        return count

    async def _gathered(self, channel: str | None, room: int) -> tuple[list[Inbound], Behind, bool]:
        """What nobody sees to yet, page by page, of each person as much as they may have in memory; who has more; and
        whether that is all there is. It ends early where there is enough for everybody.
        """
        fresh: list[Inbound] = []
        behind: Behind = {}
        count: Counter[UserRef] = Counter()
        noted = {stop.request_id for stop in self._stops}
        known, last, whole = set(self._known()), "", False
        while not whole and not self._enough(count, room, first=channel is not None):
            rows = await self._journal.unfinished(PAGE, last)
            known |= set(self._known())
            whole = len(rows) < PAGE
            for row in rows:
                last = row.request_id
                if last in known or not (row.channel in self._opened or row.channel == channel):
                    continue
                # A stop that an earlier process was told of may stand behind more than fits.
                if row.is_stop and last not in noted:
                    self._stops.append(row)
                who = person(row)
                if count[who] < self._open_share(who):
                    count[who] += 1
                    fresh.append(row)
                else:
                    behind.setdefault(who, set()).add(row.chat_key)
        return fresh, behind, whole

    def _enough(self, count: Mapping[UserRef, int], room: int, *, first: bool) -> bool:
        """Whether nothing more needs to be read: there is no room for it, or nobody who has something there may have
        more.
        """
        if sum(count.values()) >= room:
            return True
        if first or self._beyond:
            return False
        return all(count.get(who, 0) >= self._open_share(who) for who in {**self._behind, **self._missed})

    def _open_share(self, who: UserRef) -> int:
        return max(0, self._share - self._lanes.waiting_of(who))

    def _note(self, behind: Behind, *, whole: bool, first: bool) -> None:
        """Remember who has something in the journal alone, after a reading that saw all of it or only its beginning."""
        self._beyond = not whole and (first or self._beyond)
        for seen in (self._missed, {} if whole else self._behind):
            for who, chats in seen.items():
                behind.setdefault(who, set()).update(chats)
        self._behind = behind
        self._mark = self._lanes.total
        self._stops = [stop for stop in self._stops if self._beyond or person(stop) in behind]

    def _fair(self, rows: Sequence[Inbound], room: int) -> tuple[list[Inbound], Behind]:
        """Which of these fit into memory, people in turn; and whose do not."""
        queues: dict[UserRef, list[Inbound]] = {}
        for row in rows:
            queues.setdefault(person(row), []).append(row)
        shares = {who: self._open_share(who) for who in queues}
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
                behind.setdefault(person(row), set()).add(row.chat_key)
        return [row for row in rows if row.request_id in chosen], behind

    def _stopped(self, inbound: Inbound) -> bool:
        return any(stops(stop, inbound) and stop.request_id > inbound.request_id for stop in self._stops)
