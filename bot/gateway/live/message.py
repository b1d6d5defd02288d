"""A message for show: created once, written down before that, and then changed in place while there is room for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import cast

from bot import errors
from bot.contracts.channel import Edits
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.journal import DeliveryRecord, Journal
from bot.contracts.outbound import Card, Outbound, OutboundKind
from bot.gateway.address import Address
from bot.gateway.outbox import Courier

CALL_SECONDS = 10.0
"""What a platform gets to create or change something that is only for show: an answer waits no longer for it."""
SETTLE_SECONDS = 2.0
"""A change without a known outcome may still be on its way: so long nothing else comes in its place."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What every message for show works with."""

    courier: Courier
    journal: Journal
    clock: Clock
    ids: Ids
    log: Log


class LiveMessage:
    """One such message. Its row stays `sending` while it stands in the chat: whoever finds it there after a crash knows
    by its message id what is left to be brought to an end. Without a row nothing is created.

    `words` is what people see of it, `over` says that nothing more can be shown.
    """

    def __init__(self, to: Address, kind: OutboundKind, desk: Desk) -> None:
        self.words = ""
        self.over = False
        self._to = to
        self._kind = kind
        self._desk = desk
        self._message: Outbound | None = None
        self._message_id: str | None = None
        self._unknown = False
        self._settled_at = 0.0

    @classmethod
    def of(cls, row: DeliveryRecord, to: Address, desk: Desk) -> LiveMessage:
        """One that an earlier process has left."""
        kind: OutboundKind = "progress" if row.kind == "progress" else "preview"
        made = cls(to, kind, desk)
        made.words = row.text
        made._message = Outbound(row.id, row.request_id, row.chat_key, to.target, row.text, kind)
        made._message_id = row.message_id
        made._unknown = made.over = row.message_id is None
        return made

    async def show(self, words: str, title: str = "", cards: tuple[Card, ...] = ()) -> None:
        """Create it, or change it, where a slot is free; what cannot be shown now is not shown."""
        created = self._message_id is not None
        if self.over or words == self.words or not self._desk.courier.spare(self._to, edit=created):
            return
        await (self._change(words, title, cards) if created else self._create(words, title, cards))

    async def place(self) -> str | None:
        """Its message id, once nothing of it is on its way any more; None where it is not in the chat, as far as anybody
        can tell. Nothing is shown after that.
        """
        self.over = True
        clock = self._desk.clock
        if (left := self._settled_at - clock.monotonic()) > 0:
            await clock.sleep(left)
        if self._unknown and self._message is not None:
            self._unknown = False
            await self._find(self._message)
        return self._message_id

    async def last(self, words: str, title: str = "", cards: tuple[Card, ...] = ()) -> None:
        """Change it for the last time, also where that has to wait for a slot. A failure is only logged."""
        if await self.place() is not None and await self._desk.courier.slot(self._to):
            await self._change(words, title, cards)

    async def end(self, detail: str) -> None:
        """Record that it is brought to its end, and how."""
        if self._message is not None and self._message_id is not None:
            await self._desk.courier.mark(self._message, "sent", message_id=self._message_id, detail=detail)

    async def never(self) -> None:
        """Record that it was not created, and will not be."""
        if self._message is not None:
            await self._desk.courier.mark(self._message, "failed", detail="not shown")

    async def _create(self, words: str, title: str, cards: tuple[Card, ...]) -> None:
        to, courier = self._to, self._desk.courier
        message = Outbound(
            self._desk.ids.ulid(), to.request_id, to.chat_key, to.target, words, self._kind, title, cards
        )
        journal = self._desk.journal
        try:
            await journal.intend([message])
        except errors.StorageError as error:
            self._failed(error)
            return
        try:
            # On file before anybody sees it: else it would count as never shown after a crash.
            await journal.mark(message.id, "sending")
        except errors.StorageError as error:
            self._failed(error)
            await courier.mark(message, "failed", detail="not shown")
            return
        self._message, self._unknown = message, True
        try:
            async with asyncio.timeout(CALL_SECONDS):
                sent = await courier.channel(to).send(message)
        except (TimeoutError, errors.DeliveryUncertain) as error:
            self._failed(error)
            return
        except errors.DeliveryFailed as error:
            self._message, self._unknown = None, False
            if isinstance(error, errors.DeliveryThrottled):
                courier.freeze(to, error, cosmetic=True)
            else:
                self._failed(error)
            await courier.mark(message, "failed", detail=error.code)
            return
        self._message_id, self._unknown, self.words = sent.message_id, False, words
        await courier.mark(message, "sending", message_id=sent.message_id)

    async def _change(self, words: str, title: str, cards: tuple[Card, ...]) -> None:
        to, courier = self._to, self._desk.courier
        assert self._message is not None  # noqa: S101  it was created
        assert self._message_id is not None  # noqa: S101
        try:
            async with asyncio.timeout(CALL_SECONDS):
                channel = cast("Edits", courier.channel(to))
                await channel.edit(
                    replace(self._message, text=words, title=title, cards=cards), self._message_id
                )
        except errors.DeliveryThrottled as error:
            courier.freeze(to, error, cosmetic=True)
        except (TimeoutError, errors.DeliveryUncertain):
            self._settled_at = self._desk.clock.monotonic() + SETTLE_SECONDS
        except errors.DeliveryFailed as error:
            self._failed(error)
        else:
            self.words = words

    async def _find(self, message: Outbound) -> None:
        """A creation without a known outcome: what became of it. Where nobody can tell, it is not asked for again, and
        may stand in the chat as it is.
        """
        courier = self._desk.courier
        try:
            async with asyncio.timeout(CALL_SECONDS):
                found = await courier.channel(self._to).find(message)
        except (TimeoutError, errors.DeliveryFailed):
            await courier.mark(message, "uncertain")
            return
        if found is None:
            await courier.mark(message, "failed", detail="not found")
        else:
            self._message_id = found.message_id

    def _failed(self, error: BaseException) -> None:
        self.over = True
        self._desk.log.write(
            "delivery",
            f"no {self._kind} is shown any more",
            level="debug",
            cause=f"{type(error).__name__}: {error}",
        )
