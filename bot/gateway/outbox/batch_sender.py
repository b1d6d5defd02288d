"""Sends the rows of a batch in order: each once, repeated with a note where nobody can tell, put off or given up where it cannot go.
What people saw of them goes to the archive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.archive import GatewayArchive as Archive
from bot.contracts.environment import Alert, Clock, Log, storage_errors_logged
from bot.contracts.outbound import Address, OutboxRow, Sent
from bot.core.rate_limit import MAX_WAIT, UNSAID
from bot.gateway.outbox.channel_sender import ChannelSender
from bot.gateway.outbox.rows import Batch, derived_id, repeated, with_buttons
from bot.system import JumpSafeClock
from bot.words import say, sentence, speaking

MAX_ATTEMPTS = 6
GRACE_SECONDS = 3.0
"""The time for a send that has begun to end when the process stops: else its outcome would be unknown."""
SLOWEST_RETRY = 15.0
"""Seconds between two tries of what surely was not sent."""
FIRST_AGAIN = 2.0
SLOWEST_AGAIN = 600.0
AGAIN_SHARE = 3
"""Seconds until a repeat of unknown outcome is sent again: from the first up to the slowest, in between the third part of
its age, so that what failed for three minutes is tried within one once it can succeed.
"""
PATIENCE = 24 * 3600.0
"""Seconds after which a message that still waits for its platform is given up."""
FILE_PATIENCE = 40.0
"""Seconds after which a file that still waits for its platform is given up."""
LONG = "the platform asks to wait for long"
BEHIND = "an earlier answer still waits for its platform"


BOT_USER = "bot"


class ReplyArchiver:
    """Puts replies that were sent into the archive. Notices never go there: the model must not come to see them."""

    def __init__(self, archive: Archive, clock: Clock, log: Log) -> None:
        self._archive = archive
        self._clock = clock
        self._log = log

    async def put(self, to: Address, rows: Sequence[OutboxRow], *, again: bool) -> None:
        """Write one line for the sent parts of one message. `again`: the archive may have some of them, which are left out."""
        replies = [row for row in rows if row.kind == "reply"]
        if replies and again:
            replies = await self._missing(to, replies)
        if not replies:
            return
        line = ArchiveLine(
            ts=int(self._clock.now() * 1000),
            channel=to.channel,
            chat_id=to.chat_id,
            chat_key=to.chat_key,
            user_id=BOT_USER,
            message_id=replies[0].message_id,
            role="assistant",
            text="\n".join(row.archived for row in replies),
            meta={
                "requestId": to.request_id,
                "messageIds": [row.message_id for row in replies],
                "outboxIds": [row.id for row in replies],
            },
        )
        with storage_errors_logged(self._log, "the archive cannot be written"):
            await self._archive.append(line)

    async def _missing(self, to: Address, replies: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Those that are not in the archive; none where it cannot be read."""

        def other(line: ArchiveLine) -> bool:
            return line.request_id != to.request_id

        query = HistoryQuery(limit=200, role="assistant", skip=other, everything=True)
        try:
            page = await self._archive.search(to.chat_key, query)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be read", level="error", cause=str(error))
            return []
        known = {one for line in page.lines for one in (line.meta or {}).get("outboxIds", ())}
        # A repeat is the same part as its original.
        return [row for row in replies if not known & {row.id, row.repeat_of}]


class _PutOff(errors.DeliveryDeferred):
    """The first row of a batch has to wait."""


