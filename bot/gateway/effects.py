"""Carries out what conversations decide, in life and in recovery, and ends inbounds together with the last words about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import FAILED, GIVEN_UP, WITHDRAWN, InboxEnd, InboxRecord, Journal
from bot.contracts.outbound import Address, OutboxRow
from bot.core.locales import Locales
from bot.core.message_versions import plain, revised
from bot.gateway.approvals import ApprovalService
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog
from bot.gateway.conversation import (
    CAME_TOO_LATE,
    HANDLED,
    UNKNOWN_MESSAGE,
    Amend,
    Answer,
    CancelWait,
    Close,
    Delete,
    Edit,
    Effect,
    LookUp,
    Message,
    RestartModelCall,
    StopTurn,
    Turn,
    TurnEnded,
    TurnPhase,
    WakeAt,
    merged_into,
)
from bot.gateway.delivery import Delivery
from bot.gateway.inbound_archiver import InboundArchiver
from bot.gateway.message_versions import completed, newest, original
from bot.gateway.questions import QuestionService
from bot.gateway.turn_inputs import TurnInputs
from bot.gateway.turn_queue import TurnQueue
from bot.telemetry.context import turn_scope
from bot.words import speaking

NOT_IDEMPOTENT = frozenset({"undo"})
"""Commands that do something else when they are carried out again."""
AGAIN: tuple[Choice, ...] = ("again",)
RENEW: tuple[Choice, ...] = ("renew",)
"""The buttons below the notice of a failure, and below an answer whose question was edited (`retries.Retries`)."""


@dataclass(frozen=True, slots=True)
class InboundOutcome:
    """The end of an inbound, and what its person is told then. That is no part of the conversation."""

    end: InboxEnd
    say: str = ""
    buttons: QuestionButtons | None = None


@dataclass(slots=True)
class AppliedEffects:
    """Effects that count already; `EffectRunner.finish` does the rest of the work."""

    stops: list[Turn] = field(default_factory=list)
    restarts: list[Turn] = field(default_factory=list)
    closes: list[Close] = field(default_factory=list)
    amending: list[Awaitable[object]] = field(default_factory=list)
    look_up: LookUp | None = None


class EffectRunner:
    """The only interpreter of effects. A disk that refuses ends no inbound."""

    def __init__(
        self,
        *,
        agent: Agent,
        turn_queue: TurnQueue,
        journal: Journal,
        archive: InboundArchiver,
        delivery: Delivery,
        approvals: ApprovalService,
        questions: QuestionService,
        turn_inputs: TurnInputs,
        backlog: Backlog,
        locales: Locales,
        tasks: BackgroundTasks,
        log: Log,
    ) -> None:
        self._agent = agent
        self._turn_queue = turn_queue
        self._journal = journal
        self._archive = archive
        self._delivery = delivery
        self._approvals = approvals
        self._questions = questions
        self._turn_inputs = turn_inputs
        self._backlog = backlog
        self._locales = locales
        self._tasks = tasks
        self._log = log

    # ------------------------------------------------------------ effects

    async def serve(self) -> None:
        """Carry out what time brings about, from now on."""
        while True:
            effect = await self._turn_queue.timed.get()
            self._tasks.start(self.finish(self.begin([effect])))

    def queue(self, inbound: Inbound, taken_in: float | None = None) -> None:
        """Queue an inbound in its chat. It may answer what a turn waits for, or interrupt it; one that waits is marked as seen.
        `taken_in` as in `Message`.
        """
        running = self._turn_queue.running(inbound.chat_key)
        begun = self.apply(Message(inbound, taken_in))
        if begun.stops or begun.restarts:
            self._tasks.start(self.finish(begun))
        answers = running is not None and running.suspended and running.first.person == inbound.person
        busy = self._turn_queue.free <= 0 if running is None else not (answers or running.over)
        seen = taken_in is None and plain(inbound) and inbound.addressed != "chat"
        if busy and seen and inbound.message_id is not None:
            self._tasks.start(self._delivery.react(Address.of(inbound), inbound.message_id))

    def _queue_edit(self, edit: Inbound, records: Sequence[InboxRecord]) -> None:
        """Queue an edit that came in time for a turn of its own."""
        row = _row_of(edit, records)
        self.queue(completed(edit, records), None if row is None else row.received_at)

    def change(self, change: Inbound, records: Sequence[InboxRecord]) -> AppliedEffects:
        """Begin an edit or a deletion; `records` is what is on file about its message. Where that waits or is being
        answered, it counts at once. Else the journal knows what became of it.
        """
        return self.apply(Edit(change, records) if change.kind == "edit" else Delete(change, records))

    def apply(self, event: Message | Edit | Delete) -> AppliedEffects:
        """Tell the chat of an inbound of it, and begin what that decides."""
        return self.begin(self._turn_queue.apply(event.inbound.chat_key, event))

    def begin(self, effects: Iterable[Effect]) -> AppliedEffects:
        """Begin to carry out effects: what must come before anything else that happens in the chat."""
        begun = AppliedEffects()
        for effect in effects:
            match effect:
                case CancelWait(turn):
                    self._approvals.cancel(turn)
                    self._questions.cancel(turn)
                case Answer(turn, inbound):
                    self._questions.answer(turn, inbound)
                case Amend(inbound, edit):
                    # On its way before its turn can begin: after a crash the rows tell that the turn had these words.
                    begun.amending.append(self._journal.post.amend(inbound, [edit.request_id]))
                case StopTurn(turn) | RestartModelCall(turn):
                    (begun.restarts if isinstance(effect, RestartModelCall) else begun.stops).append(turn)
                case Close():
                    begun.closes.append(effect)
                case LookUp(change, records) if _in_time(change, records):
                    # Its message has ended since: it waited for a turn of its own when the process died.
                    self._queue_edit(change, records)
                case LookUp():
                    begun.look_up = effect
                case WakeAt():
                    raise errors.IllegalTransition("the turn queue keeps the time of its chats itself")
                case _:
                    assert_never(effect)
        return begun

    async def finish(self, begun: AppliedEffects) -> bool:
        """End turns, then close what is closed, in order and once it is in the archive; whether anything was ended."""
        # What runs must not wait until all that waited is on file.
        ended = [await self.stop(turn) for turn in begun.stops]
        for turn in begun.restarts:
            await self._agent.restart_model_call(turn.first.chat_key)
        for amending in begun.amending:
            await amending
        if begun.look_up is not None:
            await self._look_up(begun.look_up)
        for close in begun.closes:
            await self._archive.archived(close.inbound)
        post = self._journal.post
        await asyncio.gather(*[post.finish(one.inbound.request_id, one.end) for one in begun.closes])
        return any(ended) or bool(begun.closes)

    async def stop(self, turn: Turn) -> bool:
        """End a turn that is stopped, wherever it is; False where it has ended already."""
        if turn.over:
            return False
        self._turn_inputs.cancel(turn)
        # Before it has asked the agent, it sees by itself that it was stopped; a command does not.
        sees = turn.phase is not TurnPhase.RUNNING and (
            turn.first.command is None or turn.phase is TurnPhase.PENDING
        )
        took = sees or await self._agent.stop(turn.first.chat_key)
        if took:
            # Before its person is told: else a crash in between would let it go on.
            self._journal.post.stop_turn(turn.first.request_id)
        return took

    async def _look_up(self, effect: LookUp) -> None:
        """The message of a change neither waits in memory nor is it being answered."""
        change, records = effect.change, effect.records
        async with self._backlog.settling:
            begun = self.change(change, records)
            if begun.look_up is None:
                await self.finish(begun)
                return
            record = original(change, records)
            finish = self._journal.post.finish
            if record is None:
                await finish(change.request_id, UNKNOWN_MESSAGE)
            elif not record.open:
                await finish(change.request_id, CAME_TOO_LATE)
            elif change.kind == "delete":
                await finish(record.inbound.request_id, WITHDRAWN)
                await finish(change.request_id, HANDLED)
            else:
                amending = self._journal.post.amend(revised(record.inbound, change), [change.request_id])
                if await amending is not False:
                    await finish(change.request_id, merged_into(record.inbound))
                else:
                    await self._queue_late_edit(change, record.inbound.request_id, records)
        if change.kind == "edit" and record is not None and not record.open:
            # Once the next turn can know of the edit, which does not wait for the platform and its button.
            self._tasks.start(self._offer(change, newest(change, records) or record))

    async def _queue_late_edit(self, change: Inbound, message: str, records: Sequence[InboxRecord]) -> None:
        """An edit whose message has ended since its row was read, and with that since the edit came. A stop that ended the message
        ends the edit too.
        """
        own, ended = await self._journal.inbound(change.request_id), await self._journal.inbound(message)
        if own is None or not own.open:
            return
        if ended is not None and ended.state not in GIVEN_UP:
            self._queue_edit(change, records)
        else:
            await self._journal.post.finish(change.request_id, CAME_TOO_LATE)

    async def _offer(self, edit: Inbound, record: InboxRecord) -> None:
        """Offer an answer to the new words of a message below the one that it has."""
        if record.state != "answered" or record.turn_id is None or not plain(record.inbound) or not edit.says:
            return
        try:
            answer = only_reply(await self._journal.deliveries(record.turn_id))
        except errors.StorageError as error:
            self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
            return
        if answer is not None:
            await self._delivery.amend(answer.offer(QuestionButtons(edit.request_id, RENEW)))

    # ------------------------------------------------------------ from the beginning of an inbound to its end

    async def handle(
        self, inbound: Inbound, work: Callable[[], Awaitable[InboundOutcome]], turn: Turn | None = None
    ) -> None:
        """Do the work of an inbound, and record its end. Cancelled before that, it stays unfinished in the journal."""
        with turn_scope(chat_key=inbound.chat_key, request_id=inbound.request_id, person=inbound.person):
            if turn is not None:
                await self._begin_turn(turn)
            with speaking(*self._locales.of(inbound)):
                await self._worked(inbound, work, turn)

    async def _worked(
        self, inbound: Inbound, work: Callable[[], Awaitable[InboundOutcome]], turn: Turn | None
    ) -> None:
        try:
            ending = await work()
        except errors.ShipmateError as error:
            self._log.write("error", f"{type(error).__name__}: {error}", level="error")
            ending = InboundOutcome(FAILED, error.person)
        if turn is not None:
            await self._end_turn(turn, ending)
        else:
            await self._archive.archived(inbound)
            record = partial(self._journal.post.finish, inbound.request_id, ending.end)
            await self._delivery.conclude(Address.of(inbound), ending.say, record, ending.buttons)

    async def fail(self, turn: Turn) -> None:
        """End a turn that failed in a way that nobody foresaw: its person hears of it, and it is not tried again."""
        first = turn.first
        with (
            turn_scope(chat_key=first.chat_key, request_id=first.request_id),
            speaking(*self._locales.of(first)),
        ):
            if turn.end is None:
                await self._end_turn(turn, InboundOutcome(FAILED, errors.ShipmateError().person))

    async def _begin_turn(self, turn: Turn) -> None:
        # The journal keeps its order: only what must not be done twice waits for it.
        first, members = turn.first, [one.request_id for one in turn.plan.all]
        begun = self._journal.post.begin_turn(first.request_id, first.chat_key, members)
        if turn.stopped:  # a stop came before it
            self._journal.post.stop_turn(first.request_id)
        if not_idempotent(first):
            await begun

    async def _end_turn(self, turn: Turn, ending: InboundOutcome) -> None:
        """Record how a turn and all that is left of it ended, once that is in the archive."""
        first = turn.first
        closes = self.begin(self._turn_queue.apply(first.chat_key, TurnEnded(ending.end))).closes
        for close in closes:
            await self._archive.archived(close.inbound)
        members = {close.inbound.request_id: close.end for close in closes}
        state = ending.end.of_turn if turn.left else "withdrawn"

        def record(rows: Sequence[OutboxRow]) -> Awaitable[None]:
            return self._journal.post.end_turn(first.request_id, state, members, rows)

        again = QuestionButtons(first.request_id, AGAIN) if state == "failed" and plain(first) else None
        await self._delivery.conclude(Address.of(first), ending.say, record, again)


def only_reply(rows: Sequence[OutboxRow]) -> OutboxRow | None:
    """The answer of a turn, where that is one message which is in the chat, with or without files below it."""
    replies = [row for row in rows if row.kind == "reply" and row.file is None]
    return replies[0] if len(replies) == 1 and replies[0].state == "sent" and replies[0].message_id else None


def not_idempotent(inbound: Inbound) -> bool:
    """True for a command that must not be carried out again where a crash may have cut it off."""
    return inbound.command is not None and inbound.command.name in NOT_IDEMPOTENT


def _in_time(change: Inbound, records: Sequence[InboxRecord]) -> bool:
    """True of an edit whose message had not ended when it was taken in, and has by now."""
    row, message = _row_of(change, records), original(change, records)
    if row is None or row.amends is None or message is None:
        return False
    return not message.open and message.state not in GIVEN_UP


def _row_of(inbound: Inbound, records: Sequence[InboxRecord]) -> InboxRecord | None:
    return next((one for one in records if one.inbound.request_id == inbound.request_id), None)
