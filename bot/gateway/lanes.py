"""Lanes: one writer for each chatKey. Its work is done one after another, different lanes side by side."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog
from bot.gateway.conversation import QueueMode
from bot.gateway.debouncer import Debouncer
from bot.gateway.relations import belongs, person, plain
from bot.gateway.turn_slots import TurnSlots


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What one turn answers: a message and the rest of its burst. `begun`: it did begin, before a restart."""

    first: Inbound
    rest: tuple[Inbound, ...] = ()
    begun: bool = False

    @property
    def all(self) -> tuple[Inbound, ...]:
        return (self.first, *self.rest)


@dataclass(slots=True)
class _Waiting:
    inbound: Inbound
    number: int
    burst: int
    begun: tuple[Inbound, ...] | None = None

    @property
    def all(self) -> tuple[Inbound, ...]:
        return (self.inbound, *(self.begun or ()))


@dataclass(slots=True)
class _Lane:
    """What waits, by person; the people in the order in which they come next."""

    people: dict[UserRef, deque[_Waiting]] = field(default_factory=dict)
    running: TurnPlan | None = None


class DiskSpace(Protocol):
    """Room on the disk (`bot.disk_reserve.DiskReserve`)."""

    @property
    def trouble(self) -> str:
        """Why there is none; "" where there is."""
        ...


