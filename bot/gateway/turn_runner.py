"""Runs turns: shows that work is being done, reads what a turn begins with, asks the agent, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from bot import text
from bot.contracts.agent import Agent, TurnRequest
from bot.contracts.channel import TITLE, Manifest
from bot.contracts.environment import Clock, Log, storage_errors_logged
from bot.contracts.inbound import Inbound, SeenFile
from bot.contracts.journal import ANSWERED, FAILED, STOPPED, InboxEnd, InboxWrites, Journal
from bot.contracts.outbound import Address
from bot.core.attachments import FileReader
from bot.core.chat import QueueMode
from bot.core.file_words import UNSEEN, UNSEEN_BY_MODEL, unseen
from bot.core.removal import REMOVED
from bot.core.reply import question
from bot.features.jobs.job import merged
from bot.gateway.approvals import ApprovalService
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import InFlight
from bot.gateway.commands import Commands
from bot.gateway.conversation import (
    CAME_TOO_LATE,
    HANDLED,
    AgentFinished,
    AgentStarted,
    OutputStarted,
    Turn,
    TurnClosed,
    TurnEnded,
)
from bot.gateway.deletions import DeletionService
from bot.gateway.delivery import ChatReply, Delivery
from bot.gateway.effects import EffectRunner, InboundOutcome, not_idempotent
from bot.gateway.questions import QuestionService
from bot.gateway.turn_inputs import TurnInputs
from bot.gateway.turn_queue import TurnQueue
from bot.telemetry.context import on_waiting_for_model
from bot.words import say

SHOWN_AFTER = 0.4
"""Seconds: an answer that is quicker than this needs no sign, and a second is all a person should wait for it."""


@contextlib.asynccontextmanager
async def working(
    delivery: Delivery,
    to: Address,
    clock: Clock,
    every: float,
    *,
    shown: bool = False,
    rests: Callable[[], bool] = bool,
    title: str = "",
) -> AsyncIterator[None]:
    """Show that work is being done on an address for as long as the block runs; what is still shown of an answer then
    is brought to its end, unless the block was cancelled and so goes on later. Never fails the block. `shown`: an
    earlier process may have shown it, and then it is cleared however soon the work is done. While it `rests`, as when a
    person is waited for, nothing is shown anew. `title` names the conversation, "" leaves it as it is.
    """

    async def show() -> None:
        nonlocal shown, title
        await clock.sleep(SHOWN_AFTER)
        while True:
            if not rests():
                shown = True
                await delivery.indicate(to, working=True)
            if title:
                await delivery.entitle(to, title)
                title = ""
            await clock.sleep(every)

    delivery.progress.begin(to)
    task = asyncio.create_task(show())
    try:
        yield
    except asyncio.CancelledError:
        delivery.leave(to)
        raise
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await delivery.ended(to)
        if shown:
            await delivery.indicate(to, working=False)


_ENDS = {"done": ANSWERED, "failed": FAILED, "stopped": STOPPED}


class TurnArrivals:
    """`contracts.agent.Arrivals` of one turn. Only what `steers` is taken into a turn that runs."""

    def __init__(
        self,
        turn: Turn,
        turn_inputs: TurnInputs,
        turn_queue: TurnQueue,
        post: InboxWrites,
        *,
        steers: bool,
    ) -> None:
        self._turn = turn
        self._turn_inputs = turn_inputs
        self._turn_queue = turn_queue
        self._post = post
        self._steers = steers
        self._joining: list[Awaitable[None]] = []
        self._noted: set[str] = set()

    @property
    def quiet(self) -> bool:
        return all(one.overheard for one in self._turn.left)

    async def files(self, inbound: Inbound) -> Sequence[SeenFile]:
        return await self._turn_inputs.seen(self._turn, inbound)

    def unshown(self, artifacts: Collection[str], *, blind: bool) -> None:
        self._turn_inputs.unshown(self._turn, artifacts, UNSEEN_BY_MODEL if blind else UNSEEN)

    def note(self, words: str) -> None:
        if words not in self._noted:
            self._noted.add(words)
            self._turn.below.append(words)

    def take_more(self) -> list[Inbound]:
        return self.take() if self._steers else []

    def take(self) -> list[Inbound]:
        """Take what its person has sent since the turn began, also before the agent has it; it is part of the turn now."""
        first = self._turn.first
        if self._turn_queue.running(first.chat_key) is not self._turn:
            return []
        more = self._turn_queue.take_more(first.chat_key)
        if more:
            # The journal keeps its order, so nobody waits for that but a question that is put anew.
            self._joining.append(self._post.join_turn(first.request_id, [one.request_id for one in more]))
        return more

    async def joined(self) -> None:
        """As in the protocol. What the disk refuses is written once it takes something again."""
        await asyncio.gather(*[asyncio.shield(one) for one in self._joining])

    def effect_begins(self) -> None:
        if self._turn_queue.running(self._turn.first.chat_key) is self._turn:
            self._turn_queue.apply(self._turn.first.chat_key, OutputStarted())


class TurnRunner:
    """Runs each turn that the turn queue lets begin."""

    def __init__(
        self,
        *,
        agent: Agent,
        manifests: Mapping[str, Manifest],
        journal: Journal,
        delivery: Delivery,
        approvals: ApprovalService,
        questions: QuestionService,
        files: FileReader,
        turn_inputs: TurnInputs,
        commands: Commands,
        deletions: DeletionService,
        effects: EffectRunner,
        turn_queue: TurnQueue,
        in_flight: InFlight,
        mode: QueueMode,
        tasks: BackgroundTasks,
        clock: Clock,
        log: Log,
    ) -> None:
        self._agent = agent
        self._manifests = manifests
        self._journal = journal
        self._delivery = delivery
        self._approvals = approvals
        self._questions = questions
        self._files = files
        self._turn_inputs = turn_inputs
        self._commands = commands
        self._deletions = deletions
        self._effects = effects
        self._turn_queue = turn_queue
        self._in_flight = in_flight
        self._mode = mode
        self._tasks = tasks
        self._clock = clock
        self._log = log

    def start(self) -> None:
        """Run turns from now on."""
        self._tasks.serve(self._serve())
        self._tasks.serve(self._effects.serve())

    async def drain(self, seconds: float) -> bool:
        """Start nothing new and let what runs end; after `seconds` it is cancelled. True where all ended."""
        self._turn_queue.close()
        return await self._tasks.drain(seconds)

    async def _serve(self) -> None:
        while True:
            turn = await self._turn_queue.next_turn()
            self._tasks.start(self._run(turn), partial(self._ended, turn))
            await self._in_flight.rest()

    def _ended(self, turn: Turn, well: bool) -> None:  # noqa: FBT001 - a callback
        if well:
            self._turn_queue.give_back()
        else:
            self._tasks.start(self._failed(turn), partial(self._released, turn))

    async def _failed(self, turn: Turn) -> None:
        await self._effects.fail(turn)
        self._close(turn)

    def _released(self, turn: Turn, well: bool) -> None:  # noqa: FBT001 - a callback
        if not well:
            # Its end is not on file: the next start takes it up again.
            if turn.end is None:
                self._turn_queue.apply(turn.first.chat_key, TurnEnded(FAILED))
            self._close(turn)
        self._turn_queue.give_back()

    def _close(self, turn: Turn) -> None:
        if self._turn_queue.running(turn.first.chat_key) is turn:
            self._turn_queue.apply(turn.first.chat_key, TurnClosed())

    # ------------------------------------------------------------ work

    async def _run(self, turn: Turn) -> None:
        """One turn from `begin_turn` to `end_turn`. Cancelled, it stays unfinished in the journal."""
        await self._effects.handle(turn.first, partial(self._handle, turn), turn)
        # Only now: what comes next in this chat stands below its last words.
        self._turn_queue.apply(turn.first.chat_key, TurnClosed())

    async def _handle(self, turn: Turn) -> InboundOutcome:
        first = turn.first
        if first.command is not None:
            if turn.plan.begun and not_idempotent(first):
                prefix = self._manifests[first.channel].command_prefix
                return InboundOutcome(HANDLED, say("commands.cut_off", prefix=prefix))
            return await self._commands.carry_out(first)
        attachments = [one for inbound in turn.plan.all for one in inbound.attachments]
        says = any(inbound.says for inbound in turn.plan.all)
        if not says and first.kind == "edit":
            return InboundOutcome(CAME_TOO_LATE)
        if not says and not any(one.may_be_read for one in attachments):
            return _unanswered(turn, unseen(attachments, full=self._files.full, log=self._log))
        try:
            return await self._turn(turn)
        finally:
            await self._deletions.end(turn)

    async def _turn(self, turn: Turn) -> InboundOutcome:
        first = turn.first
        to = Address.of(first)
        if first.due is not None and (words := merged(first.due)):
            turn.below.append(words)
        every = self._manifests[first.channel].indicate_every

        def rests() -> bool:
            waits = self._approvals.waits(first.chat_key) or self._questions.waits(first.chat_key)
            return waits or _unasked(turn) or self._delivery.grows(to)

        title = text.preview(first.readable, TITLE) if first.opens else ""
        if not _unasked(turn):
            on_waiting_for_model(partial(self._delivery.progress.waiting, to))
        shown = turn.plan.begun
        async with working(self._delivery, to, self._clock, every, shown=shown, rests=rests, title=title):
            await self._deletions.settled(first.chat_key)
            context = await self._turn_inputs.thread(turn)
            begun = await self._delivery.resume(to) if turn.plan.begun else ()
            arrivals = TurnArrivals(
                turn,
                self._turn_inputs,
                self._turn_queue,
                self._journal.post,
                steers=self._mode.steers,
            )
            says = await self._complete(turn, arrivals)
            stopped = turn.stopped or not turn.left
            if stopped and not turn.plan.begun:
                return InboundOutcome(STOPPED)
            if not all(one.failed for one in begun):
                turn.below.clear()  # it stands below what they were sent
            elif not says and not stopped:
                return _unanswered(turn, "\n".join(turn.below))
            pending_input = bool(self._turn_queue.apply(first.chat_key, AgentStarted()))
            reply = ChatReply(
                self._delivery,
                to,
                turn.below,
                arrivals.effect_begins,
                place=None if begun else first.renews,
                above="" if begun else question(first),
            )
            turn.written = reply.written
            request = TurnRequest(
                first.request_id,
                first.chat_key,
                inbound=first if first in turn.left else _blank(first),
                context=context,
                reply=reply,
                also=tuple(one for one in turn.left if one is not first),
                arrivals=arrivals,
                pending_input=pending_input,
                begun=begun,
                stopped=stopped,
            )
            outcome = await self._agent.run(request)
            self._turn_queue.apply(first.chat_key, AgentFinished())
            # What stays unfinished is for the next start.
            with storage_errors_logged(self._log, "a change could not be recorded"):
                await self._approvals.over(first.request_id, begun=turn.plan.begun)
        unasked = outcome.status == "failed" and _unasked(turn)
        notice = [] if outcome.notice is None or unasked else [outcome.notice, *turn.below]
        return InboundOutcome(_ENDS[outcome.status], "\n\n".join(notice))

    async def _complete(self, turn: Turn, arrivals: TurnArrivals) -> bool:
        """Read the files of a turn, with what its person sends meanwhile where that is one turn; whether it says anything
        then. What was deleted meanwhile is gone.
        """
        says, more = False, True
        while more and not turn.stopped:
            says = await self._turn_inputs.files(turn)
            await self._deletions.settled(turn.first.chat_key)
            more = bool(arrivals.take())
        return says


def _unanswered(turn: Turn, words: str) -> InboundOutcome:
    """The end of a message that gives the model nothing to answer."""
    said = InboxEnd("answered", "nothing to answer")
    return InboundOutcome(said, "" if _unasked(turn) else words or say("turn.empty"))


def _unasked(turn: Turn) -> bool:
    """True where all of its messages were only said in the chat: nobody waits for anything."""
    return all(one.addressed == "chat" for one in turn.left)


def _blank(inbound: Inbound) -> Inbound:
    """A message that was deleted before the agent had it: others are answered in its place."""
    return inbound.model_copy(update={"text": REMOVED, "attachments": (), "quoted": (), "links": ()})
