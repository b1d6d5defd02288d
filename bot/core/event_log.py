"""The port of the event log, the durable truth of all chats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core.events import Event


@dataclass(frozen=True, slots=True)
class ChatStats:
    """Totals of a chat since its beginning, over restarts and `reset`, and its present state.

    `calls` are those of the model. `input_tokens` were neither read from a cache nor written to
    it; `cost_usd` is without the `unpriced` calls. `tokens` of the `messages` are estimated; `masked_tokens` of them are not
    shown to the model.
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


Committed = Callable[[Mapping[ChatKey, int]], None]
"""Called on the event loop after a commit, with the newest event number on disk of each chat in it."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the fold of a chat starts: at `base`, or at `open`, the oldest event that unfinished work
    depends on, if that is older. `open` is None if nothing is unfinished.
    """

    base: int = 0
    open: int | None = None

    @property
    def first(self) -> int:
        """The number of the first event that the fold needs."""
        return self.base if self.open is None else min(self.base, self.open)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event to write, and the position of its chat after it."""

    event: Event
    position: Position
    raw: str = ""
    """The event's data as stored."""
    blanks: Sequence[tuple[Event, str]] = ()
    """Events whose words this one blanks, each with its new stored data."""


class EventLog(Protocol):
    """Appends events in order, never refuses one, and reports when they are on disk. `trouble` is the disk's
    error, "" if there is none.
    """

    trouble: str

    def append(self, entries: Sequence[Entry]) -> None:
        """Append all entries in one transaction, after everything appended before. An event that is in the
        log already changes nothing.
        """
        ...

    async def committed(self, *, patient: bool = True) -> None:
        """Wait until everything appended so far is on disk. If the disk refuses, wait until it recovers;
        with `patient=False` raise `errors.StorageError` at the first refusal. The events stay pending
        either way.
        """
        ...

    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]:
        """Return a chat's events from number `since` on, in order, including pending ones. Raises
        `errors.StorageError`.
        """
        ...

    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]:
        """Return events on disk after global number `n`, of all chats in commit order, with their global
        numbers. Raises `errors.StorageError`.
        """
        ...

    async def chats(self) -> list[ChatKey]:
        """Return all chats that have events on disk. Raises `errors.StorageError`."""
        ...

    async def cursor(self, export: str) -> int:
        """Return the global number up to which an export is written; 0 at first. Raises `errors.StorageError`."""
        ...

    async def move_cursor(self, export: str, n: int) -> None:
        """Set the cursor of an export. Raises `errors.StorageError`."""
        ...

    async def position(self, chat: ChatKey) -> Position | None:
        """Return the position of a chat; None if the log does not know it. Raises `errors.StorageError`."""
        ...

    async def open_chats(self) -> list[ChatKey]:
        """Return the chats with unfinished work. Raises `errors.StorageError`."""
        ...

    async def newest(self) -> str:
        """Return the greatest event id on disk, "" if there is none. Raises `errors.StorageError`."""
        ...

    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]:
        """Return the events of a chat and its threads that refer to one of these request, turn or message
        ids, in commit order. Raises `errors.StorageError`.
        """
        ...

    async def chat_of(self, request: str) -> ChatKey | None:
        """Return the chat of this request, turn or task. Raises `errors.StorageError`."""
        ...

    async def usage(self, chat: ChatKey) -> ChatStats:
        """Return a chat's usage totals since its beginning. Raises `errors.StorageError`."""
        ...

    async def known(self, keys: Collection[str]) -> bool:
        """Return True if an event with one of these keys is in the log. Raises `errors.StorageError`."""
        ...

    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> list[ChatKey]:
        """Return the conversations of a place with messages since then, newest first. Raises `errors.StorageError`."""
        ...

    async def facts(self) -> dict[tuple[str, str], Json]:
        """Return all facts by kind and key. Raises `errors.StorageError`."""
        ...

    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]:
        """Return the number of a chat's oldest event, and of its first event not older than `at` (epoch
        seconds), or of the next one to come; 0 and 0 if the chat has none. Raises `errors.StorageError`.
        """
        ...

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        """Delete a chat's events before this number, with their keys. Usage totals are kept. Raises
        `errors.StorageError`.
        """
        ...

    def watch(self, committed: Committed) -> None:
        """Call `committed` after each commit."""
        ...

    async def close(self) -> None:
        """Write pending events, if the disk accepts them, and close."""
        ...
