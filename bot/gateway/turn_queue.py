"""The turn queue: drives the conversations, hands out turn slots fairly among people, and suspends a turn that waits for a person."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import PostedWrites
from bot.core.chat import QueueMode
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog
from bot.gateway.conversation import Conversation, Effect, Event, Resumed, Suspended, Turn, WakeAt, Woken


class DiskSpace(Protocol):
    """Room on the disk (`bot.disk_reserve.DiskReserve`)."""

    @property
    def trouble(self) -> str:
        """Why there is none; "" where there is."""
        ...


class TurnQueue:
    """Every event of a chat goes through it to the chat's `Conversation`, which exists only while it has work.

    At most `limit` turns run at once. While the disk is in trouble no turn begins but one that did before a restart;
    `resume` is called once there is room. Whoever runs turns takes them by `next_turn`.
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
        self._debounce = debounce
        self._backlog = backlog
        self._disk = disk
        self._tasks = tasks
        self._clock = clock
        self._slots = TurnSlots(limit)
        self._chats: dict[ChatKey, Conversation] = {}
        self._returning: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._due: list[tuple[float, ChatKey]] = []
        self._timer: asyncio.Task[None] | None = None
        self.timed: asyncio.Queue[Effect] = asyncio.Queue()
        """Effects that time brought about, to be carried out in order."""

    # ------------------------------------------------------------ what happens

    def apply(self, chat_key: ChatKey, event: Event) -> list[Effect]:
        """Tell a chat of an event; what the caller is to carry out, in order. What can begin then is there for
        `next_turn`. Raises `errors.IllegalTransition` as `Conversation.apply`.
        """
        chat = self._chat(chat_key)
        effects = list[Effect]()
        for effect in chat.apply(event, self._clock.monotonic()):
            if isinstance(effect, WakeAt):
                self._wake_at(effect.at, chat_key)
            else:
                effects.append(effect)
        self._changed(chat_key, chat)
        return effects

    def take_more(self, chat_key: ChatKey) -> list[Inbound]:
        """As `Conversation.take_more`."""
        chat = self._chat(chat_key)
        more = chat.take_more()
        self._changed(chat_key, chat)
        return more

    async def next_turn(self) -> Turn:
        """Wait until a turn can begin, and begin it."""
        while True:
            while (given := self._slots.give()) is None:
                self._wake.clear()
                await self._wake.wait()
            chat_key, who = given
            chat = self._chats[chat_key]
            chat.next_turn(self._clock.monotonic(), who, begun_only=bool(self._disk.trouble))
            self._changed(chat_key, chat)
            if chat.running is not None:
                return chat.running
            self._slots.give_back()  # the disk has filled up since the chat asked

    def give_back(self) -> None:
        """A slot is free: for a turn that has waited for a person, else for what asks."""
        self._slots.give_back()
        while self._returning and self._slots.free > 0:
            slot = self._returning.popleft()
            if not slot.done():
                self._slots.take()
                slot.set_result(None)
        self._wake.set()

    def resume(self) -> None:
        """The disk has room again: what waited for that begins."""
        for chat_key, chat in list(self._chats.items()):
            self._changed(chat_key, chat)

    def close(self) -> None:
        """Wait for nobody to be quiet any more."""
        if self._timer is not None:
            self._timer.cancel()

    @contextlib.asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """A running turn waits for a person: its slot is for others meanwhile, and it comes back before them."""
        self.give_back()
        ends = True
        try:
            with self._tasks.suspended():
                yield
            ends = False
        finally:
            if ends:
                self._slots.take()
        if self._slots.free > 0:
            self._slots.take()
            return
        slot = asyncio.get_running_loop().create_future()
        self._returning.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.cancelled():
                self._slots.take()
            raise

    # ------------------------------------------------------------ what can be seen

    def turn(self, chat_key: ChatKey) -> Turn | None:
        """The turn of a chat: it runs, or is the next one because it had begun before a restart."""
        chat = self._chats.get(chat_key)
        return chat.turn if chat is not None else None

    def running(self, chat_key: ChatKey) -> Turn | None:
        """The turn that runs in a chat."""
        chat = self._chats.get(chat_key)
        return chat.running if chat is not None else None

    def chats(self) -> list[tuple[ChatKey, Conversation]]:
        """The chats in which something waits or runs."""
        return list(self._chats.items())

    @property
    def active(self) -> int:
        """In how many chats something waits or runs."""
        return len(self._chats)

    @property
    def total(self) -> int:
        """The number of inbound that wait in all chats."""
        return self._backlog.total

    @property
    def ready(self) -> bool:
        """True where a turn could begin now."""
        return self._slots.ready

    @property
    def free(self) -> int:
        """The number of further turns that may run; below 0 where some that waited for a person go on besides."""
        return self._slots.free

    def request_ids(self) -> Iterator[str]:
        """The requestIds of all that waits or runs."""
        for chat in self._chats.values():
            yield from chat.request_ids

    # ------------------------------------------------------------ inside

    def _chat(self, chat_key: ChatKey) -> Conversation:
        chat = self._chats.get(chat_key)
        return chat if chat is not None else Conversation(self._mode, self._debounce)

    def _changed(self, chat_key: ChatKey, chat: Conversation) -> None:
        """Count who waits, and ask for a slot on behalf of those who have something ready, or no longer."""
        if chat.idle:
            self._chats.pop(chat_key, None)
        else:
            self._chats[chat_key] = chat
        for who, change in chat.changes().items():
            self._slots.wait(chat_key, who, waits=chat.waits(who))
            if change > 0:
                self._backlog.entered(who, change)
            else:
                self._backlog.left(who, -change)
        ready = chat.ready(self._clock.monotonic(), begun_only=bool(self._disk.trouble))
        self._slots.ask(chat_key, ready)
        if ready:
            self._wake.set()

    def _wake_at(self, at: float, chat_key: ChatKey) -> None:
        sooner = not self._due or at < self._due[0][0]
        heapq.heappush(self._due, (at, chat_key))
        if sooner:
            self.close()
            self._timer = asyncio.create_task(self._keep_time())

    async def _keep_time(self) -> None:
        """One timer for all, which sleeps until the first of them is due."""
        while self._due:
            at, chat_key = self._due[0]
            wait = at - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
                continue
            heapq.heappop(self._due)
            if chat_key in self._chats:
                for effect in self.apply(chat_key, Woken()):
                    self.timed.put_nowait(effect)


