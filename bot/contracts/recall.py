"""Searching the archive by its index, and who may be shown what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bot.contracts.archive import ArchiveLine, Narrowed
from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class RecallQuery(Narrowed):
    """A question to the index, in people's words, whose matches count from the best one. `now` (milliseconds) is when it
    is asked: times in it, such as "last Tuesday", count from there (UTC).
    """

    query: str
    now: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that answers a question, and those around it, in the order of their chat."""

    line: ArchiveLine
    score: float
    near: tuple[ArchiveLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """`hits`, the best first, of `total` that were found; `complete` is False where the index is still being made, so
    that only the newest lines were looked at.
    """

    hits: list[Hit]
    total: int
    complete: bool = True


class Recalls(Protocol):
    """The archive by its index (`bot.history.searching.SearchedArchive`)."""

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """What answers a question best, in these chats and no others. `query.skip` is called on another thread. Raises
        `errors.StorageError`.
        """
        ...

    async def kept(self, channel: str) -> list[ChatKey]:
        """The chatKeys of a channel's chats that have lines, those last spoken in first. Raises `errors.StorageError`."""
        ...


@dataclass(frozen=True, slots=True)
class Belonging:
    """Which of the chats that were asked about are a person's own: `chats`. All others are not, or not as far as is known:
    about `unasked` too much would have had to be asked at once, and the same question goes on with them when it is asked
    again; about `unanswered` the platform does not say.
    """

    chats: list[ChatKey]
    unasked: list[ChatKey] = field(default_factory=list)
    unanswered: list[ChatKey] = field(default_factory=list)


class Membership(Protocol):
    """Which chats are a person's own. Asked anew for each search: who has left a chat is no longer shown it."""

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> Belonging:
        """Those of the chatKeys, the most wanted ones first, that a person is a member of now; their direct chats with the
        bot only where `direct`, and nobody else's ever. Raises nothing.
        """
        ...


@runtime_checkable
class KnowsMembers(Protocol):
    """What a `Channel` may have beside its duties: who is where. Without it nobody is a member of anything."""

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> Belonging:
        """As `Membership.chats_of`. Raises an `errors.ChannelError` where the platform says nothing."""
        ...


@runtime_checkable
class KnowsMoves(Protocol):
    """What a `Channel` may have beside its duties: chats to which the platform gives another id."""

    def same_chat(self, chat_id: str) -> frozenset[str]:
        """All ids that this chat has had, this one among them."""
        ...


@runtime_checkable
class KnowsLinks(Protocol):
    """What a `Channel` may have beside its duties: the addresses of messages."""

    def permalink(self, line: ArchiveLine) -> str | None:
        """Where a message can be looked at, as far as that is known without asking anybody."""
        ...
