"""Writes the memory of one chat anew once enough was said, beside the turns, traces its lines to their messages, and takes out of
it what has to go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bot import errors
from bot.agent.deps import AgentDeps
from bot.agent.view_changes import ViewChanges
from bot.context.store import AgentContextStore
from bot.contracts.base import Json, Message
from bot.contracts.environment import ends_within
from bot.contracts.identity import ChatKey
from bot.contracts.memory_files import Written
from bot.contracts.provenance import NOBODYS
from bot.core import blocks, compaction, forks, memory
from bot.core.memory import MemoryInvalid, SessionMemory
from bot.core.notes.memories import SavedMemory
from bot.core.notes.provenance import carried
from bot.tools.permissions import taint
from bot.words import sentence

_HEADING = "## "


class Recollection:
    """The lines of the memory of one chat, and what of it is on file.

    A line may come from any turn that was in view when it was first written, and from all that the lines have which
    it took the place of: more than it does come from, and never less. But what is written once a removal has been
    carried out has not seen what was removed: those removals are kept with the memory.
    """

    def __init__(self, chat_key: ChatKey, deps: AgentDeps) -> None:
        self._chat_key = chat_key
        self._deps = deps
        self._lines: list[tuple[str, tuple[Written, ...]]] = []
        self._on_file: str | None = None
        self._seen = NOBODYS
        self._removed: frozenset[str] = frozenset()

    def origin(self, view: Sequence[Message]) -> str:
        """The block that says whose words a summary of this view stands for; "" where anybody's may be among them."""
        self.saw(view)
        return taint.summed(self._seen)

    def saw(self, messages: Sequence[Message]) -> None:
        """Messages in view of the request that writes the memory, as `prefix_of` shows them."""
        self._seen |= taint.seen(taint.faded(messages))

    async def load(self) -> SavedMemory | None:
        """The memory that is on file. Raises `errors.StorageError`."""
        if self._deps.history.memories is None:
            return None
        kept = await self._deps.history.memories.load(self._chat_key)
        self._take(kept)
        return kept

    async def changed(self) -> tuple[bool, SavedMemory | None]:
        """Return True if another writer has changed the file since, as far as it can be read, and its content now."""
        if self._deps.history.memories is None:
            return False, None
        try:
            kept = await self._deps.history.memories.load(self._chat_key)
        except errors.StorageError:
            return False, None
        if (kept.markdown if kept is not None else None) == self._on_file:
            return False, kept
        self._take(kept)
        return True, kept

    async def save(self, markdown: str, covers: str | None, tokens: int, store: AgentContextStore) -> None:
        """Put the memory on file that was written while what the store shows was in view. Raises `errors.StorageError`."""
        self.saw(store.view())
        ts = int(self._deps.clock.now() * 1000)
        new = [Written(ts, turn.request_id, self._chat_key, None) for turn in store.turns]
        if store.head is not None and not self._lines:
            # A summary of turns that no line tells of: the memory was lost, or left behind with another conversation.
            new.insert(0, self._up_to(ts, new[:1]))
        lines = markdown.split("\n")
        sources = carried(self._lines, lines, new, oldest=lambda some: self._up_to(ts, some))
        self._lines = list(zip(lines, sources, strict=True))
        if self._deps.history.memories is not None:
            written = tuple(by for _, by in self._lines)
            removed = tuple(sorted(self._removed))
            await self._deps.history.memories.save(
                self._chat_key, SavedMemory(markdown, covers, ts, tokens, written, removed, self._seen)
            )
            self._on_file = markdown

    async def forget(self) -> None:
        """Begin without one. Raises `errors.StorageError`."""
        self._lines, self._on_file, self._seen = [], None, NOBODYS
        if self._deps.history.memories is not None:
            await self._deps.history.memories.forget(self._chat_key)

    def without(self, turns: Mapping[str, frozenset[str]]) -> tuple[int, SessionMemory | None]:
        """Return the number of lines that may tell of the removed messages (ids by turn), and the memory without
        them; None where that is nothing.
        """
        kept = [line for line, by in self._lines if line.startswith(_HEADING) or not self._tells(by, turns)]
        try:
            return len(self._lines) - len(kept), memory.read("\n".join(kept))
        except MemoryInvalid:
            return len(self._lines) - len(kept), None

    def carried_out(self, removed: Iterable[str]) -> None:
        """The messages with these ids are gone, from the view too: nothing that is written from now on has seen them."""
        self._removed = self._removed.union(removed)

    def _up_to(self, ts: int, some: Sequence[Written]) -> Written:
        """Return a source that stands for every turn up to the newest of these, or for any turn at all. ULIDs sort by time."""
        if not some or any(by.span == "any" for by in some):
            return Written(ts, "", self._chat_key, None, span="any")
        return Written(ts, max(by.request_id for by in some), self._chat_key, None, span="up_to")

    def _tells(self, written: Sequence[Written], turns: Mapping[str, frozenset[str]]) -> bool:
        """Return True if a line may come from these turns; a line without a known source may come from any."""
        all_of_them = not written or any(by.span == "any" for by in written)
        newest = max((by.request_id for by in written if by.span == "up_to"), default="")
        exactly = {by.request_id for by in written}
        return any(
            ids - self._removed
            for turn, ids in turns.items()
            if all_of_them or turn in exactly or turn <= newest
        )

    def _take(self, kept: SavedMemory | None) -> None:
        self._on_file = kept.markdown if kept is not None else None
        self._seen = kept.origin if kept is not None else NOBODYS
        self.carried_out(kept.removed if kept is not None else ())
        lines = kept.markdown.split("\n") if kept is not None else []
        written = kept.written if kept is not None and len(kept.written) == len(lines) else ((),) * len(lines)
        self._lines = list(zip(lines, written, strict=True))


