"""One message after the other from its outbox row to its end: in the chat, failed, unknown, or put off."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import cast

from bot import errors
from bot.contracts import Channel, Clock, Edits, Log, Manifest, Outbound, OutboxState, Pace, Sent
from bot.gateway.address import Address
from bot.gateway.arrears import Arrears
from bot.gateway.grace import to_its_end
from bot.gateway.items import Item, PutOff, original
from bot.gateway.pace import UNSAID, Budget, Pacer, patience
from bot.gateway.targets import Targets
from bot.gateway.waiting import Waiting, deferred

MAX_ATTEMPTS = 6
MAX_WAIT = 60.0
"""Seconds that a turn may wait for a platform that asks for patience; a reply that has to wait for longer is put off."""
SEND_SECONDS = 120.0
"""After this a channel that says nothing counts as one that may have sent."""
SETTLE_SECONDS = 2.0
"""A message that a platform does not show may still be on its way there: after this it is asked once more."""
SLOWEST_RETRY = 60.0
AFTER_DOUBT = 30.0
"""Seconds until the rest of an answer goes on, of which one part has an outcome that cannot be known."""
REPEATED = "(I am not sure that this has arrived, so here it is, perhaps again.)\n\n"
REPLACED = "repeated"
"""The `detail` of an uncertain row whose text went out once more, in rows of their own."""
UNLIMITED = Pace(burst=1_000_000, every=0.000_001)

Arrived = Callable[[Outbound, Sent], Awaitable[None]]
"""Told of each message that is in the chat, before its row says so."""


class Courier:
    """Delivers, in the limits of each platform, and records what became of it."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        *,
        arrears: Arrears,
        targets: Targets,
        waiting: Waiting,
        clock: Clock,
        log: Log,
        limits: bool,
    ) -> None:
        self._channels = channels
        self._manifests = manifests
        self._arrears = arrears
        self._targets = targets
        self._waiting = waiting
        self._clock = clock
        self._log = log
        self._limits = limits
        self.tell: Callable[[str, str], object] = _nobody
        """Told what operators should know: a subject, and words."""
        self._pacer = Pacer(clock)
        self._unsure: set[str] = set()

    async def deliver(
        self, to: Address, items: Iterable[Item], arrived: Arrived, prepared: Future[None] | None = None
    ) -> None:
        """Send messages of one answer in order, once `prepared` (their rows are written) is done.

        Raises an `errors.DeliveryFailed`; then every row that is not in the chat says what becomes of it: with
        `DeliveryDeferred` all that is left goes out later, with `DeliveryUncertain` all that is owed but the one in
        doubt, with any other nothing more.
        """
        left = deque(items)
        try:
            while left:
                again = await self._one(to, left[0], arrived, prepared)
                item = left.popleft()
                left.extendleft(Item(one, item.owed, put_off=item.put_off) for one in reversed(again))
        except PutOff as error:
            left[0] = replace(left[0], lost=error.unknown)
            await self.put_off(to, left, error.wait)
            raise
        except errors.DeliveryUncertain as error:
            await self.end(left.popleft().message, error)
            if left and left[0].owed:
                await self.put_off(to, left, AFTER_DOUBT)
            raise
        except errors.DeliveryFailed as error:
            if isinstance(error, errors.TargetGone) and not self._targets.closed(to):
                await self._targets.close(to, str(error))
            if prepared is not None:
                await prepared
            await asyncio.gather(*(self.end(item.message, error) for item in left))
            raise

    def unsure(self, message: Outbound) -> bool:
        """Whether the send of a message has begun and nobody knows yet what became of it."""
        return message.id in self._unsure

    async def put_off(self, to: Address, items: Collection[Item], wait: float) -> None:
        """What is owed goes out by itself, in order, `wait` seconds from now."""
        detail = deferred(self._clock.now() + wait)
        self.hold(to, wait)
        await asyncio.gather(
            *(self.mark(one.message, "sending" if one.lost else "intent", detail=detail) for one in items)
        )
        self._waiting.add(to)
        self._log.write(
            "delivery",
            "an answer waits for its platform",
            level="warn",
            request_id=to.request_id,
            chat_key=to.chat_key,
            outbound_ids=[one.message.id for one in items],
            wait=round(wait, 3),
        )

    def spare(self, to: Address, *, reserve: int = 1, edit: bool = False) -> bool:
        """Take a slot for something cosmetic; False where none is free, and where nothing may go out at all."""
        if self._targets.closed(to) or self._pacer.frozen(_signs(to)):
            return False
        edits = self._manifests[to.channel].edits if edit and self._limits else None
        more = [(f"{to.channel} edits", edits.total)] if edits is not None and edits.total is not None else []
        return self._pacer.spare(*self._budgets(to), *more, reserve=reserve)

    async def slot(self, to: Address) -> bool:
        """Wait for a slot, as a message does; False where the platform wants to be left alone for long."""
        return not await self._pacer.slot(*self._budgets(to), longest=MAX_WAIT)

    def channel(self, to: Address) -> Channel:
        return self._channels[to.channel]

    def freeze(self, to: Address, error: errors.DeliveryThrottled, *, cosmetic: bool = False) -> float:
        """Nothing goes out before the platform wants it; returns the seconds. Where a platform limits signs of work
        as such, messages need not wait for that.
        """
        chat, total = self._budgets(to)
        if error.everywhere and cosmetic:
            total = (_signs(to), UNLIMITED)
        wait = patience(error.retry_after)
        self._pacer.freeze(total if error.everywhere else chat, wait)
        return wait

    def hold(self, to: Address, seconds: float) -> None:
        """Nothing goes to this chat before."""
        if seconds > 0:
            self._pacer.freeze(self._budgets(to)[0], seconds)

    def frozen(self, to: Address) -> float:
        """Seconds for which the platform wants to be left alone with this chat."""
        return self._pacer.frozen(*(name for name, _ in self._budgets(to)))

    async def mark(
        self,
        message: Outbound,
        state: OutboxState,
        *,
        message_id: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Record a state, now or as soon as the disk takes it."""
        if state != "sending":
            self._unsure.discard(message.id)
        await self._arrears.mark(message.id, state, message_id=message_id, detail=detail)

    async def _one(
        self, to: Address, item: Item, arrived: Arrived, prepared: Future[None] | None
    ) -> list[Outbound]:
        """Take one message to its end; what has to be sent in its place, [] where it is in the chat."""
        message, unknown, waited, place = item.message, item.lost, 0.0, item.place
        doubt = item.lost
        for _ in range(MAX_ATTEMPTS):
            try:
                if unknown and place is None and await self._found(to, message, arrived):
                    return []
                unknown = False
                await self._attempt(to, message, arrived, prepared, place)
            except errors.EditRefused as error:
                self._log.write("delivery", "a preview cannot be changed", level="warn", cause=str(error))
                place, unknown = None, doubt
            except errors.DeliveryThrottled as error:
                waited += await self._held_up(to, message, error, asked=unknown)
                if waited > MAX_WAIT:
                    break
            except errors.DeliveryUncertain as error:
                if unknown:
                    return await self._replaced(to, item, error)
                unknown = doubt = True  # a change can be made again, so nobody is asked what became of it
                self._log.write(
                    "delivery", "a send has an unknown outcome", level="warn", outbound_id=message.id
                )
            else:
                return []
        if prepared is not None:
            await prepared
        raise self._later(to, item, unknown=unknown)

    async def _held_up(
        self, to: Address, message: Outbound, error: errors.DeliveryThrottled, *, asked: bool
    ) -> float:
        """The platform asks to wait; returns the seconds. The next send waits for its slot, a question here."""
        if not asked:
            self._unsure.discard(message.id)
        wait = self.freeze(to, error)
        self._log.write("delivery", "the platform asks to wait", level="warn", retry_after=error.retry_after)
        if asked and wait <= MAX_WAIT:
            await self._clock.sleep(wait)
        return wait

    async def _attempt(
        self,
        to: Address,
        message: Outbound,
        arrived: Arrived,
        prepared: Future[None] | None,
        place: str | None,
    ) -> None:
        """Send once, when it may be sent."""
        self._targets.check(to)
        if wait := await self._pacer.slot(*self._budgets(to), longest=MAX_WAIT):
            raise errors.DeliveryThrottled("the platform still wants to be left alone", retry_after=wait)
        sending = self.mark(message, "sending")
        # Where no slot had to be waited for, all of it goes to the disk at once.
        await (asyncio.gather(prepared, sending) if prepared is not None else sending)
        self._unsure.add(message.id)
        await to_its_end(self._sent(self._channels[to.channel], message, arrived, place))

    async def _sent(self, channel: Channel, message: Outbound, arrived: Arrived, place: str | None) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                done = await (channel.send(message) if place is None else _changed(channel, message, place))
        except TimeoutError:
            raise errors.DeliveryUncertain(f"the channel said nothing for {SEND_SECONDS:g} s") from None
        await self._arrived(message, done, arrived)

    async def _found(self, to: Address, message: Outbound, arrived: Arrived) -> bool:
        """Whether a message whose send has an unknown outcome is in the chat.

        Raises `errors.DeliveryUncertain` where the platform cannot tell, `errors.DeliveryThrottled` where it will
        be able to, later.
        """
        channel = self._channels[to.channel]
        found = await self._asked(channel, message)
        if found is None:
            await self._clock.sleep(SETTLE_SECONDS)
            found = await self._asked(channel, message)
        if found is None:
            return False
        await to_its_end(self._arrived(message, found, arrived))
        return True

    @staticmethod
    async def _asked(channel: Channel, message: Outbound) -> Sent | None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                return await channel.find(message)
        except TimeoutError:
            raise errors.DeliveryUncertain("the channel does not say what became of a message") from None
        except (errors.DeliveryThrottled, errors.DeliveryUncertain):
            raise
        except errors.DeliveryFailed as error:
            raise errors.DeliveryUncertain(f"the platform refuses to say: {error}") from None

    async def _arrived(self, message: Outbound, sent: Sent, arrived: Arrived) -> None:
        await arrived(message, sent)
        await self.mark(message, "sent", message_id=sent.message_id)
        self._log.write(
            "delivery",
            f"{message.kind} delivered",
            message_id=sent.message_id,
            outbound_id=message.id,
            length=len(message.text),
        )

    async def _replaced(self, to: Address, item: Item, error: errors.DeliveryUncertain) -> list[Outbound]:
        """Nobody can tell whether it arrived: what is owed goes out once more and says that it may be a repeat, so that
        it is neither lost nor doubled in silence. A repeat is not repeated, unless a crash came in between.
        """
        message = item.message
        if not item.owed or (original(message.id) != message.id and not item.lost):
            raise error
        words = message.text
        if not words.startswith(REPEATED):
            words = REPEATED + words
        again = [
            replace(message, id=f"{message.id}-{n}", text=part)
            for n, part in enumerate(self._channels[to.channel].split(words), 1)
        ]
        # Where its turn may be over, nobody looks for what was not put off. Until that is on file the original is.
        at = deferred(self._clock.now())
        waits = [self.mark(one, "intent", detail=at) for one in again if item.put_off]
        ends = self.mark(message, "uncertain", detail=REPLACED)
        await asyncio.gather(self._arrears.intend(again), *waits, ends)
        return again

    def _later(self, to: Address, item: Item, *, unknown: bool) -> errors.DeliveryFailed:
        """What a message ends with that the platform does not let out now. The older it is, the rarer it is tried."""
        if item.owed:
            wait = max(self.frozen(to), min(item.age / 4, SLOWEST_RETRY), UNSAID)
            return PutOff("the platform asks to wait for long", wait=wait, unknown=unknown)
        if unknown:
            return errors.DeliveryUncertain("the platform cannot be asked what became of it")
        return errors.DeliveryThrottled("the platform asks to wait for long", retry_after=self.frozen(to))

    async def end(self, message: Outbound, error: errors.DeliveryFailed) -> None:
        """Record, and tell the operator, that a message will not be sent any more."""
        state: OutboxState = "uncertain" if isinstance(error, errors.DeliveryUncertain) else "failed"
        self._log.write(
            "delivery",
            f"{message.kind} not delivered: {state}",
            level="error",
            chat_key=message.chat_key,
            request_id=message.request_id,
            outbound_id=message.id,
            code=error.code,
            cause=str(error),
        )
        await self.mark(message, state, detail=error.code)
        if message.kind == "reply" and not isinstance(error, errors.TargetGone):
            channel = message.chat_key.partition(":")[0]
            self.tell(
                f"deliveries of {channel}",
                f"An answer could not be delivered by {channel}: {error}. `shipmate logs --request "
                f"{message.request_id}` shows its path. Others within the hour are in the log alone.",
            )

    def _budgets(self, to: Address) -> tuple[Budget, Budget]:
        """That of the chat and that of the whole bot."""
        chat = total = None
        if self._limits:
            manifest = self._manifests[to.channel]
            chat, total = manifest.pace.get(to.chat_type), manifest.total
        return (to.budget, chat or UNLIMITED), (to.channel, total or UNLIMITED)


async def _changed(channel: Channel, message: Outbound, message_id: str) -> Sent:
    await cast("Edits", channel).edit(message, message_id)
    return Sent(message_id)


def _nobody(_subject: str, _words: str) -> None:
    """There is nobody to tell."""


def _signs(to: Address) -> str:
    return f"{to.channel} signs"
