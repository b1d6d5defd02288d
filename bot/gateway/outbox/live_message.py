"""One message that changes while a turn runs: created once its row is on file, changed while there is room, brought to an end."""

from __future__ import annotations

from dataclasses import replace

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.outbound import Address, LiveForm, OutboundKind, OutboxRow
from bot.gateway.outbox.channel_sender import SETTLE_SECONDS, ChannelSender

PLAIN = LiveForm()


class LiveMessage:
    """Made by `OutboxWorker.live_message`. Its outbox row stays `sending` while it may still change: whoever finds it there after a crash knows
    by its message id what is left to be brought to an end. Without a row nothing is created.

    `words` is what people see of it, without a mark behind them; `over` says that nothing more can be shown.
    """

    def __init__(
        self,
        to: Address,
        kind: OutboundKind,
        sender: ChannelSender,
        row: OutboxRow | None,
        *,
        clock: Clock,
        log: Log,
    ) -> None:
        self.words = row.text if row is not None else ""
        self.over = row is not None and row.message_id is None
        # Of words that an earlier process has shown it is not known; progress has none.
        self._mark = "" if row is None or kind == "progress" else None
        self._to = to
        self._kind = kind
        self._sender = sender
        self._clock = clock
        self._log = log
        self._row = row
        self._settled_at = 0.0

    @property
    def stands(self) -> bool:
        """True if there is something of it that has to be brought to an end."""
        return self._row is not None

    def shows(self, words: str, form: LiveForm = PLAIN) -> bool:
        """True where people see these words, with the mark of this form."""
        return (words, form.mark) == (self.words, self._mark)

    async def show(self, words: str, form: LiveForm = PLAIN) -> None:
        """Create it, or change it, where a slot is free; what cannot be shown now is not shown."""
        if (
            self.over
            or self.shows(words, form)
            or not self._sender.spare(self._to, edit=self._row is not None)
        ):
            return
        form = replace(form, goes_on=True)
        await (self._create(words, form) if self._row is None else self._change(words, form))

    async def place(self) -> str | None:
        """Its message id, once nothing of it is on its way any more; None where it is not in the chat, as far as anybody
        can tell. Nothing is shown after that.
        """
        self.over = True
        if (left := self._settled_at - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        if self._row is not None and self._row.message_id is None:
            found = await self._sender.locate(self._to, self._row)
            self._row = found if found.open else None
        return self._row.message_id if self._row is not None else None

    async def last(self, words: str, form: LiveForm = PLAIN) -> None:
        """Change it for the last time, or without words take it away, also where that has to wait for a slot, and end it. A
        failure is only logged.
        """
        if await self.place() is not None and not await self._sender.limits.slot(self._to):
            await self._change(words, form)
        await self.end()

    async def end(self) -> None:
        """It stays as it is."""
        if self._row is not None:
            await self._sender.end_live(self._row)
            self._row = None

    async def _create(self, words: str, form: LiveForm) -> None:
        row = self._sender.rows.new(self._to, words, self._kind)
        try:
            self._row = await self._sender.create(self._to, row, form)
        except errors.DeliveryThrottled:
            return
        except errors.DeliveryUncertain as error:
            self._row = row.begin()
            self._failed(error)
        except (errors.StorageError, errors.DeliveryFailed) as error:
            self._failed(error)
        else:
            self.words, self._mark = words, form.mark

    async def _change(self, words: str, form: LiveForm) -> None:
        assert self._row is not None  # noqa: S101  it was created
        self._row = self._row.show(words)
        try:
            await self._sender.change(self._to, self._row, form)
        except errors.DeliveryThrottled:
            return
        except errors.DeliveryUncertain:
            # It may still be on its way: so long nothing else comes in its place.
            self._settled_at = self._clock.monotonic() + SETTLE_SECONDS
        except errors.DeliveryFailed as error:
            self._failed(error)
        else:
            self.words, self._mark = words, form.mark

    def _failed(self, error: errors.ShipmateError) -> None:
        self.over = True
        self._log.write(
            "delivery",
            f"no {self._kind} is shown any more",
            level="debug",
            cause=f"{type(error).__name__}: {error}",
        )
