"""The direct chats of operators, and the questions that stand in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from bot import errors
from bot.contracts.approvals import QuestionButtons, Verdict
from bot.contracts.channel import Manifest
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboxRow
from bot.gateway.delivery import Delivery
from bot.tools.permissions.display import named
from bot.words import say, speaking

DECIDED = QuestionButtons("", ())


def who_decided(verdict: Verdict, nameless: str) -> str:
    """The person who decided, by the name that they had then; `nameless` stands for one that is not known."""
    # Their name is their own choice: nothing in it is formatting or a link.
    return f"`{named(verdict.name)}`" if verdict.name.strip() else say(nameless)


class OperatorChats:
    """The direct chats of those who are operators now, on the channels that run."""

    def __init__(
        self, operators: Collection[str], channels: Collection[str], manifests: Mapping[str, Manifest]
    ) -> None:
        self._operators = operators
        self._channels = channels
        self._manifests = manifests

    def addresses(self, request_id: str) -> Iterator[Address]:
        """The address of each, for messages of this request."""
        return (to for _, to in self.people(request_id))

    def people(self, request_id: str) -> Iterator[tuple[UserRef, Address]]:
        """Each with their address."""
        for operator in map(UserRef.parse, sorted(self._operators)):
            manifest = self._manifests.get(operator.channel)
            if operator.channel in self._channels and manifest is not None and manifest.direct is not None:
                target = manifest.direct(operator.user_id)
                chat_key = manifest.encode(target)
                yield (
                    operator,
                    Address(operator.channel, chat_key.chat_id, chat_key, "direct", target, request_id),
                )


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
        await asyncio.gather(*(self._amend(copy, ended) for parts in done for copy in _copies(parts)))

    async def _amend(self, copy: Sequence[OutboxRow], outcome: Callable[[], str]) -> None:
        """End one copy in its language, its last part last: where that says how it ended, nothing is left to do."""
        looked_for = [
            await self._delivery.outbox.look_for(row) if row.state == "unknown" else row for row in copy
        ]
        there = [row for row in looked_for if row.message_id is not None]
        if not there or there[-1].closes_as is None:
            return
        with speaking(copy[-1].language, copy[-1].zone, copy[-1].own_zone):
            ended = outcome()
        *parts, last = [replace(row, text=row.closes_as or row.text, closes_as=None) for row in there]
        for row in (*parts, replace(last, text=f"{last.text}\n\n{ended}")):
            await self._delivery.amend(replace(row, buttons=DECIDED))


def _copies(rows: Sequence[OutboxRow]) -> Iterable[list[OutboxRow]]:
    """The rows of one chat by copy."""
    copies: dict[str, list[OutboxRow]] = {}
    for row in rows:
        copies.setdefault(row.part_of or row.id, []).append(row)
    return copies.values()
