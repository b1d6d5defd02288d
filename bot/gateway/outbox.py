"""One message after the other from its outbox row to its end: in the chat, failed, unknown, or put off."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Unpack, cast

from bot import errors
from bot.contracts.channel import Channel, Edits, Manifest, Pace
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.identity import ChatKey
from bot.contracts.journal import Outbox, OutboxFacts, OutboxState
from bot.contracts.outbound import Outbound, Sent
from bot.gateway.address import Address
from bot.gateway.arrears import Arrears
from bot.gateway.closed_chats import Targets
from bot.gateway.grace import to_its_end
from bot.gateway.items import Item, PutOff
from bot.gateway.rate_limit import UNSAID, Budget, Pacer, patience
from bot.gateway.waiting import Waiting

MAX_ATTEMPTS = 6
MAX_WAIT = 60.0
"""Seconds that a turn may wait for a platform that asks for patience; a reply that has to wait for longer is put off."""
SEND_SECONDS = 120.0
"""After this a channel that says nothing counts as one that may have sent."""
SETTLE_SECONDS = 2.0
"""A message that a platform does not show may still be on its way there: after this it is asked once more."""
SLOWEST_RETRY = 15.0
"""Seconds between two tries of what surely was not sent."""
FIRST_AGAIN = 2.0
SLOWEST_AGAIN = 600.0
AGAIN_SHARE = 3
"""Seconds until a repeat of unknown outcome is sent again: from the first up to the slowest, in between the third part of
its age, so that what failed for three minutes is tried within one once it can succeed.
"""
REPEATED = "(I am not sure that this has arrived, so here it is, perhaps again.)\n\n"
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
        journal: Outbox,
        arrears: Arrears,
        targets: Targets,
        waiting: Waiting,
        clock: Clock,
        ids: Ids,
        log: Log,
        limits: bool,
    ) -> None:
        self._channels = channels
        self._manifests = manifests
        self._arrears = arrears
        self._journal = journal
        self._targets = targets
        self._waiting = waiting
        self._clock = clock
        self._ids = ids
        self._log = log
        self._limits = limits
        self.tell: Callable[[str, str], object] = _nobody
        """Told what operators should know: a subject, and words."""
        self.untold: dict[ChatKey, dict[str, tuple[OutboxState, str]]] = {}
        """By chat, the ids, states and words of what will not arrive there, until it is told so."""
        self._pacer = Pacer(clock)
        self._unsure: set[str] = set()

    async def deliver(
        self, to: Address, items: Iterable[Item], arrived: Arrived, prepared: Future[None] | None = None
    ) -> None:
        """Send messages of one answer in order, once `prepared` (their rows are written) is done.

        Raises an `errors.DeliveryFailed`; then every row that is not in the chat says what becomes of it: with
        `DeliveryDeferred` all that is left goes out later, with any other nothing more. `DeliveryUncertain` comes only
        of what nobody is owed: the first of what is left may be in the chat.
        """
        left = deque(items)
        try:
            while left:
                again = await self._one(to, left[0], arrived, prepared)
                item = left.popleft()
                left.extendleft(Item(one, item.owed, put_off=item.put_off) for one in reversed(again))
        except PutOff as error:
            left[0] = replace(left[0], lost=error.unknown, attempts=error.attempts)
            await self.put_off(to, left, error.wait)
            raise
        except errors.DeliveryUncertain as error:
            await self.end(left.popleft().message, error)
            rest = errors.DeliveryFailed("what came before it may not have arrived")
            await asyncio.gather(*(self.end(item.message, rest) for item in left))
            raise
        except errors.DeliveryFailed as error:
            if isinstance(error, errors.TargetGone) and not self._targets.closed(to):
                await self._targets.close(to, str(error))
            if prepared is not None:
                await prepared
            await asyncio.gather(*(self.end(item.message, error, untold=item.put_off) for item in left))
            raise

    async def load(self) -> None:
        """What chats have still to hear. Raises `errors.StorageError`."""
        for row in await self._journal.untold():
            self.untold.setdefault(row.chat_key, {})[row.id] = row.state, row.text

    async def told(self, to: Address) -> None:
        """A chat hears what will not arrive there."""
        for row_id, (state, _) in self.untold.pop(to.chat_key, {}).items():
            await self._arrears.mark(row_id, state, untold=False)

    def unsure(self, message: Outbound) -> bool:
        """Whether the send of a message has begun and nobody knows yet what became of it."""
        return message.id in self._unsure

    async def put_off(self, to: Address, items: Collection[Item], wait: float) -> None:
        """What is owed goes out by itself, in order, `wait` seconds from now."""
        until = self._clock.now() + wait
        self.hold(to, wait)
        await asyncio.gather(
            *(
                self.mark(
                    one.message,
                    "sending" if one.lost else "intent",
                    not_before=until,
                    attempts=one.attempts,
                )
                for one in items
            )
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

    async def mark(self, message: Outbound, state: OutboxState, **facts: Unpack[OutboxFacts]) -> None:
        """Record a state, now or as soon as the disk takes it."""
        if state != "sending":
            self._unsure.discard(message.id)
        await self._arrears.mark(message.id, state, **facts)

    async def _one(
        self, to: Address, item: Item, arrived: Arrived, prepared: Future[None] | None
    ) -> list[Outbound]:
        """Take one message to its end; what has to be sent in its place, [] where it is in the chat."""
        message, unknown, waited, place = item.message, item.lost, 0.0, item.place
        doubt, attempts = item.lost, item.attempts
        tries = 0
        while tries < MAX_ATTEMPTS and waited <= MAX_WAIT:
            tries += 1
            try:
                if unknown and place is None and await self._found(to, message, arrived):
                    return []
                unknown = False
                await self._attempt(to, message, arrived, prepared, place)
            except errors.EditRefused as error:
                self._log.write("delivery", "a preview cannot be changed", level="warn", cause=str(error))
                place, unknown = None, doubt
            except errors.DeliveryThrottled as error:
                waited += await self._held_up(to, error, asked=unknown)
            except errors.DeliveryUncertain as error:
                if unknown:
                    if again := await self._doubtful(to, item, attempts):
                        return again
                    unknown = False
                else:
                    unknown = doubt = True  # a change can be made again, so nobody is asked what became of it
                    attempts += 1
                    self._log.write(
                        "delivery",
                        "a send has an unknown outcome",
                        level="warn",
                        outbound_id=message.id,
                        attempts=attempts,
                        cause=str(error),
                    )
            else:
                return []
        if prepared is not None:
            await prepared
        raise self._later(to, item, unknown=unknown, attempts=attempts)

    async def _held_up(self, to: Address, error: errors.DeliveryThrottled, *, asked: bool) -> float:
        """The platform asks to wait; returns the seconds. The next send waits for its slot, a question here."""
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
        except errors.DeliveryUncertain:
            raise
        except errors.DeliveryFailed:
            self._unsure.discard(message.id)
            raise
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
            raise errors.DeliveryThrottled("the channel does not answer", retry_after=UNSAID) from None
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

    async def _doubtful(self, to: Address, item: Item, attempts: int) -> list[Outbound]:
        """Nobody can tell what became of a message: its repeats. None where it is one itself, and may be sent again."""
        if item.message.repeat_of is None:
            return await self._repeats(to, item)
        if attempts > item.attempts:
            await self._again(item, attempts)
        return []

    async def _repeats(self, to: Address, item: Item) -> list[Outbound]:
        """The same words once more, which say so: nobody can tell whether they arrived, and so they are neither lost nor
        doubled in silence.
        """
        message = item.message
        again = [
            replace(message, id=self._ids.ulid(), text=part, repeat_of=message.id)
            for part in self._channels[to.channel].split(REPEATED + message.text)
        ]
        # Where its turn may be over, nobody looks for what was not put off.
        until = self._clock.now() if item.put_off else None
        await asyncio.gather(self._arrears.intend(again, not_before=until), self.mark(message, "uncertain"))
        return again

    async def _again(self, item: Item, attempts: int) -> None:
        """The answer to a repeat was lost too: wait before the next one, where it is owed by putting it off."""
        first = FIRST_AGAIN * 2.0 ** (attempts - item.attempts - 1)
        wait = min(max(first, item.age / AGAIN_SHARE), SLOWEST_AGAIN)
        if item.owed:
            raise PutOff("a repeat has an unknown outcome", wait=wait, unknown=True, attempts=attempts)
        await self._clock.sleep(wait)

    def _later(self, to: Address, item: Item, *, unknown: bool, attempts: int) -> errors.DeliveryFailed:
        """What a message ends with that the platform does not let out now. The older it is, the rarer it is tried."""
        # A repeat that may have arrived before may still have.
        unknown = unknown or (item.message.repeat_of is not None and attempts > 0)
        if item.owed:
            wait = max(self.frozen(to), min(item.age / 4, SLOWEST_RETRY), UNSAID)
            return PutOff("the platform asks to wait for long", wait=wait, unknown=unknown, attempts=attempts)
        if unknown:
            return errors.DeliveryUncertain("the platform cannot be asked what became of it")
        return errors.DeliveryThrottled("the platform asks to wait for long", retry_after=self.frozen(to))

    async def end(self, message: Outbound, error: errors.DeliveryFailed, *, untold: bool = False) -> None:
        """Record, and tell the operator, that a message will not be sent any more. `untold`: its turn is over, so that
        nobody else tells its chat.
        """
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
        untold = untold and not isinstance(error, errors.TargetGone)
        await self.mark(message, state, detail=error.code, untold=untold or None)
        if untold:
            self.untold.setdefault(message.chat_key, {})[message.id] = state, message.text
        if message.kind == "reply" and not isinstance(error, errors.TargetGone):
            channel = message.chat_key.channel
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
