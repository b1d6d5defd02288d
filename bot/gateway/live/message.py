"""A live message: created once, written down before that, and then changed in place while there is room for it."""

from __future__ import annotations

from dataclasses import dataclass

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.outbound import Card, OutboundKind, OutboxRow
from bot.gateway.address import Address
from bot.gateway.outbox.worker import SETTLE_SECONDS, OutboxWorker


@dataclass(frozen=True, slots=True)
class LiveDeps:
    """The collaborators of every live message."""

    outbox: OutboxWorker
    clock: Clock
    log: Log


class LiveMessage:
    """One such message. Its outbox row stays `sending` while it may still change: whoever finds it there after a crash knows
    by its message id what is left to be brought to an end. Without a row nothing is created.

    `words` is what people see of it, `over` says that nothing more can be shown.
    """

    def __init__(self, to: Address, kind: OutboundKind, deps: LiveDeps, row: OutboxRow | None = None) -> None:
        self.words = row.text if row is not None else ""
        self.over = row is not None and row.message_id is None
        self._to = to
        self._kind = kind
        self._outbox = deps.outbox
        self._clock = deps.clock
        self._log = deps.log
        self._row = row
        self._settled_at = 0.0

    async def show(self, words: str, title: str = "", cards: tuple[Card, ...] = ()) -> None:
        """Create it, or change it, where a slot is free; what cannot be shown now is not shown."""
        if self.over or words == self.words or not self._outbox.spare(self._to, edit=self._row is not None):
            return
        await (self._create(words, title, cards) if self._row is None else self._change(words, title, cards))

    async def place(self) -> str | None:
        """Its message id, once nothing of it is on its way any more; None where it is not in the chat, as far as anybody
        can tell. Nothing is shown after that.
        """
        self.over = True
        if (left := self._settled_at - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        if self._row is not None and self._row.message_id is None:
            found = await self._outbox.locate(self._to, self._row)
            self._row = found if found.open else None
        return self._row.message_id if self._row is not None else None

    async def last(self, words: str, title: str = "", cards: tuple[Card, ...] = ()) -> None:
        """Change it for the last time, also where that has to wait for a slot, and end it. A failure is only logged."""
        if await self.place() is not None and not await self._outbox.limits.slot(self._to):
            await self._change(words, title, cards)
        await self.end()

    async def end(self) -> None:
        """It stays as it is."""
        if self._row is not None:
            await self._outbox.end_live(self._row)
            self._row = None

    async def _create(self, words: str, title: str, cards: tuple[Card, ...]) -> None:
        row = self._outbox.row(self._to, words, self._kind)
        try:
            self._row = await self._outbox.create(self._to, row, title, cards)
        except errors.DeliveryThrottled:
            return
        except errors.DeliveryUncertain as error:
            self._row = row.begin()
            self._failed(error)
        except (errors.StorageError, errors.DeliveryFailed) as error:
            self._failed(error)
        else:
            self.words = words

    async def _change(self, words: str, title: str, cards: tuple[Card, ...]) -> None:
        assert self._row is not None  # noqa: S101  it was created
        self._row = self._row.show(words)
        try:
            await self._outbox.change(self._to, self._row, title, cards)
        except errors.DeliveryThrottled:
            return
        except errors.DeliveryUncertain:
            # It may still be on its way: so long nothing else comes in its place.
            self._settled_at = self._clock.monotonic() + SETTLE_SECONDS
        except errors.DeliveryFailed as error:
            self._failed(error)
        else:
            self.words = words

    def _failed(self, error: errors.ShipmateError) -> None:
        self.over = True
        self._log.write(
            "delivery",
            f"no {self._kind} is shown any more",
            level="debug",
            cause=f"{type(error).__name__}: {error}",
        )