class TurnSlots:
    """Hands out a fixed number of slots for turns.

    Chats ask, each for the people who have something ready in it. While there are slots for all of them, a chat is
    given its own next person; when there are too few, people get them in turn, whoever was served longest ago first,
    however many chats they write in.
    """

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._asking: dict[ChatKey, dict[UserRef, None]] = {}
        self._chats: dict[UserRef, dict[ChatKey, None]] = {}
        self._work: dict[UserRef, set[ChatKey]] = {}
        self._rank: dict[UserRef, int] = {}
        self._order: list[tuple[int, UserRef]] = []
        self._count = itertools.count()

    def wait(self, chat_key: ChatKey, person: UserRef, *, waits: bool) -> None:
        """Somebody has something waiting in a chat, or no longer: who is new stands behind everybody."""
        work = self._work.setdefault(person, set())
        if waits:
            work.add(chat_key)
            if person not in self._rank:
                self._rank[person] = next(self._count)
        else:
            work.discard(chat_key)
        if not work:
            del self._work[person]
            self._rank.pop(person, None)

    def ask(self, chat_key: ChatKey, ready: Iterable[UserRef]) -> None:
        """A chat wants a slot for one of those who are ready in it, in its own order; for none: no more."""
        self._withdraw(chat_key)
        wanted = dict.fromkeys(ready)
        if not wanted:
            return
        self._asking[chat_key] = wanted
        for person in wanted:
            chats = self._chats.setdefault(person, {})
            if not chats:
                self._stand(person)
            chats[chat_key] = None

    @property
    def ready(self) -> bool:
        """True where a slot is free, and somebody asks."""
        return self.free > 0 and bool(self._asking)

    @property
    def idle(self) -> bool:
        """True where nobody waits, and nobody asks."""
        return not (self._asking or self._chats or self._work or self._rank)

    @property
    def queued(self) -> int:
        """The number of entries in the order of people, outdated ones among them."""
        return len(self._order)

    def give(self) -> tuple[ChatKey, UserRef] | None:
        """Give a slot to one that asks: its chat and its person. None where none is free, or nobody asks."""
        if not self.ready:
            return None
        if self.free >= len(self._asking):
            chat_key = next(iter(self._asking))
            person = next(iter(self._asking[chat_key]))
        else:
            person = self._longest_unserved()
            chat_key = next(iter(self._chats[person]))
        self.free -= 1
        self._withdraw(chat_key)
        self._rank[person] = next(self._count)
        if person in self._chats:
            self._stand(person)
        return chat_key, person

    def give_back(self) -> None:
        """Return a slot."""
        self.free += 1

    def take(self) -> None:
        """Take a slot even if none is free; the free count may go below 0 until slots are returned."""
        self.free -= 1

    def _withdraw(self, chat_key: ChatKey) -> None:
        for person in self._asking.pop(chat_key, ()):
            chats = self._chats[person]
            del chats[chat_key]
            if not chats:
                del self._chats[person]

    def _stand(self, person: UserRef) -> None:
        if len(self._order) > 2 * len(self._chats) + 64:
            # Places that were left: they would only pile up while there is enough for all.
            self._order = [(self._rank[one], one) for one in self._chats]
            heapq.heapify(self._order)
        heapq.heappush(self._order, (self._rank[person], person))

    def _longest_unserved(self) -> UserRef:
        while True:
            rank, person = heapq.heappop(self._order)
            if person in self._chats and self._rank[person] == rank:
                return person


