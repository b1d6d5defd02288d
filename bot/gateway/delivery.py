"""Delivery: written to the outbox first, then sent, once; what became of it is recorded and told truly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bot import errors, text
from bot.contracts import (
    Archive,
    ArchiveLine,
    Channel,
    ChatType,
    Clock,
    HistoryQuery,
    Ids,
    Inbound,
    Journal,
    Log,
    Manifest,
    Outbound,
    Pace,
    Redact,
    Sent,
)
from bot.gateway.pace import Pacer

MAX_ATTEMPTS = 6
MAX_WAIT = 60.0
"""Seconds that one message may wait for a platform that asks for patience before it counts as failed."""
SEND_SECONDS = 120.0
"""After this a channel that says nothing counts as one that may have sent."""
SIGN_SECONDS = 5.0
GRACE_SECONDS = 3.0
"""What a send that has begun gets to end when its turn is stopped: else nobody would know what became of it."""
SHORT = 2_000
"""Characters that are split where everything else runs: that takes a few milliseconds."""
REPEATED = "(I am not sure that this has arrived, so here it is, perhaps again.)\n\n"
BOT_USER = "bot"
UNLIMITED = Pace(burst=1_000_000, every=0.000_001)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message goes: fixed by the inbound it answers."""

    channel: str
    chat_id: str
    chat_key: str
    chat_type: ChatType
    target: Mapping[str, str]
    request_id: str

    @classmethod
    def of(cls, inbound: Inbound) -> Address:
        return cls(
            inbound.channel,
            inbound.chat_id,
            inbound.chat_key,
            inbound.chat_type,
            inbound.target,
            inbound.request_id,
        )

    @property
    def budget(self) -> str:
        """Threads and topics share the budget of their chat."""
        return f"{self.channel}:{self.chat_id}"


