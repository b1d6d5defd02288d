"""Answers whose delivery was cut off or put off: brought to their end, and archived once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.archive import Archive, ArchiveLine, HistoryQuery
from bot.contracts.environment import Clock, Log
from bot.contracts.journal import DeliveryRecord, Outbox
from bot.contracts.outbound import Outbound, Sent
from bot.gateway.address import Address
from bot.gateway.arrears import Arrears
from bot.gateway.items import Item, original
from bot.gateway.live.answer_preview import places
from bot.gateway.outbox import REPEATED, Courier
from bot.gateway.waiting import Waiting
from bot.gateway.waiting import left as seconds_left
from bot.system import JumpSafeClock

BOT_USER = "bot"
PATIENCE = 24 * 3600.0
"""Seconds after which a reply that still waits for its platform is given up."""
AGAIN_SECONDS = 5.0
TRIES = 12
"""How often an outbox that cannot be read is read for an answer that was cut off, and the pauses between."""
Part = tuple[Outbound, Sent]
Kind = Literal["reply", "notice"]


class Expired(errors.DeliveryFailed):
    """A reply that waited for its platform for too long."""

    code = "expired"


class Shelf:
    """What people saw of the bot, put into the archive."""

    def __init__(self, archive: Archive, clock: Clock, log: Log) -> None:
        self._archive = archive
        self._clock = clock
        self._log = log

    async def put(self, to: Address, parts: Sequence[Part]) -> None:
        """One line for the parts of one message."""
        line = ArchiveLine(
            ts=int(self._clock.now() * 1000),
            channel=to.channel,
            chat_id=to.chat_id,
            chat_key=to.chat_key,
            user_id=BOT_USER,
            message_id=parts[0][1].message_id,
            role="assistant",
            text="\n".join(message.text.removeprefix(REPEATED) for message, _ in parts),
            meta={
                "requestId": to.request_id,
                "messageIds": [sent.message_id for _, sent in parts],
                "outboxIds": [message.id for message, _ in parts],
            },
        )
        try:
            await self._archive.append(line)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be written", level="error", cause=str(error))

    async def put_once(self, to: Address, parts: Sequence[Part]) -> None:
        """The same, of those parts that are not in the archive yet."""

        def other(line: ArchiveLine) -> bool:
            return (line.meta or {}).get("requestId") != to.request_id

        query = HistoryQuery(limit=200, role="assistant", skip=other, everything=True)
        try:
            page = await self._archive.search(to.chat_key, query)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be read", level="error", cause=str(error))
            return
        known = {one for line in page.lines for one in (line.meta or {}).get("outboxIds", ())}
        # A repeat is the same part as its original.
        if new := [part for part in parts if not known & {part[0].id, part[0].repeat_of}]:
            await self.put(to, new)


class Completion:
    """Goes on where the outbox says that the delivery of an answer ended."""

    def __init__(
        self,
        courier: Courier,
        waiting: Waiting,
        shelf: Shelf,
        *,
        journal: Outbox,
        arrears: Arrears,
        clock: Clock,
        log: Log,
    ) -> None:
        self._courier = courier
        self._waiting = waiting
        self._shelf = shelf
        self._journal = journal
        self._arrears = arrears
        self._clock = clock
        self._steady = JumpSafeClock(clock)
        self._log = log

    async def resume(self, to: Address) -> tuple[PriorReply, ...]:
        """After a crash: bring what an answer had begun to deliver to its end; what became of each of its messages.

        Parts that were not sent are, a send without a known outcome is resolved, and what was delivered is
        archived where the crash came before that. Notices are left alone.
        """
        every = await self._journal.deliveries(to.request_id)
        rows = _in_order(every)
        if shown := [
            (_message(to, row), Sent(row.message_id))
            for row in rows
            if row.state == "sent" and row.message_id
        ]:
            await self._shelf.put_once(to, shown)
        left = await self._left(to, rows)
        if not left:
            return _begun(rows)
        if wait := self._wait(to, left):
            await self._courier.put_off(to, self._items(to, left, every), wait)
        else:
            await self._deliver(to, left, every)
        return _begun(_in_order(await self._journal.deliveries(to.request_id)))

    async def told(self, to: Address) -> bool:
        """After a crash: bring the notice that a message had begun to get to its end; True where its person has it, or
        will have it once the platform allows that. Raises `errors.StorageError`.
        """
        left = await self._left(to, _in_order(await self._journal.deliveries(to.request_id), "notice"))
        if left and (wait := self._wait(to, left)):
            await self._courier.put_off(to, self._items(to, left), wait)
        else:
            await self._deliver(to, left)
        rows = _in_order(await self._journal.deliveries(to.request_id), "notice")
        return any(row.state == "sent" or _waits(row) for row in rows)

    async def cut_off(self, to: Address, items: Sequence[Item]) -> None:
        """What was said goes out by itself where its turn was stopped while it waited for its platform."""
        owed = {item.message.id: item.message for item in items if item.owed}
        if not owed:
            return
        # What was cancelled may have been about to write them; those that are there stay as they are.
        await self._arrears.intend(list(owed.values()))
        for _ in range(TRIES):
            try:
                found = await self._journal.deliveries(to.request_id)
                break
            except errors.StorageError as error:
                # Nobody else would ever look for it: its turn is over.
                self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
                await self._clock.sleep(AGAIN_SECONDS)
        else:
            return
        rows = [
            row
            for row in _in_order(found, "notice" if items[0].message.kind == "notice" else "reply")
            if original(row) in owed
        ]
        left = self._items(to, await self._left(to, rows), found)
        # What the disk has refused is on file before anybody looks for it.
        there = {row.id for row in found}
        left += [item for item in items if item.owed and item.message.id not in there]
        if left:
            left = [replace(item, lost=self._courier.unsure(item.message)) for item in left]
            await self._courier.put_off(to, left, 0.0)

    async def go_on(self, to: Address) -> None:
        """Deliver what was put off of what one message is owed. Raises `errors.StorageError` where the outbox cannot be read."""
        every = await self._journal.deliveries(to.request_id)
        rows = _put_off(every)
        now = self._steady.now()
        late = [row for row in rows if now - row.created_at > PATIENCE]
        for row in late:
            lost = errors.DeliveryUncertain if row.state == "sending" else Expired
            error = lost("the platform did not take it for a day")
            await self._courier.end(_message(to, row), error, untold=True)
        left = await self._left(to, [row for row in rows if row not in late])
        await self._deliver(to, left, every)

    def _wait(self, to: Address, left: Sequence[DeliveryRecord]) -> float:
        """Seconds that an answer has to wait for its platform, or for an earlier answer in the same chat."""
        now = self._clock.now()
        wait = max((seconds_left(row, now) for row in left), default=0.0)
        earlier = any(one != to.request_id for one in self._waiting.chats.get(to.chat_key, ()))
        return max(wait, self._courier.frozen(to), 0.001) if earlier else wait

    async def _left(self, to: Address, rows: Sequence[DeliveryRecord]) -> list[DeliveryRecord]:
        """The rows that are not at their end."""
        repeated = {row.repeat_of for row in rows}
        left = []
        for row in rows:
            if row.state == "sending" and row.id in repeated:
                # The process ended between the repeat's first write and this one.
                await self._courier.mark(_message(to, row), "uncertain")
            elif row.state in {"intent", "sending"}:
                left.append(row)
        return left

    async def _deliver(
        self, to: Address, rows: Iterable[DeliveryRecord], every: Sequence[DeliveryRecord] = ()
    ) -> None:
        """What becomes of it is in the outbox, and the reason of what has not reached the chat in the log."""

        async def arrived(message: Outbound, sent: Sent) -> None:
            # Before its row says so: else a crash in between would leave the archive without it.
            if message.kind == "reply":
                await self._shelf.put_once(to, [(message, sent)])

        try:
            await self._courier.deliver(to, self._items(to, rows, every), arrived)
        except errors.DeliveryFailed as error:
            self._log.write("delivery", "an answer could not be completed", level="warn", cause=str(error))

    def _items(
        self, to: Address, rows: Iterable[DeliveryRecord], every: Sequence[DeliveryRecord] = ()
    ) -> list[Item]:
        """As what they go out; `every` row of their answer says in which places."""
        now, taken = self._steady.now(), places(every)
        return [
            Item(
                _message(to, row),
                owed=True,
                lost=row.state == "sending",
                age=abs(now - row.created_at),
                place=taken.get(row.id),
                put_off=_waits(row),
                attempts=row.attempts,
            )
            for row in rows
        ]


def _message(to: Address, row: DeliveryRecord) -> Outbound:
    kind: Kind = "notice" if row.kind == "notice" else "reply"
    return Outbound(row.id, row.request_id, row.chat_key, to.target, row.text, kind, repeat_of=row.repeat_of)


def _put_off(rows: Sequence[DeliveryRecord]) -> list[DeliveryRecord]:
    return [row for row in (*_in_order(rows), *_in_order(rows, "notice")) if _waits(row)]


def _waits(row: DeliveryRecord) -> bool:
    """Whether a row was put off."""
    return row.state in {"intent", "sending"} and row.not_before is not None


def _begun(rows: Iterable[DeliveryRecord]) -> tuple[PriorReply, ...]:
    """What became of each message of an answer, together with its repeats."""
    messages: dict[str, list[DeliveryRecord]] = {}
    for row in rows:
        messages.setdefault(original(row), []).append(row)
    return tuple(
        PriorReply(
            name,
            tuple(row.message_id or row.id for row in same if row.message_id or _waits(row)),
            all(row.state == "failed" for row in same),
        )
        for name, same in messages.items()
    )


def _in_order(rows: Iterable[DeliveryRecord], kind: Kind = "reply") -> list[DeliveryRecord]:
    """Messages of one kind as people should see them: a repeat stands where its original would."""
    found = [row for row in rows if row.kind == kind]
    places: dict[str, int] = {}
    for row in found:
        places.setdefault(original(row), len(places))
    return sorted(found, key=lambda row: places[original(row)])
