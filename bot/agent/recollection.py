"""Traces the lines of a chat's memory to their messages, so that deletions can remove them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bot import errors
from bot.agent.deps import AgentDeps
from bot.context import memory
from bot.context.memory import MemoryInvalid, SessionMemory
from bot.context.store import AgentContextStore
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.contracts.memory_files import Written
from bot.contracts.provenance import NOBODYS
from bot.history.memory.memories import SavedMemory
from bot.history.memory.provenance import carried
from bot.tools.permissions import taint

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
        """Whoever writes the memory has these in view."""
        self._seen |= taint.seen(messages)

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