class Delivery:
    """Every message that leaves goes through `send`."""

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
    ) -> None:
        self._channels = channels
        self._manifests = manifests
        self._journal = journal
        self._archive = archive
        self._redact = redact
        self._clock = clock
        self._ids = ids
        self._log = log
        self._limits = limits
        self._pacer = Pacer(clock)

    async def send(
        self,
        to: Address,
        words: str,
        *,
        kind: Literal["reply", "notice"] = "reply",
        after: Awaitable[object] | None = None,
    ) -> list[Sent]:
        """Deliver one message, in parts where it is long, once `after` is done. Raises `errors.DeliveryFailed`.

        A reply that was delivered is archived; a notice never is, since the model must not come to see it.
        """
        channel = self._channels[to.channel]
        parts = await self._split(channel, self._redact(text.clean(words)))
        if not parts:
            raise errors.DeliveryFailed("there is nothing to send: the text is blank")
        messages = [
            Outbound(self._ids.ulid(), to.request_id, to.chat_key, to.target, part, kind) for part in parts
        ]
        written = [self._intend(messages), *([after] if after is not None else ())]
        prepared = asyncio.gather(*written)
        sent: list[Sent] = []
        try:
            for message in messages:
                await self._one(channel, to, message, prepared, sent)
        except errors.DeliveryUncertain:
            raise
        except errors.DeliveryFailed as error:
            if sent:
                raise errors.DeliveryPartial(str(error), sent=len(sent), parts=len(parts)) from error
            raise
        finally:
            if kind == "reply" and sent:
                await self._remember(to, "\n".join(parts[: len(sent)]), sent)
        return sent

    async def _split(self, channel: Channel, words: str) -> list[str]:
        if len(words) <= SHORT:
            return channel.split(words)
        # Seeing whether the parts of a long text fit takes up to a quarter of a second.
        return await asyncio.to_thread(channel.split, words)

    async def indicate(self, to: Address, *, working: bool) -> None:
        """Show or clear the sign of work. Dropped where the chat's budget is short; a failure is only logged."""
        if working and self._limits and not self._pacer.spare(to.budget, self._pace(to)):
            return
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await self._channels[to.channel].indicate(to.target, working=working)
        except (TimeoutError, errors.DeliveryFailed) as error:
            self._log.write(
                "delivery", "the sign of work could not be shown", level="debug", cause=str(error)
            )

    def _pace(self, to: Address) -> Pace:
        return self._manifests[to.channel].pace.get(to.chat_type, UNLIMITED)

    async def _intend(self, messages: list[Outbound]) -> None:
        try:
            await self._journal.intend(messages)
        except errors.StorageError as error:
            # An answer that cannot be recorded is still better delivered than lost.
            self._log.write("error", "the outbox cannot be written", level="error", cause=str(error))

    async def _one(
        self,
        channel: Channel,
        to: Address,
        message: Outbound,
        prepared: Awaitable[object],
        sent: list[Sent],
    ) -> None:
        waited = 0.0
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if self._limits:
                await self._pacer.slot(to.budget, self._pace(to))
            # Where no slot had to be waited for, all of it goes to the disk at once.
            await asyncio.gather(prepared, self._mark(message, "sending"))
            try:
                await _to_its_end(self._attempt(channel, message, sent))
            except errors.DeliveryThrottled as error:
                waited += error.retry_after
                if attempt == MAX_ATTEMPTS or waited > MAX_WAIT:
                    await self._failed(message, error)
                    raise
                self._log.write(
                    "delivery", "the platform asks to wait", level="warn", retry_after=error.retry_after
                )
                self._pacer.freeze(to.budget, error.retry_after)
                await self._clock.sleep(error.retry_after)
            else:
                return
        raise AssertionError("unreachable")  # the last attempt returns or raises

    async def _attempt(self, channel: Channel, message: Outbound, sent: list[Sent]) -> None:
        """Send once and record what became of it. A platform that asks to wait is the caller's matter."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                done = await channel.send(message)
        except TimeoutError:
            lost = errors.DeliveryUncertain(f"the channel said nothing for {SEND_SECONDS:g} s")
            done = await self._resolved(channel, message, lost)
        except errors.DeliveryThrottled:
            raise
        except errors.DeliveryUncertain as error:
            done = await self._resolved(channel, message, error)
        except errors.DeliveryFailed as error:
            await self._failed(message, error)
            raise
        sent.append(done)
        await self._arrived(message, done)

    async def _arrived(self, message: Outbound, sent: Sent) -> None:
        await self._mark(message, "sent", message_id=sent.message_id)
        self._log.write(
            "delivery",
            f"{message.kind} delivered",
            message_id=sent.message_id,
            outbound_id=message.id,
            length=len(message.text),
        )

    async def _resolved(self, channel: Channel, message: Outbound, error: errors.DeliveryUncertain) -> Sent:
        """A send that may or may not have arrived. A platform that can tell is asked; where it cannot, a reply goes
        out once more and says that it may be a repeat, so that it is neither lost nor doubled in silence.
        """
        await self._mark(message, "uncertain", detail=error.code)
        self._log.write("delivery", "a send has an unknown outcome", level="warn", outbound_id=message.id)
        again = [message.text]
        try:
            async with asyncio.timeout(SEND_SECONDS):
                found = await channel.find(message)
            if found is not None:
                return found
        except (TimeoutError, errors.DeliveryUncertain):
            if message.kind == "notice":
                await self._failed(message, error)
                raise error from None
            again = channel.split(REPEATED + message.text)
        try:
            return await self._repeated(channel, message, again)
        except (TimeoutError, errors.DeliveryThrottled):
            # Still unknown, and no longer to be tried: the message as it was could be there twice, in silence.
            await self._failed(message, error)
            raise error from None
        except errors.DeliveryFailed as second:
            await self._failed(message, second)
            raise

    async def _repeated(self, channel: Channel, message: Outbound, parts: list[str]) -> Sent:
        """Send the parts of a repeat, each once, waiting where the platform asks for it; the last one's id."""
        waited = 0.0
        sent: list[Sent] = []
        while len(sent) < len(parts):
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    sent.append(await channel.send(replace(message, text=parts[len(sent)])))
            except errors.DeliveryThrottled as error:
                waited += max(error.retry_after, 0.1)
                if waited > MAX_WAIT:
                    raise
                await self._clock.sleep(error.retry_after)
        return sent[-1]

    async def resume(self, to: Address) -> tuple[str, ...]:
        """After a crash: bring what this answer had begun to deliver to its end; ids of all that was delivered.

        Parts that were not sent are, a send without a known outcome is resolved, and what was delivered is
        archived where the crash came before that. Notices are left alone.
        """
        channel = self._channels[to.channel]
        rows = [row for row in await self._journal.deliveries(to.request_id) if row.kind == "reply"]
        delivered: dict[str, str] = {
            row.message_id: row.text for row in rows if row.state == "sent" and row.message_id
        }
        sent: list[Sent] = []
        on_file = asyncio.ensure_future(_nothing())  # awaited again at each attempt
        try:
            for row in rows:
                message = Outbound(row.id, row.request_id, row.chat_key, to.target, row.text)
                if row.state in {"sending", "uncertain"}:
                    lost = errors.DeliveryUncertain("the process ended before the platform answered")
                    sent.append(await self._resolved(channel, message, lost))
                    await self._arrived(message, sent[-1])
                elif row.state == "intent":
                    await self._one(channel, to, message, on_file, sent)
                else:
                    continue
                delivered[sent[-1].message_id] = row.text
        except errors.DeliveryFailed as error:
            self._log.write("delivery", "an answer could not be completed", level="warn", cause=str(error))
        if delivered:
            await self._remember_once(to, delivered)
        return tuple(delivered)

    async def _remember_once(self, to: Address, delivered: Mapping[str, str]) -> None:
        """Archive what was delivered and is not in the archive yet."""

        def other(line: ArchiveLine) -> bool:
            return (line.meta or {}).get("requestId") != to.request_id

        query = HistoryQuery(limit=200, role="assistant", skip=other)
        try:
            page = await self._archive.search(to.chat_key, query)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be read", level="error", cause=str(error))
            return
        known = {one for line in page.lines for one in (line.meta or {}).get("messageIds", ())}
        if new := [one for one in delivered if one not in known]:
            await self._remember(to, "\n".join(delivered[one] for one in new), [Sent(one) for one in new])

    async def _failed(self, message: Outbound, error: errors.DeliveryFailed) -> None:
        state = "uncertain" if isinstance(error, errors.DeliveryUncertain) else "failed"
        self._log.write(
            "delivery",
            f"{message.kind} not delivered: {state}",
            level="error",
            outbound_id=message.id,
            code=error.code,
            cause=str(error),
        )
        await self._mark(message, state, detail=error.code)

    async def _mark(
        self, message: Outbound, state: str, *, message_id: str | None = None, detail: str | None = None
    ) -> None:
        try:
            await self._journal.mark(message.id, state, message_id=message_id, detail=detail)
        except errors.StorageError as error:
            self._log.write("error", "the outbox cannot be written", level="error", cause=str(error))

    async def _remember(self, to: Address, words: str, sent: list[Sent]) -> None:
        line = ArchiveLine(
            ts=int(self._clock.now() * 1000),
            channel=to.channel,
            chat_id=to.chat_id,
            chat_key=to.chat_key,
            user_id=BOT_USER,
            message_id=sent[0].message_id,
            role="assistant",
            text=words,
            meta={"requestId": to.request_id, "messageIds": [part.message_id for part in sent]},
        )
        try:
            await self._archive.append(line)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be written", level="error", cause=str(error))


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Await work that must not be cut in the middle: cancelled, it gets its grace before the caller goes."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # told and recorded already
        task.cancel()
        raise


async def _nothing() -> None:
    """The outbox has this row already."""


class ChatReply:
    """`contracts.Reply` to one chat. `footnote` goes below the first message: what could not be looked at.
    `delivered` is awaited after each message that people see.
    """

    def __init__(
        self, delivery: Delivery, to: Address, footnote: str, delivered: Callable[[], Awaitable[None]]
    ) -> None:
        self._delivery = delivery
        self._to = to
        self._footnote = footnote
        self._delivered = delivered

    async def send(self, words: str, *, after: Awaitable[object] | None = None) -> list[Sent]:
        if self._footnote:
            words = f"{words}\n\n{self._footnote}"
        sent = await self._delivery.send(self._to, words, after=after)
        self._footnote = ""
        await self._delivered()
        return sent
