"""Intake: every inbound is authorised, de-duplicated and written down before the platform is told it arrived; then it is handed
to the part that does its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.approvals import OpenQuestion
from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import HomeSection
from bot.contracts.environment import Clock, Ids, Log, ends_within, storage_errors_logged
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import WITHDRAWN, InboxRecord, Journal
from bot.core.access import Access, InboundCleaner, Verdict, request_of
from bot.features.listening.participation import UnaddressedMessages
from bot.gateway.approvals import ApprovalService
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog, InFlight
from bot.gateway.commands import Commands, runs_at_once
from bot.gateway.deletions import DeletionService
from bot.gateway.delivery import Delivery
from bot.gateway.direct_chats import DirectConversations
from bot.gateway.effects import AppliedEffects, EffectRunner
from bot.gateway.inbound_archiver import InboundArchiver
from bot.gateway.message_versions import as_changed, edits_of, on_file, withdrawn
from bot.gateway.operators import DAY, OperatorAlerts
from bot.gateway.participation import Participation
from bot.gateway.stops import Stops
from bot.gateway.turn_inputs import TurnInputs
from bot.words import Sentence, sentence

AT_ONCE = 1_000
"""Events that are taken in side by side; a channel that brings more waits with them."""
STOP_PATIENCE = 0.4
"""Seconds for which a stop waits for the disk before it does its work all the same."""
_R = TypeVar("_R")
MOST_AT_ONCE = 1_000
"""Commands that run beside the queues; more of them wait in those as everything does. A stop never waits."""


class InboundRouter:
    """Hands each inbound to the part that does its work: into its chat, past the chats, or to the journal until there is room."""

    def __init__(
        self,
        *,
        agent: Agent,
        journal: Journal,
        backlog: Backlog,
        commands: Commands,
        effects: EffectRunner,
        deletions: DeletionService,
        archive: InboundArchiver,
        in_flight: InFlight,
        turn_inputs: TurnInputs,
        tasks: BackgroundTasks,
        log: Log,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._backlog = backlog
        self._commands = commands
        self._effects = effects
        self._deletions = deletions
        self._archive = archive
        self._in_flight = in_flight
        self._turn_inputs = turn_inputs
        self._tasks = tasks
        self._log = log

    def route(self, inbound: Inbound, records: Sequence[InboxRecord]) -> None:
        """Take an inbound that is in the journal; `records` is what is on file about its message. Before its channel is
        open, and where memory holds enough, it stays in the journal.
        """
        if inbound.kind == "edit":
            self._turn_inputs.edited(inbound.chat_key)
        passes = self._passes(inbound) or inbound.kind in {"edit", "delete"}
        if (self._backlog.opened(inbound.channel) and passes) or self._backlog.admits(inbound):
            self.hand_on(inbound, records)

    def hand_on(
        self, inbound: Inbound, records: Sequence[InboxRecord], taken_in: float | None = None
    ) -> None:
        """Hand on an inbound whatever waits already. `taken_in` as in `conversation.Message`."""
        if self._passes(inbound):
            command = partial(self._commands.carry_out, inbound)
            self._start_at_once(inbound, partial(self._effects.handle, inbound, command))
        elif inbound.kind in {"edit", "delete"}:
            begun = self._effects.change(inbound, records)
            self._start_at_once(inbound, partial(self._changed, inbound, begun))
        else:
            self._effects.queue(inbound, taken_in)

    def _passes(self, inbound: Inbound) -> bool:
        """True where an inbound passes every queue."""
        room = len(self._in_flight.at_once) < MOST_AT_ONCE
        return inbound.is_stop or inbound.is_signal or (room and runs_at_once(inbound))

    def _start_at_once(self, inbound: Inbound, work: Callable[[], Awaitable[None]]) -> None:
        async def done() -> None:
            try:
                await work()
            finally:
                self._in_flight.at_once.discard(inbound.request_id)

        self._in_flight.at_once.add(inbound.request_id)
        self._tasks.start(done())

    async def current(self, inbound: Inbound, records: Sequence[InboxRecord]) -> Inbound | None:
        """A message as its author has changed it meanwhile; None where that withdrew it, which ends it."""
        if inbound.kind != "message":
            return inbound
        fresh = as_changed(inbound, records)
        if fresh is None:
            await self._journal.post.finish(inbound.request_id, WITHDRAWN)
        elif fresh != inbound:
            # A restart would make this change again.
            with storage_errors_logged(self._log, "a change could not be recorded"):
                await self._journal.amend(fresh, [one.request_id for one in edits_of(inbound, records)])
        return fresh

    async def _changed(self, change: Inbound, begun: AppliedEffects) -> None:
        """An edit or a deletion, once what it says of its message is in the archive: its row must not be closed before.
        The next turn is told of an edit by its row, of a deletion by the archive.
        """
        with self._deletions.under_way(change):
            await self._archive.archived(change)
            if change.kind == "edit":
                await self._effects.finish(begun)
                return
            places = await self._deletions.remove(change)
            forgetting = self._forgotten(places or ())
        if places is None:
            # What it stops must not wait for the disk. Its row does: a restart would carry it out.
            stops, begun.stops = begun.stops, []
            await self._effects.finish(AppliedEffects(stops=stops))
            forgetting = self._forgotten(await self._deletions.at_last(change))
        await self._effects.finish(begun)
        for task in forgetting:
            with storage_errors_logged(self._log, "a change could not be recorded"):
                await task

    def _forgotten(self, places: Iterable[ChatKey]) -> list[asyncio.Task[None]]:
        """Let the agent forget what was removed in these conversations."""
        return [asyncio.create_task(self._agent.forget(place)) for place in places]


class GatewayIntake:
    """`contracts.channel.Intake`. What was written down goes on in the order in which it came in each chat; a stop does its
    work also where it cannot be written down, or not at once.
    """

    def __init__(
        self,
        *,
        access: Access,
        cleaner: InboundCleaner,
        journal: Journal,
        archive: InboundArchiver,
        delivery: Delivery,
        participation: Participation,
        heard: UnaddressedMessages,
        commands: Commands,
        router: InboundRouter,
        stops: Stops,
        direct: DirectConversations,
        in_flight: InFlight,
        alerts: OperatorAlerts,
        approvals: ApprovalService,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._access = access
        self._journal = journal
        self._archive = archive
        self._delivery = delivery
        self._cleaner = cleaner
        self._participation = participation
        self._heard = heard
        self._commands = commands
        self._router = router
        self._stops = stops
        self._direct = direct
        self._in_flight = in_flight
        self._clock = clock
        self._ids = ids
        self._log = log
        self._alerts = alerts
        self._approvals = approvals
        self._tasks: set[asyncio.Task[bool]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self.last_written: dict[ChatKey, asyncio.Future[None]] = {}

    async def accept(self, inbound: Inbound) -> bool:
        inbound = self._cleaner.cleaned(inbound)
        verdict = self._access.judge(inbound)
        async with self._room:
            if not verdict.allowed:
                await self._refuse(inbound, verdict)
                return False
            counts = await self._participation.counts(inbound)
            inbound = inbound.model_copy(update={"quoted": self._cleaner.admitted(inbound, inbound.quoted)})
            if not counts or inbound.kind in {"edit", "delete"}:
                self._heard.keep(inbound)
            if not counts:
                return False
            inbound = await self._commands.of_conversation(
                inbound.model_copy(update={"request_id": self._ids.ulid()})
            )
            inbound = await self._direct.placed(self._stops.meant(inbound))
            taken = await self._handed_over(inbound)
        for early in self._heard.early(inbound):
            await self.accept(early)
            self._heard.forget(early.chat_key, early.message_id or "")
        return taken

    async def _handed_over(self, inbound: Inbound) -> bool:
        """Take in an inbound that has its id."""
        self._in_flight.begin(inbound.request_id)
        self._in_flight.writing.add(inbound.request_id)
        # A channel may give up while this runs, as when its connection breaks. What is written down must be queued
        # all the same: brought again by the platform, it is a duplicate, and nobody would ever answer it.
        task = asyncio.ensure_future(self._take_in(inbound))
        self._tasks.add(task)
        task.add_done_callback(self._taken_in)
        return await asyncio.shield(task)

    def _taken_in(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # for who waits; where nobody does any more, the platform was not told

    async def _take_in(self, inbound: Inbound) -> bool:
        chat_key, name = inbound.chat_key, inbound.request_id
        before, queued = self.last_written.get(chat_key), asyncio.get_running_loop().create_future()
        self.last_written[chat_key] = queued
        try:
            try:
                writing = self._written(inbound)
                fresh, records = await (self._in_time(inbound, writing) if inbound.is_stop else writing)
            except errors.StorageError:
                await self._stops.at_once(inbound)
                raise
            finally:
                if before is not None:
                    await before
            archived = await self._queued(inbound, records) if fresh else None
        finally:
            self._in_flight.writing.discard(name)
            queued.set_result(None)
            if self.last_written[chat_key] is queued:
                del self.last_written[chat_key]
        if archived is not None and inbound.kind != "message":
            await archived
        return fresh

    async def _in_time(self, stop: Inbound, writing: Awaitable[_R]) -> _R:
        """Await the writing of a stop, which the disk may keep waiting: then it does its work meanwhile."""
        written = asyncio.ensure_future(writing)
        if not await ends_within(STOP_PATIENCE, written, self._clock):
            await self._stops.at_once(stop)
        return await written

    async def _written(self, inbound: Inbound) -> tuple[bool, list[InboxRecord]]:
        """Write it down: True where it is new; and the rows about its message."""
        if inbound.message_id is None:
            return await self._journal.receive(inbound), []
        # In one go with the writing: nobody waits for it. The question is on its way before the writing begins, and
        # stands behind it all the same.
        about = asyncio.ensure_future(on_file(self._journal, inbound))
        received = asyncio.ensure_future(self._journal.receive(inbound))
        fresh, records = await asyncio.gather(received, about, return_exceptions=True)
        if isinstance(fresh, BaseException):
            raise fresh
        if isinstance(records, BaseException):
            self._log.write("error", "what is on file cannot be read", level="error", cause=str(records))
            records = []
        return fresh, records

    async def _queued(self, inbound: Inbound, records: list[InboxRecord]) -> asyncio.Future[None] | None:
        """Hand on what was written down, as its author has changed it meanwhile; returns its way to the archive."""
        self._log.write(
            "inbound",
            f"{inbound.kind} taken in",
            chat_key=inbound.chat_key,
            request_id=inbound.request_id,
            channel=inbound.channel,
            user_id=inbound.user_id,
            message_id=inbound.message_id,
            addressed=inbound.addressed,
            command=inbound.command.name if inbound.command is not None else None,
            length=len(inbound.text),
            attachments=len(inbound.attachments),
            brought=len(inbound.brought) or None,
        )
        self._participation.joined(inbound.chat_key)
        if (
            inbound.due is None and inbound.kind != "admission"
        ):  # a job says nothing about its chat, nor does a stranger
            await self._delivery.reopen(inbound.channel, inbound.chat_id)
        current = await self._router.current(inbound, records)
        if current is None:
            return None
        # Before its turn begins, so that the archive has the question before the answer. Nobody waits for it here: in
        # a burst every chat's file has to be brought to the disk, and the platform must hear of its events meanwhile.
        archived = None
        if current.kind == "delete" or not withdrawn(current, records):
            archived = self._archive.begin(current)
        self._router.route(current, records)
        return archived

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        await self._journal.keep_dead_letter(channel, key, self._cleaner.words(raw), reason)
        self._log.write(
            "error",
            "an event could not be read and went to the dead letters",
            level="error",
            channel=channel,
            key=key,
            reason=reason,
        )
        self._alerts.tell(
            f"dead letters of {channel}",
            sentence("operators.dead_letter", channel=channel, reason=reason, key=key),
        )

    async def hears_all(self, chat: ChatKey) -> bool:
        return await self._participation.listening(chat) == "always"

    def report_missing_right(self, channel: str, right: str, words: Sentence) -> None:
        self._alerts.tell(f"right of {channel}: {right}", words, every=DAY)

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        return await self._archive.recent(chat_key, limit)

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        return await self._commands.home(opened)

    async def model(self, chat_key: ChatKey) -> str:
        return await self._commands.model(chat_key)

    async def questions(self, chat_key: ChatKey, person: UserRef) -> list[OpenQuestion]:
        return await self._approvals.open_in(chat_key, person)

    async def _refuse(self, inbound: Inbound, verdict: Verdict) -> None:
        """A stranger asks to be let in, once a day at most; nothing they wrote is kept."""
        if inbound.addressed == "chat":
            return  # nobody has spoken to the bot
        self._log.write(
            "denied",
            f"refused: {verdict.reason}",
            chat_key=inbound.chat_key,
            channel=inbound.channel,
            user_id=inbound.user_id,
            reason=verdict.reason,
        )
        if (
            verdict.reason != "stranger"
            or inbound.addressed == "thread"
            or inbound.kind not in {"message", "added"}
        ):
            return
        await self._handed_over(request_of(inbound, self._ids.ulid(), self._clock.now()))
