"""Recovery: reads back what waits in the journal, oldest first, and hands it to the calls that a running process uses: at the start of a channel, and when memory has room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.environment import Clock, Log, storage_errors_logged
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import STOPPED, InboxEnd, Journal, Unfinished
from bot.core.locales import Locales
from bot.core.message_versions import same_message
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog, Behind, InFlight
from bot.gateway.conversation import Delete, Event, Stop, TurnPlan, TurnResumed
from bot.gateway.effects import EffectRunner
from bot.gateway.inbound_archiver import InboundArchiver
from bot.gateway.intake import InboundRouter
from bot.gateway.message_versions import on_file, original, withdrawn
from bot.gateway.turn_queue import TurnQueue

PAGE = 500
"""Rows of the journal that are read at once: more would hold up everything else."""
RETRY_SECONDS = 5.0


class Recovery:
    """Reads the rows that no part of the gateway has yet, as many as memory has room for, and brings them to the chats."""

    def __init__(
        self,
        *,
        agent: Agent,
        journal: Journal,
        archive: InboundArchiver,
        turn_queue: TurnQueue,
        backlog: Backlog,
        effects: EffectRunner,
        router: InboundRouter,
        in_flight: InFlight,
        locales: Locales,
        tasks: BackgroundTasks,
        clock: Clock,
        log: Log,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._archive = archive
        self._turn_queue = turn_queue
        self._backlog = backlog
        self._effects = effects
        self._router = router
        self._in_flight = in_flight
        self._locales = locales
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
            await self._locales.load()
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
        inbounds = self._backlog.choose([row.inbound for row in fresh.values()], behind, room)
        chosen = [fresh[one.request_id] for one in inbounds]
        try:
            count = await self._recover(chosen)
        finally:
            self._backlog.arrived()
        self._backlog.end(behind, whole=whole, opening=channel)
        return count, len(chosen)

    async def _gathered(self, channel: str | None, room: int) -> tuple[dict[str, Unfinished], Behind, bool]:
        """Read the rows that no part of the gateway has yet, page by page, of each person as many as they may have in
        memory. Also returns who has more, and True if that is all there is. Ends early where there is enough for all.
        """
        fresh: dict[str, Unfinished] = {}
        behind: Behind = {}
        count: Counter[UserRef] = Counter()
        known, last, whole = set(self._seen_ids()), "", False
        while not whole and not self._backlog.enough(count, room, opening=channel is not None):
            rows = await self._journal.unfinished(PAGE, last)
            known |= set(self._seen_ids())
            whole = len(rows) < PAGE
            for row in rows:
                last = row.inbound.request_id
                if last in known or not self._backlog.reads(row.inbound.channel, channel):
                    continue
                who = row.inbound.person
                if row.inbound.is_stop:
                    fresh[last] = row  # it passes every queue
                elif count[who] < self._backlog.open_share(who):
                    count[who] += 1
                    fresh[last] = row
                else:
                    behind.setdefault(who, set()).add(row.inbound.chat_key)
        return fresh, behind, whole

    # ------------------------------------------------------------ to the chats

    async def _recover(self, unfinished: Sequence[Unfinished]) -> int:
        """Let turns go on that a crash cut off, and hand on what waits. Returns how many turns and messages of an earlier
        process there were. Raises `errors.StorageError` before anything is handed on.
        """
        rows = [await self._whole(row) for row in unfinished]
        turns = await self._begun(rows)
        # Before a row is closed: what a kill has kept out of the archive nobody would miss after that.
        old = [row for row in rows if self._old(row.inbound) and not row.inbound.is_stop]
        await self._add_missing(row.inbound for row in old if not withdrawn(row.inbound, row.about))
        parts = {one.request_id for plan in turns.values() for one in plan.rest} - set(turns)
        left = [row for row in rows if row.inbound.request_id not in parts]
        current: list[tuple[Unfinished, Inbound]] = []
        for row in left:
            if (into := row.record.merged_into) is not None:
                await self._journal.post.finish(row.inbound.request_id, InboxEnd("merged", merged_into=into))
            elif row.inbound.request_id in turns:
                current.append((row, row.inbound))
            elif (fresh := await self._router.current(row.inbound, row.about)) is not None:
                current.append((row, fresh))
        by_id = {row.inbound.request_id: row for row in rows}
        # Nothing is awaited from here on: what comes in meanwhile stands behind.
        for row, inbound in current:
            stop = self._backlog.stopped_by(inbound)
            if (plan := turns.get(inbound.request_id)) is not None:
                changes = [change for one in plan.all for change in _deletions(by_id[one.request_id])]
                self._resume_turn(plan, [*map(Delete, changes), *([Stop(stop)] if stop is not None else [])])
            elif stop is not None and not inbound.is_stop and inbound.kind in {"message", "edit"}:
                self._journal.post.finish(inbound.request_id, STOPPED)
            else:
                self._router.hand_on(inbound, row.about, row.record.received_at)
        going_on = [one for _, one in current if one.request_id in turns or one.kind == "message"]
        return sum(self._old(one) and not one.is_stop for one in going_on)

    def _seen_ids(self) -> Iterator[str]:
        """The requestIds of all that is seen to already."""
        yield from self._turn_queue.request_ids()
        yield from self._in_flight.request_ids()

    def _resume_turn(self, plan: TurnPlan, since: Sequence[Event]) -> None:
        """Let a turn go on that was cut off; `since` is what it heard before that."""
        chat_key = plan.first.chat_key
        effects = [
            effect
            for event in (TurnResumed(plan), *since)
            for effect in self._turn_queue.apply(chat_key, event)
        ]
        if effects:
            self._tasks.start(self._effects.finish(self._effects.begin(effects)))

    async def _whole(self, row: Unfinished) -> Unfinished:
        """The row with what is on file about each item of its album: no column tells which those are."""
        whole, inbound = original(row.inbound, row.about) is not None, row.inbound
        if not any(one.inbound.items for one in row.about) and (whole or inbound.changes is None):
            return row
        return replace(row, about=tuple(await on_file(self._journal, row.inbound)))

    def _old(self, inbound: Inbound) -> bool:
        first = self._in_flight.first
        return not first or inbound.request_id < first

    async def _begun(self, rows: Sequence[Unfinished]) -> dict[str, TurnPlan]:
        """The turns that had begun, by the requestId of their first message."""
        chats: dict[ChatKey, list[Unfinished]] = {}
        for row in rows:
            goes_on = row.inbound.kind in {"message", "edit"} and row.record.merged_into is None
            if goes_on and self._turn_queue.turn(row.inbound.chat_key) is None and self._old(row.inbound):
                chats.setdefault(row.inbound.chat_key, []).append(row)
        plans: dict[str, TurnPlan] = {}
        for chat_key, group in chats.items():
            plan = _plan(group, await self._cut_off(chat_key))
            if plan is not None:
                ids = {one.request_id for one in plan.all}
                stopped = any(row.turn == "stopping" for row in group if row.inbound.request_id in ids)
                plans[plan.first.request_id] = replace(plan, stopped=stopped)
        return plans

    async def _cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        # The turn itself will meet this and say so; the other chats go on.
        with storage_errors_logged(self._log, "a transcript cannot be read", chat_key=chat_key):
            return await self._agent.cut_off(chat_key)
        return ()

    async def _add_missing(self, inbounds: Iterable[Inbound]) -> None:
        chats: dict[ChatKey, list[Inbound]] = {}
        for inbound in inbounds:
            chats.setdefault(inbound.chat_key, []).append(inbound)
        for chat_key, missing in chats.items():
            with storage_errors_logged(self._log, "the archive cannot be read", chat_key=chat_key):
                await self._archive.add_missing(chat_key, missing)


def _plan(rows: Sequence[Unfinished], sources: Sequence[str]) -> TurnPlan | None:
    """The messages of the turn that had begun in one chat. `sources` are those that its transcript names: where the disk
    refused the rows, it knows more.
    """
    found = {row.inbound.request_id: row for row in rows}
    head = found.get(sources[0]) if sources else None
    head = head or next((row for row in rows if row.record.turn_id == row.inbound.request_id), None)
    head = head or next((row for row in rows if row.record.turn_id is not None), None)
    if head is None:
        return None
    ids = dict.fromkeys([*sources, *(name for name, row in found.items() if _together(row, head))])
    rest = [found[name] for name in ids if name in found and found[name] is not head]
    return TurnPlan(head.inbound, tuple(row.inbound for row in rest), begun=True)


def _together(row: Unfinished, head: Unfinished) -> bool:
    """True of two messages in one turn."""
    return row.record.turn_id is not None and row.record.turn_id == head.record.turn_id


def _deletions(row: Unfinished) -> list[Inbound]:
    """The deletions of its message that were carried out."""
    ended = (record.inbound for record in row.about if not record.open)
    return [one for one in ended if one.kind == "delete" and same_message(one, row.inbound)]