class TurnSuspension:
    """Suspends the turn of a chat, for one question at a time."""

    def __init__(self, turn_queue: TurnQueue, post: PostedWrites) -> None:
        self._turn_queue = turn_queue
        self._post = post
        self._locks: dict[ChatKey, asyncio.Lock] = {}
        self._asking: Counter[ChatKey] = Counter()

    def turn(self, chat_key: ChatKey) -> Turn | None:
        """The turn that runs in a chat."""
        return self._turn_queue.running(chat_key)

    def asking(self, chat_key: ChatKey) -> int:
        """The number of questions in a chat: the one that is asked, and those that wait for it."""
        return self._asking[chat_key]

    @contextlib.asynccontextmanager
    async def alone(self, chat_key: ChatKey) -> AsyncIterator[None]:
        """Nothing else is asked in a chat for the block."""
        lock = self._locks.setdefault(chat_key, asyncio.Lock())
        self._asking[chat_key] += 1
        try:
            async with lock:
                yield
        finally:
            self._asking[chat_key] -= 1
            if not self._asking[chat_key]:
                del self._asking[chat_key], self._locks[chat_key]

    @contextlib.contextmanager
    def waiting(self, turn: Turn, waits_for: Literal["approval", "question"]) -> Iterator[bool]:
        """Take what the person of a turn says in the block for what the turn waits for. False where it need not wait: its
        person has said more already, which the turn takes up, or the turn has ended (a tool may outlive it).
        """
        chat_key = turn.first.chat_key
        if self._turn_queue.running(chat_key) is not turn or turn.over:
            yield False
            return
        if self._turn_queue.apply(chat_key, Suspended(waits_for)):
            yield False
            return
        self._post.suspend_turn(turn.first.request_id)
        try:
            yield True
        finally:
            if self._turn_queue.running(chat_key) is turn:
                if turn.end is None:
                    self._post.resume_turn(turn.first.request_id)
                self._turn_queue.apply(chat_key, Resumed())

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """The slot of the turn is for others for the block."""
        return self._turn_queue.suspended()
