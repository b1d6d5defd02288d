"""The worker that sends what had to wait for its platform, in order in each chat, also after a restart."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Mapping

from bot import errors
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey
from bot.contracts.journal import DeliveryRecord, Journal
from bot.gateway.address import Address
from bot.gateway.arrears import Arrears
from bot.gateway.completion import Completion
from bot.gateway.outbox import Courier
from bot.gateway.waiting import Waiting, left
from bot.telemetry.context import turn_scope

RETRY_SECONDS = 5.0
"""Until a channel that is not connected, or a disk that refused, is looked at again."""
STOPPED = "stopped"
"""The `detail` of rows that belong to a turn which ended before they were sent."""


class Deferred:
    """Everything that waits, and the tasks that deliver it: one a chat; besides, what the outbox could not record is
    recorded once that is possible. `ready` sees to it that `load` was called.
    """

    def __init__(
        self,
        completion: Completion,
        courier: Courier,
        waiting: Waiting,
        *,
        channels: Mapping[str, Channel],
        journal: Journal,
        arrears: Arrears,
        clock: Clock,
        log: Log,
        ready: Callable[[], Awaitable[bool]],
    ) -> None:
        self._completion = completion
        self._courier = courier
        self._waiting = waiting
        self._channels = channels
        self._journal = journal
        self._arrears = arrears
        self._clock = clock
        self._log = log
        self._ready = ready
        self._chats: dict[ChatKey, asyncio.Task[None]] = {}
        self._worker: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Take up what an earlier process left waiting. Raises `errors.StorageError`."""
        for row in await self._journal.undelivered():
            put_off = row.not_before is not None
            record = await self._journal.inbound(row.request_id) if put_off else None
            if record is None:
                await self._close(row)
            elif record.inbound.channel in self._channels:
                to = Address.of(record.inbound)
                self._waiting.add(to)
                self._courier.hold(to, left(row, self._clock.now()))

    def start(self) -> None:
        """Send what waits, from now on."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End; what still waits is in the journal."""
        tasks = [task for task in (self._worker, *self._chats.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self, row: DeliveryRecord) -> None:
        """A row that nobody will send: its turn was stopped, or failed, while it was being delivered."""
        if row.kind in {"preview", "progress"} and row.message_id is not None:
            # Nobody has said that it is no whole answer; what it shows says so by itself.
            await self._journal.mark(row.id, "sent", message_id=row.message_id, detail=STOPPED)
            return
        state = "uncertain" if row.state == "sending" else "failed"
        self._log.write(
            "delivery",
            f"a {row.kind} of a turn that has ended was not delivered: {state}",
            level="error" if row.kind == "reply" else "warn",
            chat_key=row.chat_key,
            request_id=row.request_id,
            outbound_id=row.id,
        )
        await self._journal.mark(row.id, state, detail=STOPPED)

    async def _work(self) -> None:
        while not await self._ready():
            await self._clock.sleep(RETRY_SECONDS)
        while True:
            self._waiting.changed.clear()
            # What is put off goes out once the journal can say that it did.
            wait = self._begin() if await self._arrears.settle() else RETRY_SECONDS
            timer = asyncio.ensure_future(self._clock.sleep(wait)) if wait < math.inf else None
            changed = asyncio.ensure_future(self._waiting.changed.wait())
            try:
                await asyncio.wait({changed, timer} if timer else {changed}, return_when="FIRST_COMPLETED")
            finally:
                changed.cancel()
                if timer is not None:
                    timer.cancel()

    def _begin(self) -> float:
        """Start on every chat that may be written to; the seconds until the next one may."""
        next_one = math.inf
        for chat_key, answers in self._waiting.chats.items():
            if chat_key in self._chats or not answers:
                continue
            to = next(iter(answers.values()))
            wait = self._courier.frozen(to)
            if not wait and not self._channels[to.channel].health().connected:
                wait = RETRY_SECONDS
            if wait:
                next_one = min(next_one, wait)
                continue
            task = asyncio.create_task(self._chat(chat_key))
            self._chats[chat_key] = task
            task.add_done_callback(functools.partial(self._left, to))
        return next_one

    def _left(self, to: Address, task: asyncio.Task[None]) -> None:
        del self._chats[to.chat_key]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._log.write(
                "error", f"a deferred delivery failed: {type(error).__name__}: {error}", level="error"
            )
            self._again(to)
        self._waiting.changed.set()

    async def _chat(self, chat_key: ChatKey) -> None:
        """Deliver the answers that wait in one chat, until it has to wait again."""
        answers = self._waiting.chats[chat_key]
        while answers:
            request_id, to = next(iter(answers.items()))
            del answers[request_id]
            with turn_scope(chat_key=chat_key, request_id=request_id):
                try:
                    await self._completion.go_on(to)
                except errors.StorageError as error:
                    self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
                    self._again(to)
            if request_id in answers:
                # What came later stays behind it.
                later = {key: one for key, one in answers.items() if key != request_id}
                answers.clear()
                answers.update({request_id: to, **later})
                return
        del self._waiting.chats[chat_key]

    def _again(self, to: Address) -> None:
        self._waiting.add(to)
        self._courier.hold(to, RETRY_SECONDS)
