"""Carries out what conversations decide: closes and amends rows, stops turns, lets approvals and questions hear of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bot.contracts.inbound import Inbound
from bot.contracts.journal import WITHDRAWN, InboxRecord, Journal
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
    StopTurn,
    merged_into,
)
from bot.gateway.questions import QuestionService
from bot.gateway.relations import taken_in_at
from bot.gateway.revisions import completed, original, revised
from bot.gateway.scheduler import Scheduler
from bot.gateway.stops import Stops

Rest = Callable[[], Awaitable[None]]
"""The rest of the work."""


class EffectRunner:
    """Tells chats of messages, edits and deletions, and does what they say."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        journal: Journal,
        approvals: ApprovalService,
        questions: QuestionService,
        stops: Stops,
        backlog: Backlog,
        tasks: BackgroundTasks,
    ) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._approvals = approvals
        self._questions = questions
        self._stops = stops
        self._backlog = backlog
        self._tasks = tasks

    def queue(self, inbound: Inbound, taken_in: float | None = None) -> None:
        """Queue an inbound in its chat. It may answer what a turn waits for, or interrupt it. `taken_in` as in `Message`."""
        self._begun(self._scheduler.apply(inbound.chat_key, Message(inbound, taken_in)))

    def change(self, change: Inbound, records: Sequence[InboxRecord]) -> Rest:
        """Carry out an edit or a deletion; `records` is what is on file about its message. Where that waits or is being
        answered, it counts at once, and what is left to be recorded is returned. Else the journal knows what became of it.
        """
        effects = self._decided(change, records)
        if effects is not None:
            return self._begun(effects)
        if _in_time(change, records):
            # It came before the end of its message was on file, and waited for a turn of its own when the process died.
            self.queue(completed(change, records), taken_in_at(change))
            return partial(_each, ())
        return partial(self._look_up, change, records)

    def _decided(self, change: Inbound, records: Sequence[InboxRecord]) -> list[Effect] | None:
        event = Edit(change, records) if change.kind == "edit" else Delete(change)
        effects = self._scheduler.apply(change.chat_key, event)
        return None if any(isinstance(effect, LookUp) for effect in effects) else effects

    def _begun(self, effects: Sequence[Effect]) -> Rest:
        """Begin to carry out effects; what is left is returned."""
        rest: list[Callable[[], Awaitable[object]]] = []
        for effect in effects:
            match effect:
                case CancelWait(turn):
                    self._approvals.cancel(turn)
                case Answer(turn, inbound):
                    self._questions.answer(turn, inbound)
                case Amend(inbound, edit):
                    # On its way before its turn can begin: after a crash the rows tell that the turn had these words.
                    amending = self._journal.post.amend(inbound, [edit.request_id])
                    rest.append(partial(_done, amending))
                case StopTurn(turn) if any(isinstance(one, Close) for one in effects):
                    rest.append(partial(self._stops.end, turn))
                case StopTurn(turn):
                    self._tasks.start(self._stops.end(turn))
                case Close(inbound, end):
                    rest.append(partial(self._journal.post.finish, inbound.request_id, end))
        return partial(_each, rest)

    async def _look_up(self, change: Inbound, records: Sequence[InboxRecord]) -> None:
        """The message neither waits in memory nor is it being answered."""
        async with self._backlog.settling:
            effects = self._decided(change, records)
            if effects is not None:
                await self._begun(effects)()
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
                waited = await amending is not False
                await finish(change.request_id, merged_into(record.inbound) if waited else CAME_TOO_LATE)


def _in_time(change: Inbound, records: Sequence[InboxRecord]) -> bool:
    """True of an edit that was taken in before its message had ended."""
    message = original(change, records)
    own = next((one for one in records if one.inbound.request_id == change.request_id), None)
    if change.kind != "edit" or own is None or message is None or message.open:
        return False
    return own.received_at < message.changed_at


async def _done(work: Awaitable[object]) -> None:
    await work


async def _each(rest: Sequence[Callable[[], Awaitable[object]]]) -> None:
    for one in rest:
        await one()
