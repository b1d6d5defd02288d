"""Sends alerts to the operators' direct chats, and names the person who decided a question."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from bot import errors
from bot.contracts.approvals import Verdict
from bot.contracts.identity import CONSOLE, UserRef
from bot.core import events
from bot.core.access import Memberships
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.locales import Locales
from bot.core.outgoing import Address, Saying
from bot.core.services import Services
from bot.tools.permissions.display import named
from bot.words import Sentence, say, speaking

EVERY = 3_600.0
"""Default min seconds between two alerts about the same subject, even if the process restarts in between."""
TOLD = "alert"
"""`kind` of the rows of the table `facts` that contain the time of the last alert about a subject."""


@dataclass(eq=False)
class OperatorAlerts:
    """Alerts operators. The log of the chat `NO_CHAT` stores each alert, as outbox rows for each operator."""

    services: Services
    chats: Chats
    operators: OperatorChats
    memberships: Memberships
    saying: Saying
    locales: Locales

    def __post_init__(self) -> None:
        self._spells: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, subject: str, words: Sentence, *, every: float = EVERY) -> None:
        """Send operators a message about a subject, at most once per `every` seconds. Returns before the message is sent."""
        task = asyncio.create_task(self._tell(subject, words, every), name="alert")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin(self, subject: str, words: Sentence) -> None:
        """Alert operators that a problem has begun. Until `end` is called, further calls have no effect."""
        if subject not in self._spells:
            self._spells.add(subject)
            self.tell(subject, words)

    def end(self, subject: str, words: Sentence) -> None:
        """Alert operators that a problem has ended, if `begin` was called before."""
        if subject in self._spells:
            self._spells.discard(subject)
            self.tell(f"end of {subject}", words, every=0.0)

    async def _tell(self, subject: str, words: Sentence, every: float) -> None:
        try:
            chat = await self.chats.get(NO_CHAT)
        except errors.StorageError as error:
            self.services.log.write("error", "operators cannot be told", level="error", cause=str(error))
            return
        now = self.services.clock.now()
        told = self.chats.facts.get(TOLD, subject)
        if told is not None and now - told["at"] < every:
            return
        facts = [Fact(chat.key, events.FactSet(TOLD, subject, {"at": now}))]
        name = self.services.ids.ulid()
        for operator, to in self.operators.people(name):
            with speaking(*self.locales.of_person(operator)):
                rows = self.saying.rows(f"{name}/{to.chat_key}", to, str(self.memberships.called(words)))
            facts += [Fact(chat.key, row) for row in rows]
        self.chats.append(*facts)


def who_decided(verdict: Verdict, nameless: str) -> str:
    """Return the deciding person's name at the time of the decision. If it is unknown, return the text of the sentence `nameless`."""
    if verdict.by == CONSOLE:
        return say("operators.the_console")
    # People choose their names freely, so formatting and links in names are not rendered.
    return f"`{named(verdict.name)}`" if verdict.name.strip() else say(nameless)


@dataclass(eq=False)
class OperatorChats:
    """The operators' direct chats on the running channels."""

    services: Services

    def people(self, request_id: str) -> Iterator[tuple[UserRef, Address]]:
        for operator in sorted(self.services.operators):
            manifest = self.services.manifests.get(operator.channel)
            if (
                operator.channel in self.services.channels
                and manifest is not None
                and manifest.direct is not None
            ):
                target = manifest.direct(operator.user_id)
                chat_key = manifest.encode(target)
                yield (
                    operator,
                    Address(operator.channel, chat_key.chat_id, chat_key, "direct", target, request_id),
                )
