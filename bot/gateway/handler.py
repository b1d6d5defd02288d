"""Carries out one inbound, once, and ends it in the journal together with the last words about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bot import errors
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import FAILED, InboxEnd, Journal
from bot.contracts.outbound import OutboxRow
from bot.gateway.address import Address
from bot.gateway.conversation import Close, Ended, Turn
from bot.gateway.delivery import Delivery
from bot.gateway.inbound_archive import InboundArchive
from bot.gateway.scheduler import Scheduler
from bot.telemetry.context import turn_scope

NOT_IDEMPOTENT = frozenset({"undo"})
"""Commands that do something else when they are carried out again."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of an inbound, and what its person is told then. That is no part of the conversation."""

    end: InboxEnd
    say: str = ""


class InboundHandler:
    """Carries out inbounds for turns and for commands. A disk that refuses ends none of them."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        journal: Journal,
        archive: InboundArchive,
        delivery: Delivery,
        log: Log,
    ) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._archive = archive
        self._delivery = delivery
        self._log = log

    async def handle(
        self, inbound: Inbound, work: Callable[[], Awaitable[Ending]], turn: Turn | None = None
    ) -> None:
        """Do the work of an inbound, and record its end. Cancelled before that, it stays unfinished in the journal."""
        with turn_scope(chat_key=inbound.chat_key, request_id=inbound.request_id):
            if turn is not None:
                await self._begin(turn)
            try:
                ending = await work()
            except errors.ShipmateError as error:
                self._log.write("error", f"{type(error).__name__}: {error}", level="error")
                ending = Ending(FAILED, error.person)
            if turn is not None:
                await self._end(turn, ending)
            else:
                await self.finish(inbound, ending)

    async def fail(self, turn: Turn) -> None:
        """End a turn that failed in a way that nobody foresaw: its person hears of it, and it is not tried again."""
        first = turn.first
        with turn_scope(chat_key=first.chat_key, request_id=first.request_id):
            if turn.end is None:
                await self._end(turn, Ending(FAILED, errors.ShipmateError.person))

    async def finish(self, inbound: Inbound, ending: Ending) -> None:
        """End an inbound that is in no turn, once it is in the archive."""
        await self._archive.archived(inbound)
        finish = self._journal.post.finish
        record = partial(finish, inbound.request_id, ending.end)
        await self._delivery.conclude(Address.of(inbound), ending.say, record)

    async def _begin(self, turn: Turn) -> None:
        # The journal keeps its order: only what must not be done twice waits for it.
        first, members = turn.first, [one.request_id for one in turn.plan.all]
        begun = self._journal.post.begin_turn(first.request_id, first.chat_key, members)
        if turn.stopped:  # a stop came before it
            self._journal.post.stop_turn(first.request_id)
        if not_idempotent(first):
            await begun

    async def _end(self, turn: Turn, ending: Ending) -> None:
        """Record how a turn and all that is left of it ended, once that is in the archive."""
        first = turn.first
        effects = self._scheduler.apply(first.chat_key, Ended(ending.end))
        closes = [effect for effect in effects if isinstance(effect, Close)]
        for close in closes:
            await self._archive.archived(close.inbound)
        members = {close.inbound.request_id: close.end for close in closes}
        state = ending.end.of_turn if turn.left else "withdrawn"

        def record(rows: Sequence[OutboxRow]) -> Awaitable[None]:
            return self._journal.post.end_turn(first.request_id, state, members, rows)

        await self._delivery.conclude(Address.of(first), ending.say, record)


def not_idempotent(inbound: Inbound) -> bool:
    """True for a command that must not be carried out again where a crash may have cut it off."""
    return inbound.command is not None and inbound.command.name in NOT_IDEMPOTENT
