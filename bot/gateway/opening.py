"""Startup recovery: ends the inbound that need nothing more, and queues the rest in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import STOPPED as STOPPED_END
from bot.contracts.journal import WITHDRAWN, InboxEnd, InboxRecord, Journal
from bot.contracts.outbound import OutboxRow
from bot.gateway.address import Address
from bot.gateway.background import BackgroundTasks
from bot.gateway.bypass import Bypass
from bot.gateway.commands import CUT_OFF
from bot.gateway.conversation import (
    CAME_TOO_LATE,
    HANDLED,
    OUTDATED,
    UNKNOWN_MESSAGE,
    GoesOn,
    Message,
    TurnPlan,
    merged_into,
)
from bot.gateway.delivery import Delivery
from bot.gateway.handler import TOLD, not_idempotent
from bot.gateway.in_flight import InFlight, PriorWork
from bot.gateway.inbound_archive import InboundArchive
from bot.gateway.relations import belongs, stops, stops_below, taken_in_at
from bot.gateway.removals import Removals
from bot.gateway.revisions import as_changed, completed, has, on_file, original, outdated, revised, withdrawn
from bot.gateway.scheduler import Scheduler
from bot.gateway.stops import OVER, STOPPED, TOO_LATE

AT_ONCE = 200
"""Rows that are looked up side by side."""


@dataclass(slots=True)
class _Row:
    """An unfinished inbound, and what is on file of it."""

    inbound: Inbound
    deliveries: list[OutboxRow]
    records: list[InboxRecord]
    end: InboxEnd | None = None

    @property
    def own(self) -> InboxRecord | None:
        name = self.inbound.request_id
        return next((record for record in self.records if record.inbound.request_id == name), None)

    @property
    def turn_id(self) -> str | None:
        """The turn that has it."""
        return self.own.turn_id if self.own is not None and self.own.state == "in_turn" else None

    @property
    def for_the_model(self) -> bool:
        return self.inbound.kind in {"message", "edit"} and self.inbound.command is None


class Opening:
    """`BacklogReader`'s way from the journal to the chats."""

    def __init__(
        self,
        *,
        agent: Agent,
        journal: Journal,
        archive: InboundArchive,
        delivery: Delivery,
        scheduler: Scheduler,
        bypass: Bypass,
        removals: Removals,
        in_flight: InFlight,
        prior: PriorWork,
        tasks: BackgroundTasks,
        log: Log,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._archive = archive
        self._delivery = delivery
        self._scheduler = scheduler
        self._bypass = bypass
        self._removals = removals
        self._in_flight = in_flight
        self._prior = prior
        self._tasks = tasks
        self._halted: dict[tuple[ChatKey, str], Inbound] = {}
        self._log = log

    async def bring(self, inbounds: Sequence[Inbound], stopped: Callable[[Inbound], bool]) -> int:
        """Close what needs nothing more, and queue the rest in its order. Returns how much of that an earlier process
        had left. Raises `errors.StorageError` before anything is queued.
        """
        rows: list[_Row] = []
        for at in range(0, len(inbounds), AT_ONCE):
            rows += await asyncio.gather(*map(self._row, inbounds[at : at + AT_ONCE]))
        for row in rows:
            row.end = _end(row)
        _told_together(rows)
        for stop in [row for row in rows if row.inbound.is_stop]:
            self._prior.answers[stop.inbound.request_id] = _carried_out(
                stop.inbound, rows, self._halted.values()
            )
        self._prior.answers |= {row.inbound.request_id: CUT_OFF for row in rows if self._may_be_done(row)}
        begun = await self._begun([row for row in rows if row.for_the_model and row.end is None])
        inside = {one.request_id for portion in begun.values() for one in portion.all}
        for row in rows:
            if row.end is None and row.inbound.request_id not in inside:
                await self._revise(row, inside)
        for row in rows:
            if row.inbound.kind == "delete":
                await self._removals.remove(row.inbound)
        # Before its row is closed: what a kill has kept out of the archive nobody would miss after that.
        said = [row for row in rows if self._old(row.inbound) and not row.inbound.is_stop]
        await self._add_missing(row.inbound for row in said if not withdrawn(row.inbound, row.records))
        closed = [row for row in rows if row.end is not None]
        await asyncio.gather(
            *(self._journal.post.finish(row.inbound.request_id, row.end) for row in closed if row.end)
        )
        for row in closed:
            self._silence(row)
        left = [row for row in rows if row.end is None]
        self._put(left, begun, stopped)
        return sum(row.end is None for row in said) - sum(len(portion.rest) for portion in begun.values())

    async def _row(self, inbound: Inbound) -> _Row:
        deliveries = self._journal.deliveries(inbound.request_id)
        if inbound.message_id is not None:
            found, records = await asyncio.gather(deliveries, on_file(self._journal, inbound))
            return _Row(inbound, found, records)
        found, record = await asyncio.gather(deliveries, self._journal.inbound(inbound.request_id))
        return _Row(inbound, found, [record] if record is not None else [])

    def _old(self, inbound: Inbound) -> bool:
        first = self._in_flight.first
        return not first or inbound.request_id < first

    def _may_be_done(self, row: _Row) -> bool:
        """True for a command that a crash may have cut off behind what it does."""
        return (
            not_idempotent(row.inbound)
            and row.turn_id is not None
            and row.end is None
            and self._old(row.inbound)
        )

    async def _revise(self, row: _Row, inside: set[str]) -> None:
        """Bring a message that nobody has begun to answer to what its author made of it; see what is left of an edit."""
        if row.inbound.kind == "edit":
            row.end = _edit_end(row, inside)
            row.inbound = completed(row.inbound, row.records)
            return
        if row.inbound.kind != "message" or row.turn_id is not None:
            return
        fresh = as_changed(row.inbound, row.records)
        if fresh is not None and fresh != row.inbound:
            row.inbound = fresh
            try:
                await self._journal.amend(fresh)
            except errors.StorageError as error:
                self._complain("a change could not be recorded", error)

    async def _begun(self, rows: Sequence[_Row]) -> dict[ChatKey, TurnPlan]:
        """The turns that had begun: by chat, what a turn that a crash cut off was answering."""
        chats: dict[ChatKey, list[_Row]] = {}
        for row in rows:
            if self._scheduler.turn(row.inbound.chat_key) is None and self._old(row.inbound):
                chats.setdefault(row.inbound.chat_key, []).append(row)
        portions: dict[ChatKey, TurnPlan] = {}
        for chat_key, group in chats.items():
            portion = _portion(group, await self._cut_off(chat_key))
            if portion is not None:
                portions[chat_key] = portion
        return portions

    async def _cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        try:
            return await self._agent.cut_off(chat_key)
        except errors.StorageError as error:
            # The turn itself will meet this and say so; the other chats go on.
            self._complain("a transcript cannot be read", error)
            return ()

    async def _add_missing(self, inbounds: Iterable[Inbound]) -> None:
        chats: dict[ChatKey, list[Inbound]] = {}
        for inbound in inbounds:
            chats.setdefault(inbound.chat_key, []).append(inbound)
        for chat_key, missing in chats.items():
            try:
                await self._archive.add_missing(chat_key, missing)
            except errors.StorageError as error:
                self._complain("the archive cannot be read", error)

    def _put(
        self, rows: Sequence[_Row], begun: dict[ChatKey, TurnPlan], stopped: Callable[[Inbound], bool]
    ) -> None:
        """Nothing is awaited here: what comes in meanwhile stands behind."""
        heads = {portion.first.request_id: portion for portion in begun.values()}
        inside = {one.request_id for portion in begun.values() for one in portion.rest}
        for row in rows:
            inbound = row.inbound
            if any(delivery.kind in {"reply", "preview", "progress"} for delivery in row.deliveries):
                self._prior.deliveries.add(inbound.request_id)
            if any(map(_begun_notice, row.deliveries)):
                self._prior.notices.add(inbound.request_id)
            if stopped(inbound) and not inbound.is_stop:
                self._halted.setdefault((inbound.chat_key, inbound.user_id), inbound)
                self._journal.post.finish(inbound.request_id, STOPPED_END)
                self._silence(row)
            elif inbound.request_id in heads:
                portion = heads[inbound.request_id]
                self._scheduler.apply(inbound.chat_key, GoesOn(portion))
            elif inbound.request_id not in inside and not self._bypass.take(inbound):
                self._scheduler.apply(inbound.chat_key, Message(inbound, taken_in=taken_in_at(inbound)))

    def _silence(self, row: _Row) -> None:
        """A turn that an earlier process had begun does not go on: what shows it would stay for ever."""
        if row.turn_id is not None and row.for_the_model and self._old(row.inbound):
            self._tasks.start(self._delivery.quiet(Address.of(row.inbound)))

    def _complain(self, what: str, error: errors.StorageError) -> None:
        self._log.write("error", what, level="error", cause=str(error))


def _end(row: _Row) -> InboxEnd | None:
    """The end of an unfinished inbound without a turn; None where it needs one, or may need one."""
    inbound = row.inbound
    notices = [delivery for delivery in row.deliveries if delivery.kind == "notice"]
    if any(notice.state == "sent" for notice in notices) and not any(map(_begun_notice, notices)):
        return TOLD  # a notice is the last thing that happens to an inbound
    if inbound.is_stop:
        # A command is owed an answer; a platform shows by itself what became of its button.
        return None if inbound.command is not None else HANDLED
    if inbound.kind == "delete":
        return HANDLED
    if inbound.kind == "message" and as_changed(inbound, row.records) is None:
        return WITHDRAWN
    return None


def _carried_out(stop: Inbound, rows: Sequence[_Row], halted: Iterable[Inbound]) -> str:
    """Close what a stop reaches that was written down before it; what to say of that. `halted` was closed before."""
    open_rows = [row for row in rows if row.end is None and row.inbound.request_id < stop.request_id]
    before = [row for row in open_rows if not row.inbound.is_stop]
    reached = [row for row in before if stops(stop, row.inbound)]
    reached = reached or [
        row for row in before if stop.command is not None and stops_below(stop, row.inbound)
    ]
    for row in reached:
        row.end = STOPPED_END
    if reached or any(one.request_id < stop.request_id and stops(stop, one) for one in halted):
        return STOPPED
    return TOO_LATE if any(row.inbound.chat_key == stop.chat_key for row in before) else OVER


def _told_together(rows: Sequence[_Row]) -> None:
    """End what is part of a turn whose person was told how it ended."""
    told = {row.inbound.request_id for row in rows if row.end is TOLD and row.for_the_model}
    for row in rows:
        if row.end is None and row.turn_id in told:
            row.end = TOLD


def _begun_notice(delivery: OutboxRow) -> bool:
    return delivery.kind == "notice" and delivery.open


def _edit_end(row: _Row, inside: set[str]) -> InboxEnd | None:
    """The end of an edit that no turn has taken up; None where it is one of its own, or joins the one that goes on."""
    edit, own, message = row.inbound, row.own, original(row.inbound, row.records)
    if row.turn_id is not None or own is None:
        return None
    if outdated(edit, row.records):
        return OUTDATED
    if message is None:
        return UNKNOWN_MESSAGE
    going_on = message.inbound.request_id in inside or message.state == "in_turn"
    if _was_in(row, message) or _taken_up(row) or (message.state == "queued" and not going_on):
        return merged_into(message.inbound)
    # It came while the turn of its message ran, and waits for the next step of that or for a turn of its own.
    return None if going_on or own.received_at < message.changed_at else CAME_TOO_LATE


def _was_in(row: _Row, message: InboxRecord) -> bool:
    """True if a message said what an edit makes of it when its turn began: no other edit was taken up since."""
    others = (one for one in row.records if one.inbound.kind == "edit" and one is not row.own)
    return (
        not any(one.taken_up for one in others) and revised(message.inbound, row.inbound) == message.inbound
    )


def _taken_up(row: _Row) -> bool:
    """True if an earlier edit, that waited for its turn, says what this one does: it took it up then."""
    edit = row.inbound
    open_or_answered = (one for one in row.records if one.open or one.taken_up)
    others = (one.inbound for one in open_or_answered if one.inbound.kind == "edit")
    earlier = (one for one in others if one.request_id < edit.request_id)
    return any(has(one, edit) for one in earlier)


def _portion(rows: Sequence[_Row], sources: Sequence[str]) -> TurnPlan | None:
    """The messages of the turn that had begun in one chat. `sources` are those that its transcript names: where the disk
    refused the rows, it knows more.
    """
    found = {row.inbound.request_id: row for row in rows}
    head = found.get(sources[0]) if sources else None
    head = head or next((row for row in rows if row.turn_id == row.inbound.request_id), None)
    head = head or next((row for row in rows if row.turn_id is not None), None)
    if head is None:
        return None
    rest = [found[source] for source in sources[1:] if source in found] if sources else []
    rest += [row for row in rows if row is not head and row not in rest and _together(row, head)]
    return TurnPlan(head.inbound, tuple(row.inbound for row in rest), begun=True)


def _together(row: _Row, head: _Row) -> bool:
    """True of two messages in one turn."""
    return row.turn_id is not None and row.turn_id == head.turn_id and belongs(row.inbound, head.inbound)
