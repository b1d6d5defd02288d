"""What is done with one inbound once it is its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from bot import errors
from bot.contracts import (
    Agent,
    Attachment,
    Channel,
    Clock,
    Inbound,
    Journal,
    Log,
    Manifest,
    Quoted,
    TurnRequest,
)
from bot.gateway.commands import BESIDE, Commands
from bot.gateway.delivery import Address, ChatReply, Delivery
from bot.gateway.intake import GatewayIntake
from bot.gateway.lanes import Lanes
from bot.gateway.presence import working
from bot.telemetry.context import turn_scope

EMPTY = "Your message was empty. What would you like to tell me?"
STOPPED = "Stopped."
CONTEXT_SECONDS = 20.0
"""What a platform gets to show the earlier messages of a thread; after that the turn begins without them."""
NOTHING_RUNS = "There is nothing to stop: I am not working on anything here."
_KINDS = {
    "photo": "photos",
    "video": "videos",
    "audio": "audio files",
    "voice": "voice notes",
    "sticker": "stickers",
    "file": "files",
}


class Turns:
    """The gateway's work: `queue` puts an inbound where it belongs, `work` does it when its lane is free."""

    def __init__(
        self,
        *,
        agent: Agent,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        journal: Journal,
        delivery: Delivery,
        clock: Clock,
        log: Log,
        max_concurrent: int,
        steer: bool,
    ) -> None:
        self._agent = agent
        self._channels = channels
        self._manifests = manifests
        self._journal = journal
        self._delivery = delivery
        self._clock = clock
        self._log = log
        self._steer = steer
        self._opened: set[str] = set()
        self._held: list[Inbound] = []
        self._preparing: dict[str, asyncio.Task[tuple[Quoted, ...]]] = {}
        self._again: set[str] = set()
        self._joined: dict[str, tuple[str, ...]] = {}
        self.lanes = Lanes(self.work, self._sorry, limit=max_concurrent, log=log)
        self.commands: Commands
        self.intake: GatewayIntake

    def queue(self, inbound: Inbound) -> None:
        """Into its lane, or beside it: a stop passes every queue. Held back until its channel is open."""
        if inbound.channel not in self._opened:
            self._held.append(inbound)
            return
        command = inbound.command.name if inbound.command is not None else None
        if inbound.kind == "stop" or command in BESIDE:
            self.lanes.beside(self.work(inbound))
        else:
            self.lanes.put(inbound)

    async def open(self, channel: str) -> int:
        """A channel is connected: what a crash or a stop left unfinished goes on, oldest first, and after it what
        came in meanwhile. Returns how many go on.
        """
        fresh = {inbound.request_id for inbound in self._held}
        unfinished = [
            inbound
            for inbound in await self._journal.unfinished()
            if inbound.channel == channel and inbound.request_id not in fresh
        ]
        going_on = [inbound for inbound in unfinished if not await self._settled(inbound)]
        await self._attach({inbound.request_id for inbound in going_on}, {one.chat_key for one in going_on})
        attached = {joined for others in self._joined.values() for joined in others}
        going_on = [inbound for inbound in going_on if inbound.request_id not in attached]
        self._again |= {inbound.request_id for inbound in going_on}
        self._opened.add(channel)
        held = [inbound for inbound in self._held if inbound.channel == channel]
        self._held = [inbound for inbound in self._held if inbound.channel != channel]
        for inbound in (*going_on, *held):
            self.queue(inbound)
        return len(going_on)

    async def _attach(self, waiting: set[str], chat_keys: set[str]) -> None:
        """What had joined a turn that a crash cut off is answered by that turn, not by one of its own."""
        for chat_key in chat_keys:
            try:
                head, *others = await self._agent.cut_off(chat_key) or ("",)
            except errors.StorageError as error:
                # The turn itself will meet this and say so; the other chats go on.
                self._log.write("error", "a transcript cannot be read", level="error", cause=str(error))
                continue
            if head in waiting and others:
                self._joined[head] = tuple(others)

    async def _settled(self, inbound: Inbound) -> bool:
        """Whether an unfinished inbound needs nothing more; it is closed then."""
        deliveries = await self._journal.deliveries(inbound.request_id)
        if any(row.kind == "notice" and row.state == "sent" for row in deliveries):
            # A notice is the last thing that happens to an inbound.
            await self._journal.finish(inbound.request_id, "told before a restart")
            return True
        if inbound.kind == "stop" or (inbound.command is not None and inbound.command.name == "stop"):
            await self._journal.finish(inbound.request_id, "nothing runs after a restart")
            return True
        await self._recorded(self.intake.archive_once(inbound))
        return False

    async def work(self, inbound: Inbound) -> None:
        """One inbound from claim to done. Cancelled, it stays unfinished in the journal."""
        with turn_scope(chat_key=inbound.chat_key, request_id=inbound.request_id):
            # The journal keeps its order, so nobody need wait for the claim before the work begins.
            claimed = asyncio.ensure_future(self._recorded(self._journal.claim(inbound.request_id)))
            try:
                outcome = await self._handle(inbound)
            except errors.ShipmateError as error:
                self._log.write("error", f"{type(error).__name__}: {error}", level="error")
                await self._notify(inbound, error.person)
                outcome = "failed"
            await claimed
            await self._recorded(self._journal.finish(inbound.request_id, outcome))

    async def _sorry(self, inbound: Inbound) -> None:
        """Work on an inbound failed in a way that nobody foresaw: the person hears of it, and it is not tried again."""
        with turn_scope(chat_key=inbound.chat_key, request_id=inbound.request_id):
            await self._notify(inbound, errors.ShipmateError.person)
            await self._recorded(self._journal.finish(inbound.request_id, "failed"))

    async def stop(self, inbound: Inbound) -> str:
        """Stop the running turn of this chat, and what the same person has waiting in it."""
        waiting = self.lanes.take(inbound.chat_key, lambda other: other.user_id == inbound.user_id)
        for other in waiting:
            await self._recorded(self._journal.finish(other.request_id, "stopped"))
        preparing = self._preparing.get(inbound.chat_key)
        if preparing is not None and preparing.cancel():
            return STOPPED
        if not await self._agent.stop(inbound.chat_key) and not waiting:
            return NOTHING_RUNS
        return STOPPED

    async def _handle(self, inbound: Inbound) -> str:
        if inbound.kind in {"edit", "delete"}:
            return "recorded"
        if inbound.kind == "stop":
            await self._notify(inbound, await self.stop(inbound))
            return "stop"
        if inbound.command is not None:
            await self._notify(inbound, await self.commands.run(inbound))
            return "command"
        if not inbound.text.strip():
            await self._notify(inbound, cannot_open(inbound.attachments) if inbound.attachments else EMPTY)
            return "nothing to answer"
        return await self._turn(inbound)

    async def _turn(self, inbound: Inbound) -> str:
        to = Address.of(inbound)
        taken: list[Inbound] = []

        def take_more() -> list[Inbound]:
            more = self.lanes.take(inbound.chat_key, lambda other: _joins(other, inbound), leading=True)
            taken.extend(more)
            return more

        async def answered() -> None:
            """What joined the turn before a reply was delivered is answered by it: nothing asks it again."""
            while taken:
                await self._recorded(
                    self._journal.finish(taken[0].request_id, f"joined {inbound.request_id}")
                )
                taken.pop(0)

        every = self._manifests[inbound.channel].indicate_every
        async with working(self._delivery, to, self._clock, every):
            context = await self._prepared(inbound)
            if context is None:
                return "stopped"
            request = TurnRequest(
                inbound.request_id,
                inbound.chat_key,
                inbound=inbound,
                context=context,
                reply=ChatReply(self._delivery, to, cannot_open(inbound.attachments), answered),
                take_more=take_more if self._steer else None,
                delivered=await self._delivered(to),
            )
            outcome = await self._agent.run(request)
        if outcome.notice is not None:
            await self._notify(inbound, outcome.notice)
        await answered()
        for request_id in self._joined.pop(inbound.request_id, ()):
            await self._recorded(self._journal.finish(request_id, f"joined {inbound.request_id}"))
        return outcome.status

    async def _delivered(self, to: Address) -> tuple[str, ...]:
        """What a turn that goes on after a crash has delivered, its begun deliveries brought to an end first."""
        if to.request_id not in self._again:
            return ()
        self._again.discard(to.request_id)
        return await self._delivery.resume(to)

    async def _prepared(self, inbound: Inbound) -> tuple[Quoted, ...] | None:
        """What the turn begins with; None where it was stopped meanwhile."""
        task = asyncio.ensure_future(self._context(inbound))
        self._preparing[inbound.chat_key] = task
        try:
            await asyncio.wait([task])
        finally:
            del self._preparing[inbound.chat_key]
            task.cancel()
        return None if task.cancelled() else task.result()

    async def _context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Earlier messages of a thread the bot is new to, without those of strangers."""
        facts = await self._agent.describe(inbound.chat_key)
        if facts["messages"]:
            return ()
        try:
            async with asyncio.timeout(CONTEXT_SECONDS):
                earlier = await self._channels[inbound.channel].context(inbound)
        except (TimeoutError, errors.ShipmateError) as error:
            self._log.write(
                "error",
                f"the earlier messages of the thread cannot be read: {type(error).__name__}: {error}",
                level="warn",
            )
            return ()
        return self.intake.admitted(inbound, earlier)

    async def _notify(self, inbound: Inbound, words: str) -> None:
        """Tell the person something that is not part of the conversation. A failure is in the log already."""
        try:
            await self._delivery.send(Address.of(inbound), words, kind="notice")
        except errors.DeliveryFailed:
            return

    async def _recorded(self, change: Awaitable[None]) -> None:
        """Await a change on disk. Where that refuses, work goes on; what stays unfinished is for the next start."""
        try:
            await change
        except errors.StorageError as error:
            self._log.write("error", "a change could not be recorded", level="error", cause=str(error))


def _joins(other: Inbound, running: Inbound) -> bool:
    """Whether a waiting message may join a running turn: plain words of the person who caused it."""
    return (
        other.user_id == running.user_id
        and other.kind == "message"
        and other.command is None
        and not other.attachments
        and _place(other) == _place(running)
        and bool(other.text.strip())
    )


def _place(inbound: Inbound) -> dict[str, str]:
    """Where its answer belongs, but for the message that it hangs on."""
    return {name: value for name, value in inbound.target.items() if name != "reply_to"}


def cannot_open(attachments: tuple[Attachment, ...]) -> str:
    """A line that names what came along and cannot be looked at; "" where nothing did."""
    if not attachments:
        return ""
    named = []
    for attachment in attachments:
        kind = "voice note" if attachment.kind == "voice" else attachment.kind
        named.append(f"the {kind} “{attachment.name}”" if attachment.name else f"the {kind}")
    kinds = " or ".join(dict.fromkeys(_KINDS[attachment.kind] for attachment in attachments))
    return f"(I cannot open {kinds} yet, so I have not looked at {', '.join(named)}.)"
