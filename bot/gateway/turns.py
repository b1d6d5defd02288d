"""What is done with one inbound once it is its turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from bot import errors
from bot.context.deletions import REMOVED
from bot.contracts.agent import Agent, PriorReply, TurnRequest
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import InboxRecord, Journal
from bot.gateway.access import Access
from bot.gateway.address import Address
from bot.gateway.approvals import ApprovalService, TurnSuspension
from bot.gateway.attachments.notices import may_hold_text, unseen
from bot.gateway.attachments.reader import FileReader
from bot.gateway.backlog import LIMIT, Backlog
from bot.gateway.changes import Changes, Rest
from bot.gateway.commands import Commands, beside, once
from bot.gateway.conversation import MODES
from bot.gateway.delivery import ChatReply, Delivery
from bot.gateway.intake import GatewayIntake
from bot.gateway.jobs.due import merged
from bot.gateway.lanes import DiskSpace, Lanes, TurnPlan
from bot.gateway.opening import TOLD, Opening
from bot.gateway.presence import working
from bot.gateway.reading import Reading
from bot.gateway.relations import belongs, follows, joins, person, plain
from bot.gateway.removals import Removals
from bot.gateway.running import Running, Turn
from bot.gateway.stops import Stops
from bot.telemetry.context import turn_scope

EMPTY = "Your message was empty. What would you like to tell me?"
RUSH = 16
"""Messages being written down side by side: more come in than are taken in one after another."""
MOST_BESIDE = 1_000
"""Commands that run beside the lanes; more of them wait in those as everything does. A stop never waits."""


class Turns:
    """The gateway's work: `queue` puts an inbound where it belongs, `work` does it when its lane is free."""

    def __init__(
        self,
        *,
        agent: Agent,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        journal: Journal,
        delivery: Delivery,
        access: Access,
        approvals: ApprovalService,
        files: FileReader,
        clock: Clock,
        log: Log,
        max_concurrent: int,
        mode: str = "steer",
        debounce: float = 0.0,
        most_waiting: int = LIMIT,
        disk: DiskSpace,
    ) -> None:
        self._agent = agent
        self._channels = channels
        self._manifests = manifests
        self._arrears = delivery.arrears
        self._delivery = delivery
        self._clock = clock
        self._log = log
        self._mode = MODES[mode]
        self._running: Running = {}
        self._again: set[str] = set()
        self._notices: set[str] = set()
        self._beside: set[str] = set()
        self.lanes = Lanes(
            self.work, self._sorry, limit=max_concurrent, log=log, clock=clock, mode=self._mode, debounce=debounce,
            freed=self._freed, rush=self._rush, disk=disk,
        )  # fmt: skip
        self._approvals = approvals
        approvals.floor = TurnSuspension(self._running, self.lanes.parked, self._unread)
        late = self._late = dict[str, str]()
        self.opening = Opening(
            agent=agent, journal=journal, arrears=delivery.arrears, lanes=self.lanes, running=self._running, aside=self._aside,
            again=self._again.add, notices=self._notices.add, late=late, removed=self._removed,
            quiet=lambda inbound: delivery.quiet(Address.of(inbound)), log=log,
        )  # fmt: skip
        self.backlog = Backlog(
            journal=journal, lanes=self.lanes, bring=self.opening.bring, known=self._known, clock=clock, log=log,
            limit=most_waiting,
        )  # fmt: skip
        self.stops = Stops(
            agent=agent, lanes=self.lanes, running=self._running, access=access, finish=self._finish,
            off_file=self.backlog.stop, late=late,
        )  # fmt: skip
        self.changes = Changes(
            arrears=delivery.arrears, lanes=self.lanes, running=self._running, added=self._added, stop=self.stops.end,
            settling=self.backlog.settling,
        )  # fmt: skip
        self.files = files
        self._reading = Reading(agent, channels, files, log)
        self.commands: Commands
        self.removals: Removals
        self._intake: GatewayIntake

    @property
    def intake(self) -> GatewayIntake:
        return self._intake

    @intake.setter
    def intake(self, intake: GatewayIntake) -> None:
        self._intake = self.opening.taken_in = intake
        self._reading.admitted = intake.admitted

    def _freed(self, who: UserRef) -> None:
        self.backlog.freed(who)

    def _rush(self) -> bool:
        return len(self._intake.in_flight) >= RUSH

    # ------------------------------------------------------------ queueing

    def queue(self, inbound: Inbound, records: Sequence[InboxRecord] = ()) -> None:
        """Where an inbound that was taken in belongs: into its lane, or beside it. `records` is what is on file about
        its message. Before its channel is open, and where memory holds enough, it stays in the journal.
        """
        if not self.backlog.opened(inbound.channel):
            self.backlog.admits(inbound)
        elif self._aside(inbound):
            return
        elif inbound.kind in {"edit", "delete"}:
            self._do_aside(inbound, partial(self._changed, inbound, self.changes.carry_out(inbound, records)))
        elif self.backlog.admits(inbound):
            self._added(inbound)

    async def _changed(self, change: Inbound, rest: Rest) -> None:
        """An edit or a deletion, once what it says of its message is in the archive: its row must not be closed before."""
        forgetting = None
        with self.removals.under_way(change):
            await self._intake.archived(change)
            if change.kind == "delete" and await self._removed(change):
                forgetting = asyncio.create_task(self._agent.forget(change.chat_key))
        await rest()
        if forgetting is not None:
            await self._recorded(forgetting)

    async def _removed(self, deletion: Inbound) -> bool:
        """Whether something was removed; what the disk refuses to remove now goes later."""
        found = await self.removals.attempt(deletion)
        if found is None:
            self.lanes.beside(self.removals.at_last(deletion))
        return bool(found)

    async def open(self, channel: str) -> int:
        """A channel is connected: what a crash or a stop left unfinished goes on, oldest first, and after it what
        came in meanwhile. Returns how many go on.
        """
        return await self.backlog.open(channel)

    async def stop(self, inbound: Inbound) -> str:
        return await self.stops.stop(inbound)

    def _added(self, inbound: Inbound) -> None:
        self.lanes.put(inbound)
        if self._approvals.steer(inbound):
            return
        turn = self._running.get(inbound.chat_key)
        if self._mode.interrupts and turn is not None and turn.asked and follows(inbound, turn.first):
            self.lanes.beside(self.stops.end(turn))

    def _aside(self, inbound: Inbound) -> bool:
        """Do what passes every queue: stops, and commands that do not touch the conversation."""
        if inbound.is_stop or (beside(inbound) and len(self._beside) < MOST_BESIDE):
            self._do_aside(inbound, partial(self._carried_out, inbound, partial(self._command, inbound)))
            return True
        return False

    def _do_aside(self, inbound: Inbound, work: Callable[[], Awaitable[None]]) -> None:
        async def done() -> None:
            try:
                await work()
            finally:
                self._beside.discard(inbound.request_id)

        self._beside.add(inbound.request_id)
        self.lanes.beside(done())

    def _known(self) -> Iterator[str]:
        """The requestIds of all that is seen to already."""
        yield from self.lanes.known()
        yield from self._beside
        yield from self._intake.in_flight
        yield from self._arrears.closing
        for turn in self._running.values():
            yield from (inbound.request_id for inbound in turn.joined)

    # ------------------------------------------------------------ work

    async def work(self, portion: TurnPlan) -> None:
        """One portion from claim to done. Cancelled, it stays unfinished in the journal."""
        first = portion.first
        turn = self._running.get(first.chat_key)
        if turn is None or turn.first.request_id != first.request_id:
            turn = self._running[first.chat_key] = Turn(portion)
        # The first before the others: one that a kill leaves claimed alone would count as part of a turn that never had it.
        self._claim(portion.all if portion.rest else ())
        await self._carried_out(first, partial(self._handle, turn), turn)
        # Only now: an edit that comes before the end is on file is one that came too late for this turn.
        del self._running[first.chat_key]

    async def _carried_out(
        self, inbound: Inbound, handle: Callable[[], Awaitable[str]], turn: Turn | None = None
    ) -> None:
        with turn_scope(chat_key=inbound.chat_key, request_id=inbound.request_id):
            # The journal keeps its order, so nobody need wait for the claim before the work begins.
            claimed = asyncio.ensure_future(self._arrears.claim(inbound.request_id))
            if once(inbound):
                await claimed
            try:
                outcome = await self._told(inbound) or await handle()
            except errors.ShipmateError as error:
                self._log.write("error", f"{type(error).__name__}: {error}", level="error")
                await self._notify(inbound, error.person)
                outcome = "failed"
            await claimed
            if turn is not None:
                # Before the first: after a crash in between, that one still knows what became of them.
                await self._close(turn)
            await self._finish(inbound, outcome)

    async def _told(self, inbound: Inbound) -> str:
        """What a message comes to whose answer by a notice was begun before a restart, and is brought to its end; ""
        where there was none, or it did not arrive.
        """
        if inbound.request_id not in self._notices:
            return ""
        self._notices.discard(inbound.request_id)
        to = Address.of(inbound)
        if not await self._delivery.told(to):
            return ""
        await self._delivery.quiet(to)
        await self._delivered(to)
        return TOLD

    async def _sorry(self, portion: TurnPlan) -> None:
        """Work failed in a way that nobody foresaw: the person hears of it, and it is not tried again."""
        first = portion.first
        with turn_scope(chat_key=first.chat_key, request_id=first.request_id):
            await self._notify(first, errors.ShipmateError.person)
            await self._close(self._running[first.chat_key])
            await self._finish(first, "failed")
            del self._running[first.chat_key]

    async def _command(self, inbound: Inbound) -> str:
        if inbound.kind == "stop":
            # The platform shows by itself what became of its button.
            await self.stops.stop(inbound)
            return "stop"
        words = self._late.pop(inbound.request_id, "") or await self.commands.run(inbound)
        await self._notify(inbound, words)
        return "command"

    async def _handle(self, turn: Turn) -> str:
        first = turn.first
        if first.command is not None:
            return await self._command(first)
        if any(inbound.says for inbound in turn.portion.all):
            return await self._turn(turn)
        if first.kind == "edit":
            return "recorded"
        attachments = [one for inbound in turn.portion.all for one in inbound.attachments]
        if any(map(may_hold_text, attachments)):
            return await self._turn(turn)
        return await self._unanswered(turn, unseen(attachments, full=self.files.full, log=self._log))

    async def _unanswered(self, turn: Turn, words: str) -> str:
        await self._notify(turn.first, words or EMPTY)
        return "nothing to answer"

    async def _turn(self, turn: Turn) -> str:
        first = turn.first
        to, answered = Address.of(first), partial(self._close, turn)
        if first.due is not None and (words := merged(first.due)):
            turn.below.append(words)
        every = self._manifests[first.channel].indicate_every
        rests = partial(self._approvals.waits, first.chat_key)
        async with working(self._delivery, to, self._clock, every, shown=turn.portion.begun, rests=rests):
            context = await self._reading.thread(turn)
            begun = await self._delivered(to)
            says = await self._complete(turn)
            if turn.stopped or not turn.left:
                return "stopped"
            if not all(one.failed for one in begun):
                turn.below.clear()  # it stands below what they were sent
            elif not says:
                return await self._unanswered(turn, "\n".join(turn.below))
            reply = ChatReply(self._delivery, to, turn.below, answered)
            request = TurnRequest(
                first.request_id,
                first.chat_key,
                inbound=first if first in turn.left else _blank(first),
                context=context,
                reply=reply,
                also=tuple(one for one in turn.left if one is not first),
                files=partial(self._reading.seen, turn),
                take_more=partial(self._taken, turn, joins) if self._mode.steers else None,
                preview=partial(self._delivery.preview, to),
                begun=begun,
                written=lambda: reply.written,
            )
            turn.asked = True
            outcome = await self._agent.run(request)
            turn.over = True
            await self._recorded(self._approvals.over(first.request_id, begun=turn.portion.begun))
        if outcome.notice is not None:
            # The transcript has this end, so the first message knows after a crash what the others were to be told.
            await self._close(turn)
            await self._notify(first, "\n\n".join([outcome.notice, *turn.below]))
        return outcome.status

    async def _complete(self, turn: Turn) -> bool:
        """Read the files of a turn, with what its person sends meanwhile where that is one turn; whether it says anything
        then. What was deleted meanwhile is gone.
        """
        says, more = False, True
        while more and not turn.stopped:
            says = await self._reading.files(turn)
            await self.removals.settled(turn.first.chat_key)
            waits = self._mode.collects and not (turn.portion.begun or turn.stopped)
            more = waits and bool(self._taken(turn, belongs))
        return says

    def _unread(self, first: Inbound) -> bool:
        """Whether the person of a turn has said more, which that will take up."""
        return self._mode.steers and self.lanes.find(first.chat_key, person(first), plain) is not None

    def _taken(self, turn: Turn, wanted: Callable[[Inbound, Inbound], bool]) -> list[Inbound]:
        """What its person has sent since a turn began, and that is part of it now."""
        first = turn.first
        more = self.lanes.take_next(first.chat_key, person(first), lambda other: wanted(other, first))
        turn.join(more)
        self._claim(more)
        return more

    def _claim(self, inbounds: Sequence[Inbound]) -> None:
        """Record that they are being answered. The journal keeps its order, so nobody waits for that."""
        for inbound in inbounds:
            self.lanes.beside(self._arrears.claim(inbound.request_id))

    async def _close(self, turn: Turn) -> None:
        """What was answered together with the first message is done: nothing asks it again."""
        while turn.open:
            inbound = turn.open.pop(0)
            await self._finish(inbound, turn.outcome(inbound))

    async def _delivered(self, to: Address) -> tuple[PriorReply, ...]:
        """What a turn that goes on after a crash has said, its begun deliveries brought to an end first."""
        if to.request_id not in self._again:
            return ()
        self._again.discard(to.request_id)
        return await self._delivery.resume(to)

    async def _notify(self, inbound: Inbound, words: str) -> None:
        """Tell the person something that is not part of the conversation. A failure is in the log already."""
        with contextlib.suppress(errors.DeliveryFailed):
            await self._delivery.send(Address.of(inbound), words, kind="notice", owed=True)

    async def _finish(self, inbound: Inbound, outcome: str) -> None:
        await self._intake.archived(inbound)
        await self._arrears.finish(inbound.request_id, outcome)

    async def _recorded(self, change: Awaitable[None]) -> None:
        """Await a change on disk. Where that refuses, work goes on; what stays unfinished is for the next start."""
        try:
            await change
        except errors.StorageError as error:
            self._log.write("error", "a change could not be recorded", level="error", cause=str(error))


def _blank(inbound: Inbound) -> Inbound:
    """A message that was deleted before the agent had it: others are answered in its place."""
    return inbound.model_copy(update={"text": REMOVED, "attachments": (), "quoted": (), "links": ()})
