"""Titles of conversations, and the list of the conversations of a chat."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot import text
from bot.contracts.archive import Conversation
from bot.contracts.identity import ChatKey, UserRef
from bot.core import events
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.tools.context import Recalls

TITLE = "title"
"""Kind of the stored fact with the name that a person gave a conversation. The fact's key is the chatKey."""
LONGEST = 80
"""Max characters of a title."""
MOST_WORDS = 8
"""Max words of a search query. Further words are ignored."""


@dataclass(frozen=True, slots=True)
class ChatQuery:
    """Selects conversations for operators. `words` are searched in people's names, chatKeys, titles and all
    messages. If `among` is not None, only these chatKeys are listed. `names` are the titles that people
    gave, by chatKey. The page begins after the first `offset` conversations.
    """

    words: str = ""
    channel: str = ""
    among: frozenset[str] | None = None
    offset: int = 0
    limit: int = 50
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedChat:
    """A conversation: the people who wrote last, its title (given by people, or its first words), the number of its
    lines, and the time of the newest line (epoch milliseconds). `found` is an excerpt of the newest line with the
    searched words.
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
        """Return those conversations of a chat and its threads in which one line contains all these folded words."""


def given_names(chats: Chats) -> dict[str, str]:
    return {key: fact["name"] for key, fact in chats.facts.all(TITLE).items()}


class ConversationList:
    """Lists, searches and renames conversations. `recall` returns the search index; None if there is none."""

    def __init__(self, chats: Chats, event_log: EventLog, recall: Callable[[], SearchIndex | None]) -> None:
        self._chats = chats
        self._log = event_log
        self._recall = recall

    async def titles(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        """Return a title for each conversation: the name that a person gave it, else its first words, else "". Raises
        `errors.StorageError`.
        """
        named = {chat: fact["name"] for chat in chats if (fact := self._chats.facts.get(TITLE, str(chat)))}
        first = await self._log.first_words([chat for chat in chats if chat not in named])
        return {chat: named.get(chat) or text.preview(first.get(chat, ""), LONGEST) for chat in chats}

    async def page(
        self, chat: ChatKey, *, query: str, after: ChatKey | None, limit: int
    ) -> list[Conversation]:
        """Return at most `limit` conversations of a chat and its threads, the most recent first. The page begins after
        the conversation `after`. A `query` finds conversations whose title contains all of its words. With a search
        index, it also finds those with such a message. Raises `errors.StorageError`.
        """
        spoken = await self._log.spoken_in(chat)
        words = _folded(query).split()[:MOST_WORDS]
        found = list(spoken)
        if words and (recall := self._recall()) is not None:
            # The index also contains the first words, which are the title of an unnamed conversation.
            told = {key for key, name in given_names(self._chats).items() if _has(name, words)}
            told |= {str(one) for one in await recall.saying(chat, words)}
            found = [one for one in spoken if str(one) in told]
        elif words:
            titles = await self.titles(found)
            found = [one for one in found if _has(titles[one], words)]
        begin = found.index(after) + 1 if after in found else 0
        some = found[begin : begin + limit]
        titles = await self.titles(some)
        return [Conversation(one, titles[one], spoken[one]) for one in some]

    async def one(self, chat: ChatKey) -> Conversation | None:
        """Return a conversation, or None if it has no messages. Raises `errors.StorageError`."""
        at = (await self._log.spoken_in(chat)).get(chat)
        return None if at is None else Conversation(chat, (await self.titles([chat]))[chat], at)

    async def rename(self, chat: ChatKey, name: str, person: UserRef) -> None:
        """Name a conversation. If the name is empty, its first words are the title again. Raises `errors.StorageError`."""
        name = text.preview(text.clean(name), LONGEST)
        await self._chats.get(chat)
        fact = events.FactSet(TITLE, str(chat), {"name": name} if name else None)
        self._chats.append(Fact(chat, fact, person=person.user_id))
        await self._log.committed(patient=False)


def _folded(words: str) -> str:
    return unicodedata.normalize("NFKC", words).casefold()


def _has(title: str, words: Collection[str]) -> bool:
    folded = _folded(title)
    return all(word in folded for word in words)
