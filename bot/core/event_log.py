"""Port of the event log, which is the durable source of truth for all chats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core.events import Event


@dataclass(frozen=True, slots=True)
class ChatStats:
    """Totals of a chat since its beginning, and the chat's present state.

    `calls` are model calls. `input_tokens` were neither read from a cache nor written to a cache. `cost_usd`
    excludes the `unpriced` calls. `tokens` is the token estimate for the `messages`; `masked_tokens` of these
    tokens are not sent to the model.
    """

    turns: int = 0
    calls: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    messages: int = 0
    tokens: int = 0
    masked_tokens: int = 0


RESTORED = "restored"
"""Kind and key of the fact that a restore writes, so that the first start closes unfinished work."""
Committed = Callable[[Mapping[ChatKey, int]], None]
"""Callback on the event loop after a commit; receives the newest event number on disk for each chat in the commit."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position from which a chat is folded: `base`, or `open` if that is older. `open` is the oldest event
    that unfinished work depends on; None if no work is unfinished.
    """

    base: int = 0
    open: int | None = None

    @property
    def first(self) -> int:
        """Return the number of the first event that is needed to rebuild the chat's state."""
        return self.base if self.open is None else min(self.base, self.open)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event to write, the position of the chat's state after it, and its data as JSON. `blanks` are events
    whose text this event removes, each with its new stored data.
    """

    event: Event
    position: Position
    raw: str = ""
    blanks: Sequence[tuple[Event, str]] = ()


class EventLog(Protocol):
    """Appends events in order, never refuses an event, and reports when events are on disk. `trouble` is the
    disk's error message; "" if there is no error. Methods that read or change the disk raise
    `errors.StorageError`.
    """

    trouble: str

    def append(self, entries: Sequence[Entry]) -> None:
        """Append all entries in one transaction, after everything appended earlier. An event that is already
        in the log changes nothing.
        """
        ...

    async def committed(self, *, patient: bool = True) -> None:
        """Wait until everything appended so far is on disk, however often writes fail. With `patient=False`,
        raise at the first failed write; its events stay pending.
        """
        ...

    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]:
        """Return a chat's events in order, beginning with number `since`."""
        ...

    async def of_kinds(self, chat: ChatKey, kinds: Collection[str], since: float) -> list[Event]:
        """Return a chat's events of these kinds since a time (epoch seconds), in order, with pending events."""
        ...

    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]:
        """Return the events on disk after global number `n`, of all chats in commit order, with their numbers."""
        ...

    async def chats(self) -> list[ChatKey]:
        """Return all chats that have events on disk."""
        ...

    async def cursor(self, export: str) -> int:
        """Return the global event number up to which an export is written; 0 at first."""
        ...

    async def move_cursor(self, export: str, n: int) -> None: ...

    async def position(self, chat: ChatKey) -> Position | None:
        """Return the position of a chat; None if the chat is not in the log."""
        ...

    async def open_chats(self) -> list[ChatKey]:
        """Return the chats with unfinished work."""
        ...

    async def newest(self) -> str:
        """Return the greatest event id on disk; "" if there are no events."""
        ...

    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]:
        """Return the events of a chat and its threads that refer to one of these request, turn or message
        ids, in commit order.
        """
        ...

    async def chat_of(self, request: str) -> ChatKey | None:
        """Return the chat that this request, turn or task belongs to."""
        ...

    async def usage(self, chat: ChatKey) -> ChatStats:
        """Return a chat's usage totals since the chat's beginning."""
        ...

    async def known(self, keys: Collection[str]) -> bool:
        """Return True if an event with one of these platform keys is in the log or pending."""
        ...

    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> dict[ChatKey, float]:
        """Return the conversations of a chat and its threads that have messages since the given time, newest
        first, each with the time of its newest message.
        """
        ...

    async def first_words(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        """Return the text of the first message of each chat that has one besides commands."""
        ...

    async def facts(self) -> dict[tuple[str, str], Json]:
        """Return all facts by kind and key."""
        ...

    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]:
        """Return two event numbers of a chat: its oldest event, and its first event not older than `at`
        (epoch seconds). If all events are older, the second is the number that the next event will get.
        Returns 0 and 0 if the chat has no events.
        """
        ...

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        """Delete a chat's events before this number, with their platform keys. Usage totals are kept."""
        ...

    def watch(self, committed: Committed) -> None: ...

    async def close(self) -> None:
        """Write pending events if the disk accepts them, then close the log."""
        ...
