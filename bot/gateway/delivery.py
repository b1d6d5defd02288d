"""Delivery: the door through which everything leaves. Written down first, sent once, and told truly."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bot import errors, text
from bot.contracts.agent import PriorReply
from bot.contracts.archive import Archive
from bot.contracts.channel import Channel, Edits, Manifest
from bot.contracts.environment import Clock, Ids, Log, Redact
from bot.contracts.journal import DeliveryRecord, Journal
from bot.contracts.outbound import Outbound, Sent
from bot.gateway.address import Address
from bot.gateway.arrears import Arrears
from bot.gateway.closed_chats import Targets
from bot.gateway.completion import Completion, Kind, Part, Shelf
from bot.gateway.deferred import Deferred
from bot.gateway.items import Item, original
from bot.gateway.live.answer_preview import NONE, Previewing, Previews
from bot.gateway.live.message import Desk
from bot.gateway.live.progress import Progress
from bot.gateway.outbox import REPEATED, Courier
from bot.gateway.waiting import Waiting

SIGN_SECONDS = 5.0
AMENDS = 3
LONGEST_AMEND = 60.0
SHORT = 2_000
"""Characters that are split where everything else runs: that takes a few milliseconds."""


MISSED = (
    "(Something that I said here earlier may never have arrived: {which}. /receipt shows what became of it.)"
)
MISSED_CHARS = 60


def _unheard(_ids: Sequence[str]) -> None:
    """Nobody wants to know."""


class Delivery:
    """Every message that leaves goes through `send`. `deferred` is the worker that sends what had to wait."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        *,
        journal: Journal,
        archive: Archive,
        redact: Redact,
        clock: Clock,
        ids: Ids,
        log: Log,
        limits: bool = True,
        previewing: Previewing = NONE,
    ) -> None:
        self._channels = channels
        self._redact = redact
        self._ids = ids
        self._clock = clock
        self._log = log
        self._waiting = Waiting()
        self._targets = Targets(journal, log)
        self.arrears = Arrears(journal, log)
        self.arrears.refused = self._waiting.changed.set
        self._courier = Courier(
            channels,
            manifests,
            journal=journal,
            arrears=self.arrears,
            targets=self._targets,
            waiting=self._waiting,
            clock=clock,
            ids=ids,
            log=log,
            limits=limits,
        )
        desk = Desk(self._courier, journal, clock, ids, log)
        self._previews = Previews(desk, self._waiting, manifests, previewing)
        self.progress = Progress(desk, manifests, previewing.after)
        self._shelf = Shelf(archive, clock, log)
        self._completion = Completion(
            self._courier,
            self._waiting,
            self._shelf,
            journal=journal,
            arrears=self.arrears,
            clock=clock,
            log=log,
        )
        self.deferred = Deferred(
            self._completion,
            self._courier,
            self._waiting,
            channels=channels,
            journal=journal,
            arrears=self.arrears,
            clock=clock,
            log=log,
            ready=self._load,
        )
        self._loaded = False
        self._loading = asyncio.Lock()
        self._cutting: set[asyncio.Task[None]] = set()

    async def open(self, tell: Callable[[str, str], object]) -> None:
        """Take up what an earlier process left, and send from now on what has to wait. `tell` hears of replies that
        will not be delivered: a subject, and words for operators.
        """
        self._courier.tell = tell
        await self._load()
        self.deferred.start()

    async def close(self) -> None:
        """Begin nothing more; what still waits is in the journal."""
        cutting = list(self._cutting)  # those that nobody waits for any more
        for task in cutting:
            task.cancel()
        await asyncio.gather(*cutting, return_exceptions=True)
        await self._previews.close()
        await self.progress.close()
        await self.deferred.stop()

    async def settle(self) -> None:
        """Record what the disk refused, where it takes it now."""
        await self.arrears.settle()

    async def send(
        self,
        to: Address,
        words: str,
        *,
        kind: Kind = "reply",
        owed: bool = False,
        begun: Callable[[Sequence[str]], object] = _unheard,
    ) -> list[Sent]:
        """Deliver one message, in parts where it is long. Raises `errors.DeliveryFailed`.

        A reply that was delivered is archived; a notice never is, since the model must not come to see it. A reply,
        and a notice that is `owed` to who wrote, is repeated and says so where nobody can tell whether it arrived;
        where the platform lets it out only later it goes out by itself: `errors.DeliveryDeferred`. So does a reply
        that comes after it in the same chat, and what is cancelled before it is in the chat. `begun` hears the ids that it
        has in the outbox, before it is there.
        """
        made = asyncio.ensure_future(self._made(to, words, kind, begun, owed=owed))
        try:
            items, prepared = await asyncio.shield(made)
            if kind == "reply" and to.chat_key in self._waiting.chats:
                await prepared
                wait = self._courier.frozen(to)
                await self._courier.put_off(to, items, wait)
                raise errors.DeliveryDeferred("an earlier answer still waits for its platform", wait=wait)
            return await self._delivered(to, items, prepared)
        except asyncio.CancelledError:
            cutting = asyncio.ensure_future(self._cut_off(to, made))
            self._cutting.add(cutting)
            cutting.add_done_callback(self._cutting.discard)
            # Cancelled once more, the caller goes: it is seen to all the same.
            await asyncio.shield(cutting)
            raise

    async def _cut_off(self, to: Address, made: Future[tuple[list[Item], Future[None]]]) -> None:
        with contextlib.suppress(errors.DeliveryFailed):
            await self._completion.cut_off(to, (await made)[0])

    async def _made(
        self, to: Address, words: str, kind: Kind, begun: Callable[[Sequence[str]], object], *, owed: bool
    ) -> tuple[list[Item], Future[None]]:
        """The messages that a text comes to, and their way into the outbox."""
        await self._load()
        missed = self._courier.untold.get(to.chat_key, {}) if owed or kind == "reply" else {}
        if missed and words.strip():
            words = f"{_missed(lost for _, lost in missed.values())}\n\n{words}"
        parts = await self._split(self._channels[to.channel], self._redact(text.clean(words)))
        if not parts:
            raise errors.DeliveryFailed("there is nothing to send: the text is blank")
        messages = [
            Outbound(self._ids.ulid(), to.request_id, to.chat_key, to.target, part, kind) for part in parts
        ]
        place = await self._previews.take(to, messages[0].id) if kind == "reply" else None
        items = [Item(message, owed or kind == "reply") for message in messages]
        items[0] = replace(items[0], place=place)
        begun([message.id for message in messages])
        # In one order: the words are on file before what they tell counts as told.
        intended = asyncio.ensure_future(self.arrears.intend(messages))
        if missed:
            await intended
            await self._courier.told(to)
        return items, intended

    async def _delivered(self, to: Address, items: list[Item], prepared: Future[None]) -> list[Sent]:
        shown: list[Part] = []

        async def arrived(message: Outbound, sent: Sent) -> None:
            shown.append((message, sent))

        try:
            await self._courier.deliver(to, items, arrived, prepared)
        except (errors.DeliveryUncertain, errors.DeliveryDeferred):
            raise
        except errors.DeliveryFailed as error:
            if shown:
                begun = {original(message) for message, _ in shown}
                raise errors.DeliveryPartial(str(error), sent=len(begun), parts=len(items)) from error
            raise
        finally:
            if shown and items[0].message.kind == "reply":
                await self._shelf.put(to, shown)
        return [sent for _, sent in shown]

    async def amend(self, row: DeliveryRecord, words: str, place: Mapping[str, str]) -> None:
        """Give a message that was sent other words, and its target what `place` says, where its channel can do that; a second
        time where its platform asks to wait. Where it cannot be changed it stays.
        """
        channel = self._channels.get(row.chat_key.channel)
        if not isinstance(channel, Edits) or row.message_id is None:
            return
        target = {**(row.target or {}), **place}
        message = Outbound(row.id, row.request_id, row.chat_key, target, self._redact(words), "notice")
        for _ in range(AMENDS):
            try:
                async with asyncio.timeout(SIGN_SECONDS):
                    await channel.edit(message, row.message_id)
            except errors.DeliveryThrottled as error:
                await self._clock.sleep(min(error.retry_after, LONGEST_AMEND))
            except TimeoutError:
                continue
            except errors.DeliveryFailed as error:
                self._log.write("delivery", "a message could not be changed", level="debug", cause=str(error))
                return
            else:
                return

    async def resume(self, to: Address) -> tuple[PriorReply, ...]:
        """After a crash: bring what this answer had begun to deliver to its end, or put it off. Notices are left alone."""
        await self._load()
        begun = await self._completion.resume(to)
        await self._previews.adopt(to)
        await self.progress.adopt(to)
        return begun

    def preview(self, to: Address, words: Callable[[], str]) -> None:
        """As `contracts.agent.TurnRequest.preview`, where the channel can do that and is set to."""
        self._previews.begin(to, words)

    async def ended(self, to: Address) -> None:
        """A turn is over, here or (`quiet`) before a restart: what was shown of an answer says that it is no whole one."""
        await self._previews.end(to)
        await self.progress.end(to)

    def leave(self, to: Address) -> None:
        """A turn will go on after a restart."""
        self._previews.leave(to)
        self.progress.leave(to)

    async def quiet(self, to: Address) -> None:
        """A turn that an earlier process had begun does not go on: what shows it goes."""
        try:
            await self._previews.adopt(to)
            await self.progress.adopt(to)
        except errors.StorageError as error:
            self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
        await self.ended(to)
        await self.indicate(to, working=False)

    async def told(self, to: Address) -> bool:
        """After a crash: bring a notice that was begun to its end; True where its person has it, or will have it."""
        await self._load()
        return await self._completion.told(to)

    async def reopen(self, channel: str, chat_id: str) -> None:
        """Something came from a chat: where it counted as gone, it can be written to again."""
        await self._load()
        await self._targets.open(channel, chat_id)

    def gone(self, to: Address) -> bool:
        """Whether a chat can no longer be written to."""
        return self._targets.closed(to)

    def frozen(self, to: Address) -> float:
        """Seconds for which the platform wants to be left alone with a chat."""
        return self._courier.frozen(to)

    def spare(self, to: Address, *, reserve: int = 1) -> bool:
        """Take a slot for something cosmetic (a sign of work, an edit) of the same budgets as messages. False where
        it and `reserve` more are not free, where the platform wants to be left alone, and in a chat that is gone: it
        is dropped then.
        """
        return self._courier.spare(to, reserve=reserve)

    async def indicate(self, to: Address, *, working: bool) -> None:
        """Show or clear the sign of work. Dropped where the budget is short; a failure is only logged."""
        if not self.spare(to, reserve=1 if working else 0):
            return
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await self._channels[to.channel].indicate(to.target, working=working)
        except (TimeoutError, errors.DeliveryFailed) as error:
            if isinstance(error, errors.DeliveryThrottled):
                self._courier.freeze(to, error, cosmetic=True)
            self._log.write(
                "delivery", "the sign of work could not be shown", level="debug", cause=str(error)
            )

    async def _split(self, channel: Channel, words: str) -> list[str]:
        if len(words) <= SHORT:
            return channel.split(words)
        # Seeing whether the parts of a long text fit takes up to a quarter of a second.
        return await asyncio.to_thread(channel.split, words)

    async def _load(self) -> bool:
        """What an earlier process left: chats that are gone, answers that wait. Once, before anything goes out; False
        where that cannot be read.
        """
        if self._loaded:
            return True
        async with self._loading:
            try:
                if not self._loaded:
                    await self._targets.load()
                    await self._courier.load()
                    await self.deferred.load()
            except errors.StorageError as error:
                self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
                return False
            self._loaded = True
        return True


def _missed(lost: Iterable[str]) -> str:
    """What a chat is told of messages that will not arrive."""
    return MISSED.format(
        which=", ".join(f"“{text.preview(words.removeprefix(REPEATED), MISSED_CHARS)}”" for words in lost)
    )


class ChatReply:
    """`contracts.agent.Reply` to one chat. What stands in `below` goes below the next message: what could not be looked at.
    `delivered` is awaited after each message that people see, or will see without our doing.
    """

    def __init__(
        self, delivery: Delivery, to: Address, below: list[str], delivered: Callable[[], Awaitable[None]]
    ) -> None:
        self._delivery = delivery
        self._to = to
        self._below = below
        self._delivered = delivered
        self.written: list[str] = []
        """The ids in the outbox of all that was to be sent."""

    async def send(self, words: str) -> list[Sent]:
        told = len(self._below)
        if told:
            words = f"{words}\n\n" + "\n".join(self._below)
        try:
            sent = await self._delivery.send(self._to, words, begun=self.written.extend)
        except errors.DeliveryDeferred:
            await self._settled(told)
            raise
        await self._settled(told)
        return sent

    async def _settled(self, told: int) -> None:
        del self._below[:told]
        await self._delivered()
