"""Lines of the archive, and queries for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

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
        """The line of an inbound, with `fields` overriding its own."""
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
        """The inbound that the line records or answers, or ""."""
        return str((self.meta or {}).get("requestId") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFilter:
    """Filter and page of archive lines. `keyword` is literal text, ignoring case; `before` is exclusive, `after` inclusive
    (milliseconds); `offset` counts matches after `skip`.
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
    """A window of matches, counted from the newest. Removed and superseded lines are left out unless `everything`. Without `counted`,
    reading stops soon after the window, however long the chat is, and `HistoryPage.total` may be too low.
    """

    everything: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """`lines` in time order; `total` is the number of matches (exact if `counted`), `unreadable` that of damaged lines."""

    lines: list[ArchiveLine]
    total: int
    unreadable: int = 0
    counted: bool = True
