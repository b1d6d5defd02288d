"""Edits and deletions: before a message's turn they replace or withdraw it, during it they steer or stop, after it they
are recorded. What comes before its message is on file, and is found when that comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bot.contracts.inbound import Inbound
from bot.contracts.journal import InboxRecord, Journal
from bot.gateway.backlog import Backlog
from bot.gateway.lanes import Lanes
from bot.gateway.relations import person, same_message
from bot.gateway.revisions import original, outdated, revised, whole
from bot.gateway.running import Running, Turn
from bot.gateway.steering import Steering
from bot.gateway.stops import Stops

Rest = Callable[[], Awaitable[None]]
"""What is left to do."""


class Changes:
    """Carries out edits and deletions. An edit that comes while its message's turn runs is queued; a turn of which
    nothing is left ends.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        lanes: Lanes,
        running: Running,
        steering: Steering,
        stops: Stops,
        backlog: Backlog,
    ) -> None:
        self._journal = journal
        self._lanes = lanes
        self._running = running
        self._steering = steering
        self._stops = stops
        self._backlog = backlog

    def carry_out(self, change: Inbound, records: Sequence[InboxRecord]) -> Rest:
        """Where the message waits or its turn runs, at once: what is left to be recorded is returned. Else the journal
        knows what became of it.
        """
        return self._in_memory(change, records) or partial(self._on_file, change, records)

    def _in_memory(self, change: Inbound, records: Sequence[InboxRecord]) -> Rest | None:
        if change.kind == "edit" and outdated(change, records):
            return partial(self._journal.post.finish, change.request_id, "outdated")
        return self._edit(change) if change.kind == "edit" else self._delete(change)

    def _edit(self, edit: Inbound) -> Rest | None:
        chat_key = edit.chat_key
        waiting = self._lanes.find(chat_key, person(edit), lambda other: same_message(other, edit))
        if waiting is not None:
            fresh = revised(waiting, edit)
            if waiting.kind == "edit":
                fresh = fresh.model_copy(update={"ts": max(waiting.ts, edit.ts)})
            self._lanes.replace(fresh)
            # On its way before its turn can begin: after a crash its row tells that the turn had these words.
            return partial(self._replaced, asyncio.ensure_future(self._journal.post.amend(fresh)), edit)
        turn = self._running.get(chat_key)
        if turn is not None and (message := turn.about(edit)) is not None:
            # Taken up by the turn, or one of its own after it, as any message that comes while a turn runs.
            self._steering.add(whole(message, edit))
            return _nothing
        return None

    def _delete(self, deletion: Inbound) -> Rest | None:
        chat_key = deletion.chat_key
        gone = self._lanes.take(chat_key, lambda other: same_message(other, deletion))
        turn = self._running.get(chat_key)
        if turn is not None and turn.about(deletion) is not None:
            return partial(self._withdrawn, gone, deletion, turn if turn.withdraw(deletion) else None)
        return partial(self._withdrawn, gone, deletion, None) if gone else None

    async def _replaced(self, amending: Awaitable[bool | None], edit: Inbound) -> None:
        await amending
        await self._journal.post.finish(edit.request_id, "replaced")

    async def _withdrawn(self, gone: Sequence[Inbound], deletion: Inbound, stop: Turn | None) -> None:
        for inbound in gone:
            await self._journal.post.finish(inbound.request_id, "withdrawn")
        if stop is not None:
            await self._stops.end(stop)
        await self._journal.post.finish(deletion.request_id, "withdrew")

    async def _on_file(self, change: Inbound, records: Sequence[InboxRecord]) -> None:
        """The message is neither waiting nor being answered here."""
        async with self._backlog.settling:
            rest = self._in_memory(change, records)
            if rest is not None:
                await rest()
                return
            record = original(change, records)
            if record is None:
                await self._journal.post.finish(change.request_id, "recorded before its message")
            elif record.state in {"done", "dead"}:
                await self._journal.post.finish(change.request_id, "recorded")
            elif change.kind == "delete":
                await self._withdrawn([record.inbound], change, None)
            else:
                await self._amended(revised(record.inbound, change), change)

    async def _amended(self, fresh: Inbound, edit: Inbound) -> None:
        waited = await self._journal.post.amend(fresh) is not False
        await self._journal.post.finish(edit.request_id, "replaced" if waited else "recorded")


async def _nothing() -> None:
    """It waits in its lane."""
