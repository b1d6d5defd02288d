"""Ports of archive search: the index, and membership, which decides whose chats may be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bot.contracts.archive import ArchiveFilter, ArchiveLine
from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class RecallQuery(ArchiveFilter):
    """A question to the index, in people's words, whose matches count from the best one. `queries` are phrasings of it:
    a line counts by its places in the rankings of all of them. `now` (milliseconds) is when it is asked: times in it, such
    as "last Tuesday", count from there (UTC).
    """

    queries: tuple[str, ...]
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
    that not all lines were looked at.
    """

    hits: list[Hit]
    total: int
    complete: bool = True


class Recalls(Protocol):
    """The archive by its index (`bot.features.search.service.Search`)."""

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """The best matches in these chats and no others. `query.skip` is called on another thread. Raises
        `errors.StorageError`.
        """
        ...

    async def kept(self, channel: str) -> list[ChatKey]:
        """The chatKeys of a channel's chats that have lines, those last spoken in first. Raises `errors.StorageError`."""
        ...


@dataclass(frozen=True, slots=True)
class MembershipAnswer:
    """A person's own chats among those asked about: `chats`. Others are not, or not as far as is known: `unasked` were
    too many to ask at once, and the same question, asked again, goes on with them; for `unanswered` the platform
    gives no answer.
    """

    chats: list[ChatKey]
    unasked: list[ChatKey] = field(default_factory=list)
    unanswered: list[ChatKey] = field(default_factory=list)


class Membership(Protocol):
    """Membership of people in chats. Asked anew for each search: a person who has left a chat is no longer shown it."""

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        """The chatKeys (the most wanted ones first) of which the person is a member now; their direct chats with the
        bot only where `direct`, and never those of others. Raises nothing.
        """
        ...


@runtime_checkable
class KnowsMembers(Protocol):
    """Optional ability of a `Channel`: knows the members of chats. Without it no person counts as a member."""

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """As `Membership.chats_of`. Raises an `errors.ChannelError` where the platform says nothing."""
        ...


@runtime_checkable
class KnowsChatMigrations(Protocol):
    """Optional ability of a `Channel`: knows chats whose id the platform has changed."""

    def same_chat(self, chat_id: str) -> frozenset[str]:
        """All ids that this chat has had, this one among them."""
        ...


@runtime_checkable
class KnowsLinks(Protocol):
    """Optional ability of a `Channel`: knows the addresses of messages."""

    def permalink(self, line: ArchiveLine) -> str | None:
        """The address of a message, where it is known without a request."""
        ...
