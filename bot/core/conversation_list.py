"""Types for queries of the list of all conversations. The search index answers the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot.contracts.identity import ChatKey
from bot.tools.context import Recalls


@dataclass(frozen=True, slots=True)
class ChatQuery:
    """Selects conversations for operators. `words` are searched in people's names, chatKeys, titles and all messages. If
    `among` is not None, only chats in `among` are listed. `names` are the titles that people gave, by chatKey. The page
    begins after the first `offset` conversations.
    """

    words: str = ""
    channel: str = ""
    among: frozenset[str] | None = None
    offset: int = 0
    limit: int = 50
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedChat:
    """A conversation: the people who wrote last, its title (given by people, or its first words), the number of its lines,
    and the time of the newest line (epoch milliseconds). `found` is an excerpt of the newest line containing the words.
    """

    chat_key: str
    people: str
    title: str
    lines: int
    last_ts: int | None
    found: str = ""

    @property
    def channel(self) -> str:
        return self.chat_key.partition(":")[0]


@dataclass(frozen=True, slots=True)
class ListedChats:
    """A page of conversations, most recently active first, and the names of all channels. `total` counts the
    conversations of all pages. `complete` is False while the index is still being built.
    """

    chats: list[ListedChat]
    total: int
    channels: list[str]
    complete: bool = True


class SearchIndex(Recalls, Protocol):
    """Searches conversations through the index (`bot.features.search`). Methods raise `errors.StorageError`."""

    async def listed(self, query: ChatQuery) -> ListedChats:
        """Return a page of all conversations, for operators."""

    async def saying(self, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
        """Return those conversations of a chat and its threads in which one line contains all these case-folded words."""
