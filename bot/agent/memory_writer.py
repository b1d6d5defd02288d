"""Writes the memory of one chat anew once enough was said, beside the turns, and takes out of it what has to go."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bot import errors
from bot.agent import forks
from bot.agent.deps import AgentDeps
from bot.agent.recollection import Recollection
from bot.agent.view_changes import ViewChanges
from bot.context import blocks, compaction, memory
from bot.context.memory import MemoryInvalid, SessionMemory
from bot.contracts.base import Message
from bot.contracts.environment import ends_within
from bot.contracts.identity import ChatKey
from bot.history.memory.memories import SavedMemory
from bot.words import sentence

FAILED = (errors.ShipmateError, MemoryInvalid)
"""The errors of a fork and of a memory's file."""


class MemoryWriter:
    """The memory of one chat. `known` is what it says; `covers` is the newest entry that it knows of."""

    def __init__(self, chat_key: ChatKey, view_changes: ViewChanges, deps: AgentDeps) -> None:
        self.known: SessionMemory | None = None
        self.covers: str | None = None
        self._chat_key = chat_key
        self._view_changes = view_changes
        self._store = view_changes.store
        self._deps = deps
        self._since: str | None = None
        self._failures = 0
        self._before: tuple[SessionMemory, str] | None = None
        self._lines = Recollection(chat_key, deps)
        self.writing: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.writing is not None

    @property
    def markdown(self) -> str:
        """The memory as it is now; "" where there is none."""
        return self.known.markdown if self.known is not None else ""

    def origin(self, view: Sequence[Message]) -> str:
        """As `Recollection.origin`."""
        return self._lines.origin(view)

    def saw(self, messages: Sequence[Message]) -> None:
        """As `Recollection.saw`."""
        self._lines.saw(messages)

    async def load(self) -> None:
        """Take up the memory that is on file. One that cannot be read is as good as none."""
        try:
            self._remember(await self._lines.load())
        except FAILED as error:
            self._write("the memory cannot be read", error)

    async def look_again(self) -> None:
        """Take up what an operator has made of the memory meanwhile."""
        changed, kept = await self._lines.changed()
        if changed:
            self._reset()
            try:
                self._remember(kept)
            except MemoryInvalid as error:
                self._write("the memory cannot be read", error)

    async def forget(self) -> None:
        """A new conversation begins: what was remembered of the old one goes. Raises `errors.StorageError`."""
        await self.stop()
        await self._lines.forget()
        self._reset()

    async def take_back(self, turns: Mapping[str, frozenset[str]], *, redacted: bool = False) -> None:
        """Messages of these turns are removed (their ids): so is every line of the memory that may tell of them. `redacted`:
        the view shows them no longer. Raises `errors.StorageError`.
        """
        await self.stop()
        await self.look_again()
        self._before = None
        lost, left = self._lines.without(turns)
        if lost and left is not None:
            await self.keep(left, None)
        elif lost:
            self.known = self.covers = self._since = None
            await self._lines.forget()
        if redacted:
            self._lines.carried_out(one for ids in turns.values() for one in ids)

    async def undo(self, gone: Collection[str]) -> None:
        """These are taken back: a memory that knows of them gives way to the one before, or to none, and is written
        anew without them once enough is new. Raises `errors.StorageError`.
        """
        if self._since in gone:
            self._since = self.covers
        if self.covers not in gone:
            return
        before, self._before = self._before, None
        if before is not None and before[1] not in gone:
            await self.keep(*before)
            return
        self.known = self.covers = self._since = None
        await self._lines.forget()

    async def stop(self) -> None:
        """Give up what is being written."""
        await give_up(self.writing)

    async def written(self, seconds: float) -> None:
        """Wait for what is being written, for so long at the most; give it up then: it would take the place of a memory that
        knows more.
        """
        if self.writing is not None and not await ends_within(seconds, self.writing, self._deps.clock):
            await self.stop()

    def turn_ended(self) -> None:
        """Begin to write the memory anew, beside whatever comes next, where enough was said."""
        deps = self._deps
        if self.writing is not None or deps.history.memories is None:
            return
        new = list(compaction.since(self._store.turns, self._since))
        calls = sum(len(blocks.tool_uses(message)) for message in new)
        if compaction.wants_extraction(deps.models.estimator.messages(deps.models.name, new), calls):
            self.writing = asyncio.create_task(self._extract())
            self.writing.add_done_callback(self._ended)

    async def keep(self, known: SessionMemory, covers: str | None) -> None:
        """Remember this from now on, and put it on file. Raises `errors.StorageError`; it is remembered all the same."""
        if self.known is not None and self.covers is not None:
            self._before = (self.known, self.covers)
        self.known, self.covers, self._since = known, covers, covers
        markdown = known.markdown
        tokens = known.tokens
        self._deps.log.write("memory", "the memory of the chat is written", tokens=tokens, covers=covers)
        await self._lines.save(markdown, covers, tokens, self._store)

    async def _extract(self) -> None:
        """Write the memory anew. After a failure, the next try comes when as much is new once more."""
        newest = self._since = self._store.newest
        prefix = forks.prefix_of(self._view_changes)
        self._view_changes.note_read()
        try:
            await self.look_again()
            self._since = newest
            # A cut may come before it is written.
            self.saw(prefix.messages)
            await self.keep(await forks.remember(prefix, self.known, self._deps), newest)
            self._failures = 0
        except FAILED as error:
            self._write("the memory could not be written", error)
            self._failed(error)
        self._view_changes.note_totals()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= compaction.FAILURES and not isinstance(error, errors.BudgetSpent):
            self._deps.operators.tell(
                "the memory of chats",
                sentence(
                    "operators.chat_memory",
                    chat=self._chat_key,
                    times=self._failures,
                    cause=f"{type(error).__name__}: {error}",
                ),
            )

    def _remember(self, kept: SavedMemory | None) -> None:
        self.known = memory.read(kept.markdown) if kept is not None else None
        self.covers = self._since = kept.covers if kept is not None else None

    def _reset(self) -> None:
        self.known = self.covers = self._since = self._before = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.writing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._write("the memory could not be written", error)

    def _write(self, what: str, error: BaseException) -> None:
        cause = f"{type(error).__name__}: {error}"
        self._deps.log.write("memory", what, level="warn", chat_key=self._chat_key, cause=cause)


async def give_up(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
