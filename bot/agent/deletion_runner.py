"""Taking out of a conversation what its archive says was removed: out of the view, the summary and the memory."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from bot import errors
from bot.agent.compactor import Compactor
from bot.agent.deps import AgentDeps
from bot.agent.memory_writer import MemoryWriter
from bot.agent.user_message import fresh_nonce
from bot.agent.view_changes import ViewChanges
from bot.context import deletions as reading
from bot.context.store import RunningTurn
from bot.contracts.base import Message
from bot.contracts.environment import storage_errors_logged
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import UNCHANGED, Boundary, Unchanged
from bot.core import memory


class DeletionRunner:
    """The removals of one chat. They are carried out between turns: `due` until they are."""

    def __init__(
        self,
        chat_key: ChatKey,
        view_changes: ViewChanges,
        memory: MemoryWriter,
        compactor: Compactor,
        deps: AgentDeps,
    ) -> None:
        self.due = True
        self._ended = False
        self._erasing: asyncio.Future[int] | None = None
        self._chat_key = chat_key
        self._view_changes = view_changes
        self._memory = memory
        self._compactor = compactor
        self._deps = deps

    def request(self) -> None:
        """Something is to be removed, as the archive says: it is due from now on."""
        self.due = True

    def end(self) -> None:
        """Carry out nothing any more."""
        self._ended = True

    async def carry_out(self) -> bool:
        """Carry out what is due; whether the view has changed. What was blanked stays so, also after a restart and in
        an earlier session that is taken up again. Raises `errors.StorageError`; it is due then as before.
        """
        changed = await self._change_view()
        if self._erasing is not None:
            await asyncio.wait([self._erasing])
        return changed

    async def attempt(self) -> bool:
        """The same where a disk that refuses, or takes long to erase, must not keep the chat from going on: what it refuses
        is tried again.
        """
        with storage_errors_logged(
            self._deps.log, "what was removed is still in view", chat_key=self._chat_key
        ):
            return await self._change_view()
        return False

    async def redact_older(self, cut_off: RunningTurn) -> None:
        """Take what was removed meanwhile out of the older messages that a turn had loaded before a crash; all of them
        where nobody can say what was.
        """
        if not cut_off.older:
            return
        try:
            gone = reading.read_deletions(await self._deps.history.archive.removals(self._chat_key))
        except errors.StorageError:
            gone = None
        cut_off.redact_older(gone)

    async def _change_view(self) -> bool:
        if not self.due or self._ended:
            return False
        self.due, done = False, False  # A wish that comes meanwhile makes it due again.
        try:
            removals = await self._deps.history.archive.removals(self._chat_key)
            changed = bool(removals) and await self._take_back(reading.read_deletions(removals))
            done = True
        finally:
            self.due |= not done
        return changed

    async def _take_back(self, wanted: reading.Deletions) -> bool:
        await self._compactor.stop()
        await self._memory.take_back(wanted.turns)
        await self._written()
        lines = await self._deps.history.transcript.telling(
            self._chat_key, wanted.words | wanted.answers, functools.partial(reading.tells, wanted)
        )
        wanted = reading.with_quotes(lines, wanted)
        await self._compactor.stop()
        await self._memory.take_back(wanted.turns)
        uuids, since = reading.ids_to_redact(lines, wanted)
        ids, quoted_since = reading.quoted(lines, wanted)
        if uuids or ids:
            head: Message | Unchanged | None = UNCHANGED
            since = min(filter(None, (since, quoted_since)), default=0)
            if self._view_changes.store.head is not None and reading.summed_up(lines, since):
                head = self._head()
            self._view_changes.apply("deletion", Boundary(blank=tuple(uuids), unquoted=tuple(ids), head=head))
            await self._written()
        # Once more: what was written in between may have seen it.
        await self._compactor.stop()
        await self._memory.take_back(wanted.turns, redacted=True)
        shown = [*uuids, *(turn for turn, gone in wanted.turns.items() if gone & set(ids))]
        self._erase(reading.shown_between(lines, wanted), shown)
        return bool(uuids or ids)

    def _erase(self, spans: list[tuple[str, str]], shown: Sequence[str]) -> None:
        """Erase the words from the requests that were recorded in these spans; what is `shown` (ULIDs) was so until now."""
        if shown:
            spans.append((min(shown), self._deps.ids.ulid()))
        self._erasing = self._deps.history.requests.remove(self._chat_key, spans)
        self._erasing.add_done_callback(self._erased)

    def _erased(self, erasing: asyncio.Future[int]) -> None:
        if erasing.cancelled() or erasing.exception() is not None:
            self.due = True  # Operators were told; the next look tries again, after a restart too.

    def _head(self) -> Message | None:
        """Return the message that stands for the compacted turns: the memory without the removed messages; None without a memory."""
        words = self._memory.markdown
        return memory.head(words, nonce=fresh_nonce(self._deps)) if words else None

    async def _written(self) -> None:
        if not await self._view_changes.ledger.flush():
            raise errors.StorageError("the transcript cannot be written")
