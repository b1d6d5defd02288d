"""Operators: their direct chats, the questions that stand in them, and the alerts that they get of trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from bot import errors
from bot.contracts.approvals import Verdict
from bot.contracts.environment import Alert, Clock, Ids, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboxRow
from bot.core.access import Memberships
from bot.core.locales import Locales
from bot.core.operator_chats import OperatorChats
from bot.gateway.delivery import Delivery
from bot.words import Sentence, speaking


class QuestionCopies:
    """The messages that show a question, by the name of its approval. Each ends as the outcome, without buttons."""

    def __init__(self, journal: Journal, delivery: Delivery, log: Log) -> None:
        self._journal = journal
        self._delivery = delivery
        self._log = log
        self._closing: set[asyncio.Task[None]] = set()
        self._ending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def close(self, name: str, outcome: Callable[[Verdict, float], str]) -> None:
        """Show everywhere how a question ended, in the `outcome` of its verdict and the time of that as they are on file: said
        again, they are the same, and change nothing. What is on its way ends so once it is there. Nobody waits for that.
        """
        closing = asyncio.create_task(self._close(name, outcome))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, name: str, outcome: Callable[[Verdict, float], str]) -> None:
        outbox = self._delivery.outbox
        await outbox.load()
        # Asked for twice at once, the second finds on file what the first has changed.
        ending = self._ending.setdefault(name, asyncio.Lock())
        while True:
            on_its_way = outbox.on_its_way(name)
            async with ending:
                await self._end(name, outcome)
            if not on_its_way:
                return
            await asyncio.gather(*(batch.gone.wait() for batch in on_its_way))

    async def _end(self, name: str, outcome: Callable[[Verdict, float], str]) -> None:
        """End the copies that are in their chats."""
        try:
            record = await self._journal.approval(name)
            rows = [row for row in await self._journal.deliveries(name) if row.buttons is not None]
        except errors.StorageError as error:
            self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
            return
        if record is None or record.verdict is None or record.decided_at is None:
            return
        ended = partial(outcome, record.verdict, record.decided_at)
        chats: dict[ChatKey, list[OutboxRow]] = {}
        for row in rows:
            chats.setdefault(row.chat_key, []).append(row)
        done = [parts for parts in chats.values() if not any(row.open for row in parts)]
        await asyncio.gather(*(self._amend(copy, ended) for parts in done for copy in copies_of(parts)))

    async def _amend(self, copy: Sequence[OutboxRow], outcome: Callable[[], str]) -> None:
        """End one copy in its language, its last part last: where that says how it ended, nothing is left to do."""
        outbox = self._delivery.outbox
        looked_for = [await outbox.look_for(row) if row.state == "unknown" else row for row in copy]
        there = [row for row in looked_for if row.message_id is not None]
        if not there or there[-1].closes_as is None:
            return
        with speaking(copy[-1].language, copy[-1].zone, copy[-1].own_zone):
            ended = outcome()
        *parts, last = there
        for row in (*(part.close() for part in parts), last.close(ended)):
            await self._delivery.amend(row)


def copies_of(rows: Iterable[OutboxRow]) -> Iterable[list[OutboxRow]]:
    """The rows of questions by copy."""
    copies: dict[str, list[OutboxRow]] = {}
    for row in rows:
        copies.setdefault(row.part_of or row.id, []).append(row)
    return copies.values()


EVERY = 3_600.0
"""Seconds between two reports on the same subject, across restarts, where nothing else is said."""
DAY = 24 * EVERY
ASK_SECONDS = 5.0
"""The time for the journal to say when the last report was."""
TELL_SECONDS = 30.0
"""The time for a channel to send a report: the broken one may hang."""
MOST = 100
"""Reports under way at once; what comes on top is only logged."""


class OperatorAlerts:
    """Tells operators of trouble. Nothing here waits for a channel or raises. Delivery, which it tells through, puts its own
    trouble into `raised`.

    An operator has to have a direct chat on a channel that runs (`Manifest.direct`); the others find it in the log.
    Every chat is tried: a channel that hears nothing may still be able to send.
    """

    def __init__(
        self,
        chats: OperatorChats,
        *,
        memberships: Memberships,
        raised: asyncio.Queue[Alert],
        journal: Journal,
        delivery: Delivery,
        locales: Locales,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._memberships = memberships
        self._raised = raised
        self._journal = journal
        self._delivery = delivery
        self._locales = locales
        self._clock = clock
        self._ids = ids
        self._log = log
        self._chats = chats
        self._spells: dict[str, asyncio.Task[bool]] = {}
        self._muted_until: dict[str, float] = {}
        self.tasks: set[asyncio.Task[bool]] = set()
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Tell operators of what was raised, and of what will be until `close`."""
        self._listening = asyncio.create_task(self._listen(), name="alerts")

    async def _listen(self) -> None:
        while True:
            alert = await self._raised.get()
            self.tell(alert.subject, alert.words)

    def tell(self, subject: str, words: Sentence, *, every: float = EVERY) -> asyncio.Task[bool]:
        """Tell operators, where this subject was not reported within `every` seconds, over restarts too; the task says whether
        one was told.
        """
        return self._start(self._tell(subject, words, every))

    def begin(self, subject: str, words: Sentence) -> bool:
        """A spell of trouble begins; it is told once, however often this is called. True where it is a new one."""
        if subject in self._spells:
            return False
        self._spells[subject] = self.tell(subject, words)
        return True

    def end(self, subject: str, words: Sentence) -> bool:
        """A spell is over; operators who were told of it are told of this too. False where there was none."""
        begun = self._spells.pop(subject, None)
        if begun is None:
            return False
        self._start(self._well(begun, words))
        return True

    async def close(self) -> None:
        """Give up what is under way."""
        listening = [self._listening] if self._listening is not None else []
        tasks = [*self.tasks, *listening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        if len(self.tasks) >= MOST:
            work.close()
            work = _nobody()
        task = asyncio.create_task(work, name="report")
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.write(
                "error", f"a report to operators failed: {type(error).__name__}: {error}", level="error"
            )

    async def _tell(self, subject: str, words: Sentence, every: float) -> bool:
        return await self._due(subject, every) and await self._all(words)

    async def _well(self, begun: asyncio.Task[bool], words: Sentence) -> bool:
        await asyncio.wait([begun])
        told = not begun.cancelled() and begun.exception() is None and begun.result()
        return told and await self._all(words)

    async def _due(self, subject: str, every: float) -> bool:
        """True where it is time for a report on this subject. A journal that is in trouble itself need not know."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._journal.once(f"report:{subject}", self._clock.now(), every)
        except (TimeoutError, errors.StorageError):
            now = self._clock.monotonic()
            self._muted_until = {known: until for known, until in self._muted_until.items() if now < until}
            due = subject not in self._muted_until
            self._muted_until.setdefault(subject, now + every)
            return due

    async def _all(self, words: Sentence) -> bool:
        people = self._chats.people(self._ids.ulid())
        told = await asyncio.gather(*(self._one(operator, to, words) for operator, to in people))
        return any(told)

    async def _one(self, operator: UserRef, to: Address, words: Sentence) -> bool:
        try:
            async with asyncio.timeout(TELL_SECONDS):
                with speaking(*self._locales.of_person(operator)):
                    await self._delivery.send(to, str(self._memberships.called(words)), kind="notice")
        except (TimeoutError, errors.DeliveryFailed) as error:
            cause = str(error) or f"no answer within {TELL_SECONDS:g} s"
            self._log.write(
                "delivery", "an operator could not be told", level="warn", chat_key=to.chat_key, cause=cause
            )
            return False
        return True


async def _nobody() -> bool:
    """There are too many reports under way: nobody is told."""
    return False
