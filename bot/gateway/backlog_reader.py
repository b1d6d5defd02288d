"""Reads back what waits in the journal, oldest first: at the start of a channel, and when memory has room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog, Behind
from bot.gateway.in_flight import InFlight
from bot.gateway.recovery import Recovery
from bot.gateway.relations import person
from bot.gateway.scheduler import Scheduler

PAGE = 500
"""Rows of the journal that are read at once: more would hold up everything else."""
RETRY_SECONDS = 5.0


class BacklogReader:
    """Brings to the chats what nobody sees to yet."""

    def __init__(
        self,
        *,
        backlog: Backlog,
        journal: Journal,
        recovery: Recovery,
        scheduler: Scheduler,
        in_flight: InFlight,
        tasks: BackgroundTasks,
        clock: Clock,
        log: Log,
    ) -> None:
        self._backlog = backlog
        self._journal = journal
        self._recovery = recovery
        self._scheduler = scheduler
        self._in_flight = in_flight
        self._tasks = tasks
        self._clock = clock
        self._log = log

    def start(self) -> None:
        """Read from now on whenever there is room."""
        self._tasks.serve(self._serve())

    async def open(self, channel: str) -> int:
        """A channel is connected: what a crash or a stop left unfinished goes on, oldest first, and after it what came in
        meanwhile. Returns how many go on that an earlier process had left. Raises `errors.StorageError`.
        """
        with self._backlog.opening(channel):
            async with self._backlog.settling:
                with self._backlog.being_read():
                    count, _ = await self._read(channel)
        return count

    async def _serve(self) -> None:
        while True:
            await self._backlog.wanted.wait()
            self._backlog.wanted.clear()
            self._tasks.start(self._read_back())

    async def _read_back(self) -> None:
        with self._backlog.being_read():
            async with self._backlog.settling:
                while self._backlog.wants():
                    try:
                        _, brought = await self._read(None)
                    except errors.StorageError as error:
                        self._log.write("error", "what waits cannot be read", level="error", cause=str(error))
                        await self._clock.sleep(RETRY_SECONDS)
                        continue
                    if not (brought or self._backlog.missed):
                        break  # what there is is being written down at this moment, and comes by itself

    async def _read(self, channel: str | None) -> tuple[int, int]:
        """Read once; how many go on that an earlier process had left, and how many there are."""
        room = self._backlog.begin()
        fresh, behind, whole = await self._gathered(channel, room)
        chosen = self._backlog.choose(fresh, behind, room)
        try:
            count = await self._recovery.recover(chosen, self._backlog.stopped_by)
        finally:
            self._backlog.arrived()
        self._backlog.end(behind, whole=whole, opening=channel)
        return count, len(chosen)

    async def _gathered(self, channel: str | None, room: int) -> tuple[list[Inbound], Behind, bool]:
        """Read the rows that no part of the gateway has yet, page by page, of each person as many as they may have in
        memory. Also returns who has more, and True if that is all there is. Ends early where there is enough for all.
        """
        fresh: list[Inbound] = []
        behind: Behind = {}
        count: Counter[UserRef] = Counter()
        known, last, whole = set(self._known()), "", False
        while not whole and not self._backlog.enough(count, room, opening=channel is not None):
            rows = await self._journal.unfinished(PAGE, last)
            known |= set(self._known())
            whole = len(rows) < PAGE
            for row in rows:
                last = row.request_id
                if last in known or not self._backlog.reads(row.channel, channel):
                    continue
                who = person(row)
                if row.is_stop:
                    fresh.append(row)  # it passes every queue
                elif count[who] < self._backlog.open_share(who):
                    count[who] += 1
                    fresh.append(row)
                else:
                    behind.setdefault(who, set()).add(row.chat_key)
        return fresh, behind, whole

    def _known(self) -> Iterator[str]:
        """The requestIds of all that is seen to already."""
        yield from self._scheduler.known()
        yield from self._in_flight.known()
