"""Tells operators of trouble, in their direct chats."""

from __future__ import annotations

import asyncio

from bot import errors
from bot.contracts.environment import Clock, Ids, Log
from bot.core import events
from bot.core.access import Memberships
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.locales import Locales
from bot.core.operator_chats import OperatorChats
from bot.core.saying import Saying
from bot.words import Sentence, speaking

EVERY = 3_600.0
"""Interval between two alerts on the same subject, over restarts too, where nothing else is said."""
TOLD = "alert"
"""The kind of the facts that say when operators heard of a subject."""


class OperatorAlerts:
    """`contracts.environment.OperatorNotices`: an alert is rows of the log of what belongs to no chat."""

    def __init__(
        self,
        chats: Chats,
        operators: OperatorChats,
        *,
        memberships: Memberships,
        saying: Saying,
        locales: Locales,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._chats = chats
        self._operators = operators
        self._memberships = memberships
        self._saying = saying
        self._locales = locales
        self._clock = clock
        self._ids = ids
        self._log = log
        self._spells: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, subject: str, words: Sentence, *, every: float = EVERY) -> None:
        """As `OperatorNotices`."""
        task = asyncio.create_task(self._tell(subject, words, every), name="alert")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin(self, subject: str, words: Sentence) -> bool:
        """A spell of trouble begins; it is told once, however often this is called. True where it is a new one."""
        if subject in self._spells:
            return False
        self._spells.add(subject)
        self.tell(subject, words)
        return True

    def end(self, subject: str, words: Sentence) -> bool:
        """A spell is over; operators are told. False where there was none."""
        if subject not in self._spells:
            return False
        self._spells.discard(subject)
        self.tell(f"end of {subject}", words, every=0.0)
        return True

    async def _tell(self, subject: str, words: Sentence, every: float) -> None:
        try:
            chat = await self._chats.get(NO_CHAT)
        except errors.StorageError as error:
            self._log.write("error", "operators cannot be told", level="error", cause=str(error))
            return
        now = self._clock.now()
        told = self._chats.facts.get(TOLD, subject)
        if told is not None and now - told["at"] < every:
            return
        facts = [Fact(chat.key, events.FactSet(TOLD, subject, {"at": now}))]
        name = self._ids.ulid()
        for operator, to in self._operators.people(name):
            with speaking(*self._locales.of_person(operator)):
                rows = self._saying.rows(f"{name}/{to.chat_key}", to, str(self._memberships.called(words)))
            facts += [Fact(chat.key, row) for row in rows]
        self._chats.append(*facts)