class Lanes:
    """Queues of inbound by chatKey. A lane exists only while it has work, and is a task only while it runs.

    At most `limit` turns run at once; people take turns, in a chat and for places, and each one's own messages keep
    their order. While the disk is in trouble no turn begins but one that did before a restart; `resume` is called once
    there is room. Whoever does the work takes it by `next_turn` and says when it is `over`.
    """

    def __init__(
        self,
        *,
        limit: int,
        mode: QueueMode,
        debounce: float = 0.0,
        backlog: Backlog,
        disk: DiskSpace,
        tasks: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._mode = mode
        self._backlog = backlog
        self._disk = disk
        self._tasks = tasks
        self._places = TurnSlots(limit)
        self._holds = Debouncer(clock, debounce, self)
        self._lanes: dict[ChatKey, _Lane] = {}
        self._number = 0
        self._returning: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()

    # ------------------------------------------------------------ what comes in

    def put(self, inbound: Inbound) -> None:
        """Queue one inbound behind the others of its person in its chat, and begin what can begin."""
        self.add(inbound)
        self.go_on()

    def add(
        self, inbound: Inbound, *, begun: tuple[Inbound, ...] | None = None, at: float | None = None
    ) -> None:
        """Queue one inbound, and begin nothing before `go_on`.

        `begun`: its turn did begin before a restart, with these; it goes on alone. `at`: when it was taken in (epoch
        seconds), where that was before: what was a burst then is one now, and need not be waited for.
        """
        lane = self._lanes.setdefault(inbound.chat_key, _Lane())
        who = person(inbound)
        queue = lane.people.get(who)
        if queue is None:
            queue = lane.people[who] = deque()
            self._places.enter(who)
        self._number += 1
        burst = self._holds.burst(inbound.chat_key, who, at=at, held=plain(inbound) and begun is None)
        queue.append(_Waiting(inbound, self._number, burst, begun))
        self._backlog.entered(who, 1 + len(begun or ()))
        self._ask(inbound.chat_key, lane)

    def go_on(self) -> None:
        """Let what can begin be taken."""
        self._wake.set()

    async def next_turn(self) -> TurnPlan:
        """Wait until a turn can begin, and take it."""
        while (given := self._places.give()) is None:
            self._wake.clear()
            await self._wake.wait()
        chat_key, who = given
        lane = self._lanes[chat_key]
        lane.running = self._portion(chat_key, lane, who)
        return lane.running

    def over(self, chat_key: ChatKey) -> None:
        """The turn that ran in a chat has ended: the next one may begin."""
        lane = self._lanes[chat_key]
        assert lane.running is not None  # noqa: S101 - it is what has ended
        who = person(lane.running.first)
        if who in lane.people:
            # Behind the others of the chat, those included who came while this turn ran.
            lane.people[who] = lane.people.pop(who)
        lane.running = None
        self._ask(chat_key, lane)
        self._free_place()

    def close(self) -> None:
        """Wait for nobody to be quiet any more."""
        self._holds.close()

    def resume(self) -> None:
        """The disk has room again: what waited for that begins."""
        for chat_key, lane in list(self._lanes.items()):
            self._ask(chat_key, lane)
        self.go_on()

    @contextlib.asynccontextmanager
    async def parked(self) -> AsyncIterator[None]:
        """A running turn waits for a person: its place is for others meanwhile, and it comes back before them."""
        self._free_place()
        ends = True
        try:
            with self._tasks.suspended():
                yield
            ends = False
        finally:
            if ends:
                self._places.take()
        if self._places.free > 0:
            self._places.take()
            return
        place = asyncio.get_running_loop().create_future()
        self._returning.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._places.take()
            raise

    # ------------------------------------------------------------ what can be seen

    def running(self, chat_key: ChatKey) -> Inbound | None:
        """The inbound whose turn runs in this chat."""
        lane = self._lanes.get(chat_key)
        return lane.running.first if lane is not None and lane.running is not None else None

    def waiting(self, chat_key: ChatKey) -> int:
        """How many inbound wait in this chat."""
        lane = self._lanes.get(chat_key)
        return sum(map(len, lane.people.values())) if lane is not None else 0

    def chats(self) -> list[ChatKey]:
        """The chats in which something waits or runs."""
        return list(self._lanes)

    @property
    def active(self) -> int:
        """How many lanes have work."""
        return len(self._lanes)

    @property
    def total(self) -> int:
        """How many inbound wait in all lanes."""
        return self._backlog.total

    @property
    def ready(self) -> bool:
        """Whether a turn could begin now."""
        return self._places.ready

    @property
    def free(self) -> int:
        """How many more turns may run; below 0 where some that waited for a person go on besides."""
        return self._places.free

    def known(self) -> Iterator[str]:
        """The requestIds of all that waits or runs."""
        for lane in self._lanes.values():
            if lane.running is not None:
                yield from (inbound.request_id for inbound in lane.running.all)
            for queue in lane.people.values():
                yield from (one.request_id for waiting in queue for one in waiting.all)

    def find(self, chat_key: ChatKey, who: UserRef, wanted: Callable[[Inbound], bool]) -> Inbound | None:
        """A waiting inbound of one person in a chat, unless its turn has begun before."""
        fresh = (waiting.inbound for waiting in self._queue(chat_key, who) if waiting.begun is None)
        return next((inbound for inbound in fresh if wanted(inbound)), None)

    # ------------------------------------------------------------ what is changed

    def replace(self, inbound: Inbound) -> None:
        """Put an inbound in the place of the waiting one with the same requestId."""
        for waiting in self._queue(inbound.chat_key, person(inbound)):
            if waiting.inbound.request_id == inbound.request_id:
                waiting.inbound = inbound

    def take(self, chat_key: ChatKey, wanted: Callable[[Inbound], bool]) -> list[Inbound]:
        """Take every wanted inbound out of a chat's queue, but for turns that have begun before."""
        lane = self._lanes.get(chat_key)
        taken: list[Inbound] = []
        if lane is None:
            return taken
        for who, queue in list(lane.people.items()):
            gone = [waiting for waiting in queue if waiting.begun is None and wanted(waiting.inbound)]
            for waiting in gone:
                queue.remove(waiting)
                taken.append(waiting.inbound)
            self._less(chat_key, lane, who, len(gone))
        self._ask(chat_key, lane)
        return taken

    def take_next(self, chat_key: ChatKey, who: UserRef, wanted: Callable[[Inbound], bool]) -> list[Inbound]:
        """Take what one person has waiting, up to the first that is not wanted, or that came after what somebody else
        has waiting: they come first.
        """
        lane = self._lanes.get(chat_key)
        taken: list[Inbound] = []
        if lane is None or who not in lane.people:
            return taken
        others = [queue[0].number for other, queue in lane.people.items() if other != who]
        border = min(others, default=self._number + 1)
        queue = lane.people[who]
        while queue and queue[0].number < border and queue[0].begun is None and wanted(queue[0].inbound):
            taken.append(queue.popleft().inbound)
        self._less(chat_key, lane, who, len(taken))
        return taken

    # ------------------------------------------------------------ inside

    def _queue(self, chat_key: ChatKey, who: UserRef) -> deque[_Waiting]:
        lane = self._lanes.get(chat_key)
        return lane.people.get(who, deque()) if lane is not None else deque()

    def _less(self, chat_key: ChatKey, lane: _Lane, who: UserRef, count: int) -> None:
        """So many inbound of a person wait no more."""
        if not count:
            return
        if not lane.people[who]:
            del lane.people[who]
            self._places.leave(who)
            self._holds.end(chat_key, who)
        self._backlog.left(who, count)

    def quiet(self, chat_key: ChatKey) -> None:
        """As `HearsQuiet`."""
        self._ask(chat_key, self._lanes[chat_key])
        self.go_on()

    def _ask(self, chat_key: ChatKey, lane: _Lane) -> None:
        """Ask for a place on behalf of those who have something ready, or no longer."""
        if lane.running is not None:
            return
        held, full = self._holds.held, bool(self._disk.trouble)
        ready = [
            who
            for who, queue in lane.people.items()
            if queue[0].burst != held(chat_key, who) and (queue[0].begun is not None or not full)
        ]
        self._places.ask(chat_key, ready)
        if not lane.people:
            del self._lanes[chat_key]

    def _portion(self, chat_key: ChatKey, lane: _Lane, who: UserRef) -> TurnPlan:
        """What is next of a person."""
        queue = lane.people[who]
        first = queue.popleft()
        rest: list[Inbound] = []
        while first.begun is None and queue and self._together(first, queue[0]):
            rest.append(queue.popleft().inbound)
        portion = TurnPlan(first.inbound, first.begun or tuple(rest), begun=first.begun is not None)
        self._less(chat_key, lane, who, len(portion.all))
        return portion

    def _together(self, first: _Waiting, other: _Waiting) -> bool:
        merged = self._mode.collects or other.burst == first.burst
        return merged and other.begun is None and belongs(other.inbound, first.inbound)

    def _free_place(self) -> None:
        """A place is free: for a turn that has waited for a person, else for what asks."""
        self._places.give_back()
        while self._returning and self._places.free > 0:
            place = self._returning.popleft()
            if not place.done():
                self._places.take()
                place.set_result(None)
        self.go_on()
