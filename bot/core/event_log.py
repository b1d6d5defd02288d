"""Interface of the event log, the durable source of truth for all chats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core.events import Event


@dataclass(frozen=True, slots=True)
class ChatStats:
    """Totals of a chat since its beginning, and the size of its present context.

    `calls` are model calls. `input_tokens` excludes tokens read from or written to a cache. `cost_usd` excludes the
    `unpriced` calls. `tokens` is the estimated size of the `messages`; placeholders replace `masked_tokens` of it.
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
"""Kind and key of the stored fact that a restored backup sets. The next start then closes unfinished work."""
Committed = Callable[[Mapping[ChatKey, int]], None]
"""Function that is called on the event loop after each commit. It receives the newest event number on disk of each chat concerned."""


@dataclass(frozen=True, slots=True)
class Position:
    """Number of the event from which a chat is rebuilt: the smaller of `base` and `open`. `open` is the oldest event
    that unfinished work needs; None if no work is unfinished.
    """

    base: int = 0
    open: int | None = None

    @property
    def first(self) -> int:
        """Return the number of the first event that rebuilding the chat's state needs."""
        return self.base if self.open is None else min(self.base, self.open)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event to write. `position` is that of the chat after the event, `raw` the event's data as JSON. `blanks` are
    older events whose text this event erases, each with its new stored data.
    """

    event: Event
    position: Position
    raw: str = ""
    blanks: Sequence[tuple[Event, str]] = ()


class EventLog(Protocol):
    """Appends events in order, never refuses one, and tells when events are on disk. `trouble` is the disk's error
    message; "" if there is no error. Methods that read or change the disk raise `errors.StorageError`. Reads include
    events that are not on disk yet, except in `after`, `chats`, `newest` and `chat_of`.

    - `append` writes all entries in one transaction, after everything appended earlier. An event that is already in the
      log is ignored.
    - `committed` waits until everything appended so far is on disk, however often writes fail. With `patient=False`, it
      raises at the first failed write; the events stay queued for writing.
    - `after` returns events of all chats after a global number, in commit order, with their numbers.
    - `naming` returns the events of a chat and its threads that refer to one of these request, turn or message ids.
    - `spoken_in` returns the conversations of a chat and its threads that have a message since a time, the newest
      first. Each value is the time of the conversation's newest message.
    - `first_words` returns each chat's first message that is no command.
    - `older` returns the number of a chat's oldest event, and that of its first event at or after `at`. If there is
      none, the second is the number of the chat's next event. Both are 0 if the chat has no events.
    - `delete_before` deletes a chat's events before a number, with their platform keys. It keeps usage totals.
    """

    trouble: str

    def append(self, entries: Sequence[Entry]) -> None: ...
    async def committed(self, *, patient: bool = True) -> None: ...
    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]: ...
    async def of_kinds(self, chat: ChatKey, kinds: Collection[str], since: float) -> list[Event]: ...
    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]: ...
    async def chats(self) -> list[ChatKey]: ...
    async def cursor(self, export: str) -> int: ...
    async def move_cursor(self, export: str, n: int) -> None: ...
    async def position(self, chat: ChatKey) -> Position | None: ...
    async def open_chats(self) -> list[ChatKey]: ...
    async def newest(self) -> str: ...
    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]: ...
    async def chat_of(self, request: str) -> ChatKey | None: ...
    async def usage(self, chat: ChatKey) -> ChatStats: ...
    async def known(self, keys: Collection[str]) -> bool: ...
    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> dict[ChatKey, float]: ...
    async def first_words(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]: ...
    async def facts(self) -> dict[tuple[str, str], Json]: ...
    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]: ...
    async def delete_before(self, chat: ChatKey, seq: int) -> None: ...
    def watch(self, committed: Committed) -> None: ...
    async def close(self) -> None: ...