FAILED = (errors.ShipmateError, MemoryInvalid)
"""The errors of a fork and of a memory's file."""


def prefix_of(
    view_changes: ViewChanges, current: Sequence[Message] = (), stand_in: Sequence[Json] = ()
) -> forks.Prefix:
    """The beginning of a chat's next request, without foreign text; with `stand_in` for a system prompt that is not known."""
    shown, spent = [*view_changes.store.view()], view_changes.chat_totals.asked
    history, now = taint.faded(shown), taint.faded(current)
    if view_changes.system and (history, now) == (shown, [*current]):
        return forks.Prefix(view_changes.system, history, now, spent)
    # What was thought, or summed up, behind another prompt would be refused.
    return forks.in_words(forks.Prefix(view_changes.system or stand_in, history, now, spent))


class MemoryWriter:
    """The memory of one chat. `known` is what it says; `covers` is the newest entry that it knows of."""

    def __init__(self, chat_key: ChatKey, view_changes: ViewChanges, deps: AgentDeps) -> None:
        self.known: SessionMemory | None = None
        self.covers: str | None = None
        self.lines = Recollection(chat_key, deps)
        self._chat_key = chat_key
        self._view_changes = view_changes
        self._store = view_changes.store
        self._deps = deps
        self._since: str | None = None
        self._failures = 0
        self._before: tuple[SessionMemory, str] | None = None
        self.writing: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.writing is not None

    @property
    def markdown(self) -> str:
        """The memory as it is now; "" where there is none."""
        return self.known.markdown if self.known is not None else ""

    async def load(self) -> None:
        """Take up the memory that is on file. One that cannot be read is as good as none."""
        try:
            self._remember(await self.lines.load())
        except FAILED as error:
            self._write("the memory cannot be read", error)

    async def look_again(self) -> None:
        """Take up what an operator has made of the memory meanwhile."""
        changed, kept = await self.lines.changed()
        if changed:
            self._reset()
            try:
                self._remember(kept)
            except MemoryInvalid as error:
                self._write("the memory cannot be read", error)

    async def forget(self) -> None:
        """A new conversation begins: what was remembered of the old one goes. Raises `errors.StorageError`."""
        await self.stop()
        await self.lines.forget()
        self._reset()

    async def take_back(self, turns: Mapping[str, frozenset[str]], *, redacted: bool = False) -> None:
        """Messages of these turns are removed (their ids): so is every line of the memory that may tell of them. `redacted`:
        the view shows them no longer. Raises `errors.StorageError`.
        """
        await self.stop()
        await self.look_again()
        self._before = None
        lost, left = self.lines.without(turns)
        if lost and left is not None:
            await self.keep(left, None)
        elif lost:
            self.known = self.covers = self._since = None
            await self.lines.forget()
        if redacted:
            self.lines.carried_out(one for ids in turns.values() for one in ids)

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
        await self.lines.forget()

    async def stop(self) -> None:
        """Give up what is being written."""
        await give_up(self.writing)

    async def written(self, seconds: float) -> None:
        """Wait for what is being written, for so long at the most; give it up then: it would take the place of a memory that
        knows more.
        """
        if self.writing is not None and not await ends_within(seconds, self.writing, self._deps.clock):
            await self.stop()

    def turn_ended(self, *, over_cap: bool = False) -> None:
        """Begin to write the memory anew, beside whatever comes next, where enough was said; less is enough where the view is
        over the cap.
        """
        deps = self._deps
        if self.writing is not None or deps.history.memories is None:
            return
        new = list(compaction.since([turn.named for turn in self._store.turns], self._since))
        calls = sum(len(blocks.tool_calls(message["content"])) for message in new)
        tokens = deps.models.estimator.messages(deps.models.name, new)
        due = over_cap and compaction.EXTRACT_SHARE * len(new) >= deps.limits.max_messages
        if due or compaction.wants_extraction(tokens, calls):
            self._begin()

    def _begin(self) -> None:
        self.writing = asyncio.create_task(self._extract())
        self.writing.add_done_callback(self._ended)

    async def catch_up(self, seconds: float) -> None:
        """Bring the memory up to date with all that was said, where that takes no longer than this."""
        await self.written(seconds)
        if self.covers != self._store.newest:
            self._begin()
            await self.written(seconds)

    async def keep(self, known: SessionMemory, covers: str | None) -> None:
        """Remember this from now on, and put it on file. Raises `errors.StorageError`; it is remembered all the same."""
        if self.known is not None and self.covers is not None:
            self._before = (self.known, self.covers)
        self.known, self.covers, self._since = known, covers, covers
        markdown = known.markdown
        tokens = known.tokens
        self._deps.log.write("memory", "the memory of the chat is written", tokens=tokens, covers=covers)
        await self.lines.save(markdown, covers, tokens, self._store)

    async def _extract(self) -> None:
        """Write the memory anew. After a failure, the next try comes when as much is new once more."""
        newest = self._since = self._store.newest
        prefix = prefix_of(self._view_changes)
        self._view_changes.note_read()
        try:
            await self.look_again()
            self._since = newest
            # A cut may come before it is written.
            self.lines.saw(prefix.messages)
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
