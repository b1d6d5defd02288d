"""Places: how many turns may run at once, and whose is next when there are too few."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from bot.contracts.identity import ChatKey, UserRef


class TurnSlots:
    """Hands out a fixed number of places.

    Chats ask, each for the people who have something ready in it. While there are places for all of them, a chat is
    given its own next person; when there are too few, people get them in turn, whoever was served longest ago first,
    however many chats they write in.
    """

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._asking: dict[ChatKey, dict[UserRef, None]] = {}
        self._chats: dict[UserRef, dict[ChatKey, None]] = {}
        self._work: dict[UserRef, int] = {}
        self._rank: dict[UserRef, int] = {}
        self._order: list[tuple[int, UserRef]] = []
        self._count = itertools.count()

    def enter(self, person: UserRef) -> None:
        """Somebody has something waiting, in one chat more: who is new stands behind everybody."""
        self._work[person] = self._work.get(person, 0) + 1
        if person not in self._rank:
            self._rank[person] = next(self._count)

    def leave(self, person: UserRef) -> None:
        """Somebody has something waiting in one chat less."""
        self._work[person] -= 1
        if not self._work[person]:
            del self._work[person], self._rank[person]

    def ask(self, chat_key: ChatKey, people: Iterable[UserRef]) -> None:
        """A chat in which nothing runs wants a place for one of these people, in its own order; for none: no more."""
        self._withdraw(chat_key)
        wanted = dict.fromkeys(people)
        if not wanted:
            return
        self._asking[chat_key] = wanted
        for person in wanted:
            chats = self._chats.setdefault(person, {})
            if not chats:
                self._stand(person)
            chats[chat_key] = None

    @property
    def ready(self) -> bool:
        """Whether a place is free, and somebody asks."""
        return self.free > 0 and bool(self._asking)

    def give(self) -> tuple[ChatKey, UserRef] | None:
        """Give a place to one that asks: its chat and its person. None where none is free, or nobody asks."""
        if not self.ready:
            return None
        if self.free >= len(self._asking):
            chat_key = next(iter(self._asking))
            person = next(iter(self._asking[chat_key]))
        else:
            person = self._longest_unserved()
            chat_key = next(iter(self._chats[person]))
        self.free -= 1
        self._withdraw(chat_key)
        self._rank[person] = next(self._count)
        if person in self._chats:
            self._stand(person)
        return chat_key, person

    def give_back(self) -> None:
        self.free += 1

    def take(self) -> None:
        """Take a place out of turn, also where none is free: until then there are fewer for the others."""
        self.free -= 1

    def _withdraw(self, chat_key: ChatKey) -> None:
        for person in self._asking.pop(chat_key, ()):
            chats = self._chats[person]
            del chats[chat_key]
            if not chats:
                del self._chats[person]

    def _stand(self, person: UserRef) -> None:
        if len(self._order) > 2 * len(self._chats) + 64:
            # Places that were left: they would only pile up while there is enough for all.
            self._order = [(self._rank[one], one) for one in self._chats]
            heapq.heapify(self._order)
        heapq.heappush(self._order, (self._rank[person], person))

    def _longest_unserved(self) -> UserRef:
        while True:
            rank, person = heapq.heappop(self._order)
            if person in self._chats and self._rank[person] == rank:
                return person