class BatchSender:
    """Takes batches to their ends, or puts them off. What people saw of them goes to the archive."""

    def __init__(
        self,
        sender: ChannelSender,
        *,
        archiver: ReplyArchiver,
        alerts: asyncio.Queue[Alert],
        clock: Clock,
        log: Log,
    ) -> None:
        self._sender = sender
        self._archiver = archiver
        self._alerts = alerts
        self._clock = clock
        self._steady = JumpSafeClock(clock)
        self._log = log
        self._closed = False

    def close(self) -> None:
        """A send that does not end in time goes on behind its batch no more."""
        self._closed = True

    async def deliver(self, batch: Batch) -> None:
        """Send what is left of a batch, up to its end or until it is put off."""
        try:
            while batch.rows:
                try:
                    await self._send_head(batch)
                except errors.DeliveryFailed as error:
                    if batch.head.file is None or not (
                        type(error) in {errors.DeliveryFailed, errors.FileRefused}
                        or self._too_long(batch, error)
                    ):
                        raise
                    await self._tell_of_file(batch, error)
        except _PutOff as error:
            await self._put_off(batch, error)
            return
        except errors.DeliveryFailed as error:
            await self._give_up(batch, error)
        else:
            await self._archive(batch)
            batch.end(errors.FilesMissing(names=batch.missing) if batch.missing else None)

    def _too_long(self, batch: Batch, error: errors.DeliveryFailed) -> bool:
        """True of a file that its platform, which is there, has not taken in a while: nothing waits behind it any longer."""
        waits = isinstance(
            error, errors.DeliveryDeferred | errors.DeliveryThrottled | errors.DeliveryUncertain
        )
        return waits and self._age(batch.head) > FILE_PATIENCE and self._sender.connected(batch.to)

    async def _tell_of_file(self, batch: Batch, error: errors.DeliveryFailed) -> None:
        """A platform does not take a file: a sentence comes in its place, with the passage that it stands for below it. After a crash
        in between they are the same rows.
        """
        lost = batch.rows.popleft()
        assert lost.file is not None  # noqa: S101 - its caller has looked
        forbidden = isinstance(error, errors.FileRefused) and error.forbidden
        with speaking(lost.language):
            key = "forbidden" if forbidden else "unsure" if lost.state == "sending" else "refused"
            words = say(f"delivery.file_{key}", name=lost.file.name)
        if lost.text:
            parts = self._sender.split(batch.to, f"{words}\n\n{lost.text}")
        else:
            batch.missing.append(lost.file.name)
            parts = [words]
        told = [
            replace(
                self._sender.rows.new(batch.to, part, lost.kind),
                id=derived_id(lost.id, "file refused", number),
                not_before=None if lost.not_before is None else self._clock.now(),
                step_id=lost.step_id,
                language=lost.language,
            )
            for number, part in enumerate(parts)
        ]
        there = {row.id for row in batch.rows}
        batch.rows.extendleft(reversed([row for row in told if row.id not in there]))
        self._log.write(
            "delivery",
            "a file cannot be sent; its chat is told",
            level="error",
            outbound_id=lost.id,
            code=errors.FileRefused.code,
            cause=str(error),
        )
        await self._sender.rows.supersede(lost.fail(errors.FileRefused.code), told)

    async def _send_head(self, batch: Batch) -> None:
        """Take the first row to its end, or put its repeats in its place."""
        to, attempts, place = batch.to, batch.head.attempts, batch.head.replaces
        # `doubt`: it may be in the chat. `ask`: the platform has to say whether it is; a change can be made again unasked.
        ask = doubt = batch.head.state == "sending"
        tries, waited = 0, 0.0
        while tries < MAX_ATTEMPTS and waited <= MAX_WAIT:
            tries += 1
            try:
                if ask and place is None:
                    if await self._found(batch):
                        return
                    doubt = False
                ask = False
                await self._attempt(batch, place, doubt=doubt)
            except errors.EditRefused as error:
                self._log.write("delivery", "a preview cannot be changed", level="warn", cause=str(error))
                place, ask = None, doubt
            except errors.DeliveryThrottled as error:
                waited += await self._held_up(to, error, asked=ask)
            except errors.DeliveryUncertain as error:
                if not ask:
                    self._lost(batch, error)
                elif await self._repeated(batch, attempts):
                    return
                ask, doubt = not ask, True
            else:
                return
        raise self._later(batch, doubt=doubt)

    async def _held_up(self, to: Address, error: errors.DeliveryThrottled, *, asked: bool) -> float:
        """The platform asks to wait; returns the seconds. The next send waits for its slot, a question here."""
        wait = self._sender.limits.freeze(to, error)
        self._log.write(
            "delivery",
            "the platform asks to wait",
            level="warn",
            state="throttled",
            retry_after=error.retry_after,
        )
        if asked and wait <= MAX_WAIT:
            await self._clock.sleep(wait)
        return wait

    async def _attempt(self, batch: Batch, place: str | None, *, doubt: bool) -> None:
        """Send the first row once, when it may be sent."""
        self._sender.closed_chats.check(batch.to)
        if batch.written is None and self._sender.limits.spare(batch.to, reserve=0):
            batch.update(batch.head.begin())  # nothing to wait for: its row is new and being sent at once
            await self._sender.rows.write(batch)
        else:
            written = self._sender.rows.write(batch)
            if wait := await self._sender.limits.slot(batch.to):
                raise errors.DeliveryThrottled("the platform still wants to be left alone", retry_after=wait)
            batch.update(batch.head.begin())
            await asyncio.gather(written, self._sender.rows.update(batch.head))
        await self._to_its_end(batch, self._sent(batch, place, doubt=doubt))

    async def _sent(self, batch: Batch, place: str | None, *, doubt: bool) -> None:
        words = [row for row in batch.rows if row.file is None]
        ends = batch.head.kind == "reply" and words == [batch.head]
        try:
            sent = await self._sender.send(batch.head, batch.to, place, ends=ends)
        except errors.DeliveryUncertain:
            raise
        except errors.DeliveryFailed:
            if not doubt:
                batch.update(batch.head.refuse())
            raise
        await self._arrived(batch, sent)

    async def _to_its_end(self, batch: Batch, work: Coroutine[None, None, None]) -> None:
        """Await work that must not be cut in the middle: cancelled, it gets its grace before the caller goes. What takes longer goes
        on behind it, unless the process ends.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=GRACE_SECONDS)
            if not (task.done() or self._closed):
                batch.begun = task
            else:
                if task.done() and not task.cancelled():
                    task.exception()  # told and recorded already
                task.cancel()
            raise

    async def _found(self, batch: Batch) -> bool:
        """True where a row whose send has an unknown outcome is in the chat. Raises as `ChannelSender.find`."""
        found = await self._sender.find(batch.head, batch.to)
        if found is None:
            return False
        await self._to_its_end(batch, self._arrived(batch, found))
        return True

    async def _arrived(self, batch: Batch, sent: Sent) -> None:
        row = batch.head.arrive(sent.message_id)
        batch.sent.append(row)
        batch.rows.popleft()
        if batch.late or batch.recovered:
            # Before its row says so: else a crash in between would leave the archive without it.
            await self._archive(batch)
        await self._sender.rows.update(row)
        self._log.write(
            "delivery",
            f"{row.kind} delivered",
            message_id=sent.message_id,
            outbound_id=row.id,
            state=row.state,
            length=len(row.text) if row.file is None else row.file.size,
        )

    async def _archive(self, batch: Batch) -> None:
        """Archive what people saw of a batch since the last time."""
        rows = batch.sent[batch.archived :]
        batch.archived = len(batch.sent)
        await self._archiver.put(batch.to, rows, again=batch.late or batch.recovered)

    def _lost(self, batch: Batch, error: errors.DeliveryUncertain) -> None:
        batch.update(batch.head.lose_answer())
        self._log.write(
            "delivery",
            "a send has an unknown outcome",
            level="warn",
            outbound_id=batch.head.id,
            state="uncertain",
            attempts=batch.head.attempts,
            cause=str(error),
        )

    async def _repeated(self, batch: Batch, attempts: int) -> bool:
        """Nobody can tell what became of the first row: put its repeats in its place. False where it is a repeat itself and
        may be sent again: not at once where its answer was lost since it had so many `attempts`.
        """
        lost = batch.head
        if lost.repeat_of is None:
            await self._repeat(batch)
            return True
        if lost.attempts > attempts:
            first = FIRST_AGAIN * 2.0 ** (lost.attempts - attempts - 1)
            wait = min(max(first, self._age(lost) / AGAIN_SHARE), SLOWEST_AGAIN)
            if batch.must_arrive:
                raise _PutOff("a repeat has an unknown outcome", wait=wait)
            await self._clock.sleep(wait)
        return False

    async def _repeat(self, batch: Batch) -> None:
        """Send the same words once more, which say so: so they are neither lost nor doubled in silence."""
        lost = batch.rows.popleft()
        before = repeated(lost)
        # A message is cut in its second half: behind the sentence each part fits.
        whole = before + lost.text
        parts = [whole] if lost.file is not None else self._sender.split(batch.to, whole)
        closes_as = lost.closes_as if len(parts) == 1 else None
        repeats = [
            replace(
                self._sender.rows.new(batch.to, part.removeprefix(before), lost.kind),
                repeat_of=lost.id,
                # Where its turn may be over, nobody looks for what was not put off.
                not_before=None if lost.not_before is None else self._clock.now(),
                step_id=lost.step_id,
                buttons=below,
                part_of=lost.part_of,
                closes_as=closes_as or (lost.closes_as and part.removeprefix(before)),
                language=lost.language,
                file=lost.file,
                zone=lost.zone,
                own_zone=lost.own_zone,
            )
            for part, below in with_buttons(parts, lost.buttons)
        ]
        batch.rows.extendleft(reversed(repeats))
        await self._sender.rows.supersede(lost.lose("uncertain"), repeats)

    def _later(self, batch: Batch, *, doubt: bool) -> errors.DeliveryFailed:
        """The error of a row that the platform does not let out now. The older it is, the rarer it is tried."""
        frozen = self._sender.limits.frozen(batch.to)
        if batch.must_arrive:
            wait = max(frozen, min(self._age(batch.head) / 4, SLOWEST_RETRY), UNSAID)
            return _PutOff(LONG, wait=wait)
        if doubt:
            return errors.DeliveryUncertain("the platform cannot be asked what became of it")
        return errors.DeliveryThrottled(LONG, retry_after=frozen)

    def _age(self, row: OutboxRow) -> float:
        return abs(self._steady.now() - row.created_at)

    async def _put_off(self, batch: Batch, error: _PutOff) -> None:
        """Let the rows that are left go out by themselves, in order, and those behind them in their line too."""
        until = self._clock.now() + error.wait
        self._sender.limits.hold(batch.to, error.wait)
        behind = [one for one in batch.line.batches if one is not batch and not one.late]
        for one in (batch, *behind):
            one.put_off(until)
        await self.defer([batch], str(error), error.wait)
        await self.defer(behind, BEHIND, error.wait)

    async def defer(self, batches: Sequence[Batch], why: str, wait: float) -> None:
        """Batches that were put off are on file as such; their senders hear of it."""
        for batch in batches:
            await self._sender.rows.save(batch)
            await self._archive(batch)
            self._log.write(
                "delivery",
                "an answer waits for its platform",
                level="warn",
                request_id=batch.to.request_id,
                chat_key=batch.to.chat_key,
                outbound_ids=[row.id for row in batch.rows],
                state="deferred",
                wait=round(wait, 3),
            )
            batch.end(errors.DeliveryDeferred(why, wait=wait))

    async def give_up_old(self, batch: Batch) -> None:
        """Nothing waits for its platform for longer than a day."""
        now = self._steady.now()
        old = [row for row in batch.rows if now - row.created_at > PATIENCE]
        batch.rows = deque(row for row in batch.rows if row not in old)
        for row in old:
            lost = errors.DeliveryUncertain if row.state == "sending" else errors.DeliveryExpired
            await self._end(row, lost("the platform did not take it for a day"))

    async def _give_up(self, batch: Batch, error: errors.DeliveryFailed) -> None:
        """Nothing more of a batch is sent: each row that is left says why."""
        known = self._sender.closed_chats.closed(batch.to)
        if isinstance(error, errors.TargetGone) and not known:
            await self._sender.closed_chats.close(batch.to, str(error))
        await self._sender.rows.write(batch)
        left, rest = list(batch.rows), error
        batch.rows.clear()
        if isinstance(error, errors.DeliveryUncertain):
            await self._end(left.pop(0), error)
            rest = errors.DeliveryFailed("what came before it may not have arrived")
        await asyncio.gather(*(self._end(row, rest, known=known) for row in left))
        await self._archive(batch)
        if batch.sent and not isinstance(error, errors.DeliveryUncertain):
            begun = {row.original for row in batch.sent}
            partial = errors.DeliveryPartial(str(error), sent=len(begun), parts=batch.parts)
            partial.__cause__ = error
            batch.end(partial)
        else:
            batch.end(error)

    async def _end(self, row: OutboxRow, error: errors.DeliveryFailed, *, known: bool = False) -> None:
        """Record, and tell operators, that a row will not be sent any more; its chat hears it with the next message where the
        turn that would have told it may be over, or cannot. Neither is told of what was for a chat that is `known` to be gone.
        """
        lost = row.kind == "reply" and not known
        untold = lost if isinstance(error, errors.TargetGone) else row.not_before is not None
        if isinstance(error, errors.DeliveryUncertain):
            row = row.lose(error.code, untold=untold)
        else:
            row = row.fail(error.code, untold=untold)
        self._log.write(
            "delivery",
            f"{row.kind} not delivered: {row.state}",
            level="error",
            chat_key=row.chat_key,
            request_id=row.request_id,
            outbound_id=row.id,
            state=row.state,
            code=error.code,
            cause=str(error),
        )
        await self._sender.rows.update(row)
        if untold:
            self._sender.rows.untold(row)
        if lost:
            channel = row.chat_key.channel
            self._alerts.put_nowait(
                Alert(
                    f"deliveries of {channel}",
                    sentence("operators.delivery", channel=channel, cause=error, request=row.request_id),
                )
            )
