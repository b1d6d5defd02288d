"""The archive port: lines of what was said, and queries for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

from bot.contracts.base import Frozen, Json, Role
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound


class ArchiveLine(Frozen):
    """One line of `.ship/chats/*.jsonl`: what a person or the bot said. `ts` in milliseconds."""

    v: int = 1
    ts: int
    channel: str
    chat_id: str
    chat_key: ChatKey
    user_id: str | None = None
    message_id: str | None = None
    role: Literal["user", "assistant", "system", "tool"]
    text: str
    meta: Json | None = None

    @classmethod
    def of(cls, inbound: Inbound, **fields: Any) -> Self:
        """The line of what a person said, or that comes of it: with these fields in the place of the inbound's own."""
        own: dict[str, Any] = {
            "ts": inbound.ts,
            "channel": inbound.channel,
            "chat_id": inbound.chat_id,
            "chat_key": inbound.chat_key,
            "user_id": inbound.user_id,
            "message_id": inbound.said_as,
            "role": "user",
            "text": inbound.text,
        }
        return cls(**own | fields)

    @property
    def request_id(self) -> str:
        """The inbound that it is of, or answers; "" where none is known."""
        return str((self.meta or {}).get("requestId") or "")


class ArchiveKey(NamedTuple):
    """The identity of an archive line in one chat, by whichever author, with an id or without."""

    ts: int
    role: str
    message: str
    """The id of the message, or its words where it has none."""
    chat: str | None = None
    """The chatKey of a line of another chat: platforms count messages from 1 in each."""

    @classmethod
    def of(cls, line: ArchiveLine, chat_key: ChatKey) -> Self:
        """The identity of a line in this chat."""
        other = None if line.chat_key == chat_key else str(line.chat_key)
        return cls(line.ts, line.role, line.message_id or line.text, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFilter:
    """Filter and page of archive lines. `keyword` is literal text, any case; `before` is exclusive, `after` inclusive
    (milliseconds); `offset` counts matches, after `skip` has been applied.
    """

    limit: int = 30
    offset: int = 0
    keyword: str | None = None
    role: Role | None = None
    before: int | None = None
    after: int | None = None
    skip: Callable[[ArchiveLine], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery(ArchiveFilter):
    """A window into the archive, whose matches count newest first. What was removed, and what an edit has taken the
    place of, is left out but where `everything` counts. Where `counted` is false, little is read behind the last line
    of the window, however long the chat is, and the page's `total` may end there.
    """

    everything: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """`lines` in time order; `total` counts every match that was looked for, all there are where it is `counted`, and
    `unreadable` the lines that could not be read on the way.
    """

    lines: list[ArchiveLine]
    total: int
    unreadable: int = 0
    counted: bool = True


class Archive(Protocol):
    """Lines of conversations on disk (`bot.core.archive.store.ChatStore`)."""

    async def search(self, chat_key: ChatKey, query: HistoryQuery) -> HistoryPage: ...

    async def flush(self) -> None:
        """Return once that was tried with every line that was to be appended before; none of them waits any longer."""
        ...

    async def removals(self, chat_key: ChatKey) -> list[ArchiveLine]:
        """The lines that say of messages of a chat that they were removed (`bot.core.archive.window`). `meta.of` has the
        requestIds that are meant, `meta.ofRole` whose words they were. Raises `errors.StorageError`.
        """
        ...
