"""Routes each inbound: into its chat, past the chats, or to the journal until there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import WITHDRAWN, InboxRecord, Journal
from bot.gateway.archiving import InboundArchive
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog, InFlight
from bot.gateway.commands import Commands, beside
from bot.gateway.effects import AppliedEffects, EffectRunner
from bot.gateway.message_versions import as_changed, edits_of
from bot.gateway.removals import Removals

MOST = 1_000
"""Commands that run beside the queues; more of them wait in those as everything does. A stop never waits."""


class Bypass:
    """Carries out inbounds beside the queues, at once."""

    def __init__(
        self, commands: Commands, effects: EffectRunner, in_flight: InFlight, tasks: BackgroundTasks
    ) -> None:
        self._commands = commands
        self._effects = effects
        self._in_flight = in_flight
        self._tasks = tasks

    def takes(self, inbound: Inbound) -> bool:
        """True where an inbound passes every queue."""
        return (
            inbound.is_stop or inbound.is_signal or (beside(inbound) and len(self._in_flight.beside) < MOST)
        )

    def carry_out(self, inbound: Inbound) -> None:
        """Carry out a stop, or a command."""
        command = partial(self._commands.carry_out, inbound)
        self.start(inbound, partial(self._effects.handle, inbound, command))

    def start(self, inbound: Inbound, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of an inbound beside the queues."""

        async def done() -> None:
            try:
                await work()
            finally:
                self._in_flight.beside.discard(inbound.request_id)

        self._in_flight.beside.add(inbound.request_id)
        self._tasks.start(done())


class InboundRouter:
    """Hands each inbound to the part that does its work."""

    def __init__(
        self,
        *,
        agent: Agent,
        journal: Journal,
        backlog: Backlog,
        bypass: Bypass,
        effects: EffectRunner,
        removals: Removals,
        archive: InboundArchive,
        log: Log,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._backlog = backlog
        self._bypass = bypass
        self._effects = effects
        self._removals = removals
        self._archive = archive
        self._log = log

    def route(self, inbound: Inbound, records: Sequence[InboxRecord] = ()) -> None:
        """Take an inbound that is in the journal; `records` is what is on file about its message. Before its channel is
        open, and where memory holds enough, it stays in the journal.
        """
        passes = self._bypass.takes(inbound) or inbound.kind in {"edit", "delete"}
        if (self._backlog.opened(inbound.channel) and passes) or self._backlog.admits(inbound):
            self.hand_on(inbound, records)

    def hand_on(
        self, inbound: Inbound, records: Sequence[InboxRecord] = (), taken_in: float | None = None
    ) -> None:
        """Hand on an inbound whatever waits already. `taken_in` as in `conversation.Message`."""
        if self._bypass.takes(inbound):
            self._bypass.carry_out(inbound)
        elif inbound.kind in {"edit", "delete"}:
            begun = self._effects.change(inbound, records)
            self._bypass.start(inbound, partial(self._changed, inbound, begun))
        else:
            self._effects.queue(inbound, taken_in)

    async def current(self, inbound: Inbound, records: Sequence[InboxRecord]) -> Inbound | None:
        """A message as its author has changed it meanwhile; None where that withdrew it, which ends it."""
        if inbound.kind != "message":
            return inbound
        fresh = as_changed(inbound, records)
        if fresh is None:
            await self._journal.post.finish(inbound.request_id, WITHDRAWN)
        elif fresh != inbound:
            try:
                await self._journal.amend(fresh, [one.request_id for one in edits_of(inbound, records)])
            except errors.StorageError as error:
                # A restart would make this change again.
                self._log.write("error", "a change could not be recorded", level="error", cause=str(error))
        return fresh

    async def _changed(self, change: Inbound, begun: AppliedEffects) -> None:
        """An edit or a deletion, once what it says of its message is in the archive: its row must not be closed before.
        The next turn is told of an edit by its row, of a deletion by the archive.
        """
        with self._removals.under_way(change):
            await self._archive.archived(change)
            if change.kind == "edit":
                await self._effects.finish(begun)
                return
            places = await self._removals.remove(change)
            forgetting = [asyncio.create_task(self._agent.forget(place)) for place in places]
        await self._effects.finish(begun)
        for task in forgetting:
            try:
                await task
            except errors.StorageError as error:
                self._log.write("error", "a change could not be recorded", level="error", cause=str(error))
