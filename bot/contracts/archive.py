"""Archive lines, queries for archive lines, and the list of conversations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from bot.contracts.base import Frozen, Json, Role
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound


class ArchiveLine(Frozen):
    """One line of `.ship/chats/*.jsonl`: a text that a person or the bot wrote. `ts` is in milliseconds."""

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
        """Return the archive line of an inbound. `fields` override the values from the inbound."""
        own: dict[str, Any] = {
            "ts": inbound.ts,
            "channel": inbound.channel,
            "chat_id": inbound.chat_id,
            "chat_key": inbound.chat_key,
            "user_id": inbound.user_id,
            "message_id": inbound.message_id,
            "role": "user",
            "text": inbound.text,
        }
        return cls(**own | fields)

    @property
    def request_id(self) -> str:
        """Return the id of the inbound that this line records or answers, or ""."""
        return str((self.meta or {}).get("requestId") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFilter:
    """Selects archive lines, and a page of them after the first `offset` matches. `keyword` is literal text, compared without
    case. `before` is exclusive and `after` inclusive, both in milliseconds. `skip` returns True for lines to leave out.
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
    """Selects a window of matches, counted from the newest. `everything` includes removed and superseded lines. If `counted`
    is False, reading stops once the window is full, and `HistoryPage.total` may be too low.
    """

    everything: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Result of a `HistoryQuery`: lines in order of time, the number of matches (exact if `counted`), and the number of
    damaged lines.
    """

    lines: list[ArchiveLine]
    total: int
    unreadable: int = 0
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in which something was said. `at` is the time of its newest message in epoch seconds."""

    chat_key: ChatKey
    title: str
    at: float
