"""Carries out one inbound, once: tells its person what went wrong, and ends it in the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import FAILED, InboxEnd, Journal
from bot.gateway.address import Address
from bot.gateway.conversation import Answered, Close, Ended, Turn
from bot.gateway.delivery import Delivery
from bot.gateway.in_flight import PriorWork
from bot.gateway.inbound_archive import InboundArchive
from bot.gateway.scheduler import Scheduler
from bot.telemetry.context import turn_scope

TOLD = InboxEnd("answered", "told before a restart")
NOT_IDEMPOTENT = frozenset({"undo"})
"""Commands that do something else when they are carried out again."""


class InboundHandler:
    """Carries out inbounds for turns and for commands. A disk that refuses ends none of them."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        journal: Journal,
        archive: InboundArchive,
        delivery: Delivery,
        prior: PriorWork,
        log: Log,
    ) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._archive = archive
        self._delivery = delivery
        self._prior = prior
        self._log = log

    async def handle(
        self, inbound: Inbound, work: Callable[[], Awaitable[InboxEnd]], turn: Turn | None = None
    ) -> None:
        """Do the work of an inbound, which returns how that ended. Cancelled, it stays unfinished in the journal."""
        with turn_scope(chat_key=inbound.chat_key, request_id=inbound.request_id):
            if turn is not None:
                await self._begin(turn)
            try:
                end = await self._told(inbound) or await work()
            except errors.ShipmateError as error:
                self._log.write("error", f"{type(error).__name__}: {error}", level="error")
                await self.notify(inbound, error.person)
                end = FAILED
            if turn is not None:
                await self._end(turn, end)
            else:
                await self.finish(inbound, end)

    async def _begin(self, turn: Turn) -> None:
        # The journal keeps its order: only what must not be done twice waits for it.
        first, members = turn.first, [one.request_id for one in turn.plan.all]
        begun = self._journal.post.begin_turn(first.request_id, first.chat_key, members)
        if not_idempotent(first):
            await begun

    async def fail(self, turn: Turn) -> None:
        """End a turn that failed in a way that nobody foresaw: its person hears of it, and it is not tried again."""
        first = turn.first
        with turn_scope(chat_key=first.chat_key, request_id=first.request_id):
            await self.notify(first, errors.ShipmateError.person)
            if turn.end is None:
                await self._end(turn, FAILED)

    async def notify(self, inbound: Inbound, words: str) -> None:
        """Tell the person something that is not part of the conversation. A failure is in the log already."""
        with contextlib.suppress(errors.DeliveryFailed):
            await self._delivery.send(Address.of(inbound), words, kind="notice", owed=True)

    async def close(self, turn: Turn) -> None:
        """Finish what was answered together with the first message of a turn: nothing asks it again."""
        chat_key = turn.first.chat_key
        if self._scheduler.running(chat_key) is turn:  # a tool may outlive its turn
            for effect in self._scheduler.apply(chat_key, Answered()):
                if isinstance(effect, Close):
                    await self.finish(effect.inbound, effect.end)

    async def _end(self, turn: Turn, end: InboxEnd) -> None:
        """Record how a turn and all that is left of it ended, once that is in the archive."""
        effects = self._scheduler.apply(turn.first.chat_key, Ended(end))
        closes = [effect for effect in effects if isinstance(effect, Close)]
        for close in closes:
            await self._archive.archived(close.inbound)
        members = {close.inbound.request_id: close.end for close in closes}
        state = end.of_turn if turn.left else "withdrawn"
        await self._journal.post.end_turn(turn.first.request_id, state, members)

    async def finish(self, inbound: Inbound, end: InboxEnd) -> None:
        """End an inbound once it is in the archive."""
        await self._archive.archived(inbound)
        await self._journal.post.finish(inbound.request_id, end)

    async def delivered(self, to: Address) -> tuple[PriorReply, ...]:
        """Bring the begun deliveries of a turn that goes on after a crash to an end; returns what it has said."""
        if to.request_id not in self._prior.deliveries:
            return ()
        self._prior.deliveries.discard(to.request_id)
        return await self._delivery.resume(to)

    async def _told(self, inbound: Inbound) -> InboxEnd | None:
        """Bring a notice that was begun before a restart to its end; returns the end of the message that it answers, None
        where there was none, or it did not arrive.
        """
        if inbound.request_id not in self._prior.notices:
            return None
        self._prior.notices.discard(inbound.request_id)
        to = Address.of(inbound)
        if not await self._delivery.told(to):
            return None
        await self._delivery.quiet(to)
        await self.delivered(to)
        return TOLD


def not_idempotent(inbound: Inbound) -> bool:
    """True for a command that must not be carried out again where a crash may have cut it off."""
    return inbound.command is not None and inbound.command.name in NOT_IDEMPOTENT
