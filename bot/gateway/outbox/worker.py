"""The outbox: what is put into it goes out, in life and after a restart. A chat's replies go one after the other."""

from __future__ import annotations

import asyncio
import functools
from asyncio import Future
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import replace

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.approvals import QuestionButtons
from bot.contracts.archive import Archive
from bot.contracts.channel import Channel
from bot.contracts.environment import Alert, Clock, Ids, Log
from bot.contracts.identity import ChatKey
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboundKind, OutboxRow, Sent
from bot.core.leadership import Leadership
from bot.core.rate_limit import RateLimiter
from bot.gateway.outbox import batch_sender
from bot.gateway.outbox.batch_sender import BEHIND, LONG, BatchSender, ReplyArchiver
from bot.gateway.outbox.channel_sender import ChannelSender, ClosedChats
from bot.gateway.outbox.files import KeptFile, OutgoingFiles
from bot.gateway.outbox.live_message import LiveMessage
from bot.gateway.outbox.rows import (
    Batch,
    Line,
    OutboxRows,
    WriteRows,
    address_of,
    derived_id,
    in_order,
    joined,
    prior_replies,
    seconds_left,
    stopped,
    with_buttons,
    without,
)
from bot.telemetry.context import turn_scope

RETRY_SECONDS = 5.0
"""Until a channel that is not connected, or a disk that refused, is looked at again."""


class OutboxWorker:
    """One task a chat with replies sends them in order; a notice has a task of its own. What the platform lets out only
    later stays in its line, for a day at most, and `adopt` puts what an earlier process left into the same lines.

    Nothing else has a way to a channel's `send`, `edit`, `find` and `draft`: what is shown live goes past the lines, at once or not
    at all, and so do changes of messages that were sent.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        journal: Journal,
        archive: Archive,
        files: OutgoingFiles,
        limits: RateLimiter,
        alerts: asyncio.Queue[Alert],
        leadership: Leadership,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self.rows = OutboxRows(journal, files, clock=clock, ids=ids)
        self.limits = limits
        self.closed_chats = ClosedChats(journal, log)
        self._sender = ChannelSender(
            channels,
            journal=journal,
            rows=self.rows,
            files=files,
            limits=limits,
            closed_chats=self.closed_chats,
            leadership=leadership,
            clock=clock,
            log=log,
        )
        self._archiver = ReplyArchiver(archive, clock, log)
        self._batch_sender = BatchSender(
            self._sender, archiver=self._archiver, alerts=alerts, clock=clock, log=log
        )
        self._journal = journal
        self._clock = clock
        self._log = log
        self._lines: dict[ChatKey, Line] = {}
        self._batches: set[Batch] = set()
        self._started = asyncio.Event()
        self._closed = False
        self._starting: asyncio.Task[None] | None = None
        self._saving: set[asyncio.Task[None]] = set()
        self._loaded = False
        self._loading = asyncio.Lock()

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Send what waits, from now on."""
        self._started.set()
        self._starting = asyncio.create_task(self._loads())

    async def close(self) -> None:
        """Begin nothing more of what nobody waits for; it is in the journal."""
        self._closed = True
        self._batch_sender.close()
        late = [batch.line.worker for batch in self._batches if batch.late and batch.first]
        if self._saving:
            await asyncio.wait(self._saving, timeout=batch_sender.GRACE_SECONDS)
        tasks = [task for task in (self._starting, *late, *self._saving) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def load(self) -> bool:
        """Take up what an earlier process left: chats that are gone, what chats have still to hear, what waits. Once, before
        anything goes out; False where that cannot be read.
        """
        if self._loaded:
            return True
        async with self._loading:
            try:
                if not self._loaded:
                    await self.closed_chats.load()
                    await self.rows.load()
                    await self._load()
            except errors.StorageError as error:
                self._log.write("error", "the outbox cannot be read", level="error", cause=str(error))
                return False
            self._loaded = True
        return True

    async def _load(self) -> None:
        places: dict[tuple[str, ChatKey], list[OutboxRow]] = {}
        for row in await self._journal.undelivered():
            if row.deferred:
                places.setdefault((row.request_id, row.chat_key), []).append(row)
            else:
                await self._close(row)
        for (request_id, _), rows in places.items():
            record = await self._journal.inbound(request_id)
            if record is None:
                for row in rows:
                    await self._close(row)
            elif self._sender.serves(rows[0].chat_key.channel):
                to, ordered = (
                    address_of(rows[0], record.inbound),
                    [*in_order(rows), *in_order(rows, "notice")],
                )
                self.limits.hold(to, max(seconds_left(row, self._clock.now()) for row in rows))
                self.adopt(to, await self._left(ordered), late=True)

    async def _close(self, row: OutboxRow) -> None:
        """End a row that nobody will send: its turn was stopped, or failed, while it was being delivered."""
        if row.kind in {"preview", "progress"} and row.message_id is not None:
            # Nobody has said that it is no whole answer; what it shows says so by itself.
            await self._journal.update_outbox(row.arrive(row.message_id))
            return
        ended = stopped(row)
        self._log.write(
            "delivery",
            f"a {row.kind} of a turn that has ended was not delivered: {ended.state}",
            level="error" if row.kind == "reply" else "warn",
            chat_key=row.chat_key,
            request_id=row.request_id,
            outbound_id=row.id,
            state=ended.state,
        )
        await self._journal.update_outbox(ended)
        await self.rows.release(ended)

    async def _loads(self) -> None:
        """Take up what an earlier process left, as soon as that can be read."""
        while not await self.load():
            await self._clock.sleep(RETRY_SECONDS)

    # ------------------------------------------------------------ what is put in

    @property
    def deferred(self) -> int:
        """The number of messages that go out by themselves, now or later."""
        return sum(batch.late for batch in self._batches)

    def waits(self, chat_key: ChatKey) -> bool:
        """True where an earlier message still waits in a chat: what comes now goes behind it."""
        line = self._lines.get(chat_key)
        return line is not None and bool(line.batches) and line.batches[0].late

    def submit(
        self,
        to: Address,
        parts: Sequence[str],
        *,
        kind: OutboundKind = "reply",
        must_arrive: bool = False,
        replaces: Sequence[str] = (),
        repeat_of: str | None = None,
        step_id: str | None = None,
        buttons: QuestionButtons | None = None,
        while_open: Collection[str] = (),
        files: Sequence[KeptFile] = (),
    ) -> Batch:
        """Put one message into the outbox, in parts that each fit, with the files below them that the store has (`OutgoingFiles.keep`).
        `replaces` are the message ids of the previews in whose places the first of them come. `buttons` stand below the last part.
        """
        rows = [
            replace(
                self.rows.new(to, part, kind),
                repeat_of=repeat_of,
                step_id=step_id,
                buttons=below,
                closes_as=None if buttons is None else without(part, while_open),
            )
            for part, below in with_buttons(parts, buttons)
        ]
        rows += [replace(self.rows.of_file(to, kept, kind), step_id=step_id) for kept in files]
        rows[: len(replaces)] = [
            replace(row, replaces=place) for row, place in zip(rows, replaces, strict=False)
        ]
        batch = Batch(to, deque(joined(rows)), len(rows), must_arrive or kind == "reply")
        self._put(batch)
        return batch

    def conclude(
        self, to: Address, parts: Sequence[str], write: WriteRows, buttons: QuestionButtons | None = None
    ) -> Batch:
        """Put the last words about an inbound into the outbox, as a notice that nothing but the outbox looks after: `write`
        writes its rows together with the end of that. `buttons` stand below the last part.
        """
        rows = [self.rows.new(to, part, "notice") for part in parts]
        rows[-1:] = [replace(row, buttons=buttons) for row in rows[-1:]]
        return self._concluded(to, rows, write)

    async def enqueue_once(
        self, to: Address, parts: Sequence[str], what: str, buttons: QuestionButtons | None
    ) -> Batch | None:
        """Put a notice into the outbox that nothing but the outbox looks after, once for each `what` of its request, over
        restarts too; None where it is there and has ended, or is on its way. Raises `errors.StorageError`.
        """
        names = [derived_id(to.request_id, what, number) for number in range(len(parts))]
        found = [row for row in await self._journal.deliveries(to.request_id) if row.original in names]
        if any(row.original in names for batch in self._batches for row in batch.rows):
            return None  # what the disk does not take yet is on its way all the same
        if found:
            return self.adopt(to, await self._left(found), late=True)
        rows = [
            replace(
                self.rows.new(to, part, "notice"),
                id=name,
                buttons=below,
                closes_as=None if buttons is None else part,
            )
            for name, (part, below) in zip(names, with_buttons(parts, buttons), strict=True)
        ]
        return self._concluded(to, rows, self._journal.post.put_outbox)

    def _concluded(self, to: Address, rows: Sequence[OutboxRow], write: WriteRows) -> Batch:
        now = self._clock.now()
        rows = [replace(row, not_before=now) for row in joined(rows)]
        batch = Batch(to, deque(rows), len(rows), must_arrive=True)
        batch.written = asyncio.ensure_future(write(rows))
        self._put(batch)
        return batch

    def adopt(self, to: Address, rows: Sequence[OutboxRow], *, late: bool = False) -> Batch | None:
        """Put rows of an earlier process where new ones go; None where there is nothing that this one does not have."""
        known = {row.id for batch in self._batches for row in batch.rows}
        if not (left := [row for row in rows if row.id not in known]):
            return None
        batch = Batch(to, deque(left), len(left), must_arrive=True, late=late, recovered=True)
        batch.written = asyncio.get_running_loop().create_future()
        batch.written.set_result(None)
        wait = max(seconds_left(row, self._clock.now()) for row in left)
        self._put(batch, 0.0 if late else wait)
        return batch

    def _put(self, batch: Batch, wait: float = 0.0) -> None:
        self._batches.add(batch)
        behind = self.waits(batch.to.chat_key) and (batch.in_order or batch.recovered)
        if not batch.late and (behind or wait):
            wait = max(wait, self.limits.frozen(batch.to))
            self.limits.hold(batch.to, wait)
            batch.put_off(self._clock.now() + wait)
            self._start(self._batch_sender.defer([batch], BEHIND if behind else LONG, wait))
        self._queue(batch)

    def _queue(self, batch: Batch) -> None:
        if batch.in_order:
            batch.line = self._lines.setdefault(batch.to.chat_key, Line(batch.to.chat_key))
        batch.line.batches.append(batch)
        self._begin(batch.line)

    async def outcome(self, batch: Batch) -> list[Sent]:
        """Wait until a batch is in the chat. Raises its `errors.DeliveryFailed`: with `DeliveryDeferred` all that is left goes
        out later, with any other nothing more; `DeliveryUncertain` comes only of what need not arrive.
        """
        await asyncio.shield(batch.outcome)
        return [Sent(row.message_id) for row in batch.sent if row.message_id is not None]

    def on_its_way(self, request_id: str) -> list[Batch]:
        """The batches of a request that are not `gone`."""
        return [batch for batch in self._batches if batch.to.request_id == request_id]

    async def leave(self, batch: Batch) -> None:
        """Nobody waits for a batch any more: what must arrive goes out by itself, anything else is not sent. A send that has begun
        comes to its end.
        """
        if batch.must_arrive and batch.rows and not batch.late:
            batch.put_off(self._clock.now())
            await self.rows.save(batch)
        task = batch.line.worker
        if task is None or not batch.first or (batch.must_arrive and not self._closed):
            return
        task.cancel()
        await asyncio.wait([task])
        if batch.begun is not None:
            self._start(self._see_off(batch, batch.begun))
        elif not batch.must_arrive:
            await self._withdraw(batch)

    async def _see_off(self, batch: Batch, begun: Future[None]) -> None:
        try:
            await asyncio.wait([begun])
        finally:
            begun.cancel()
        begun.exception()  # the row says it
        await self._withdraw(batch)
        self._discard(batch)

    async def _withdraw(self, batch: Batch) -> None:
        await asyncio.gather(*(self.rows.update(stopped(row)) for row in batch.rows))

    def _discard(self, batch: Batch) -> None:
        self._batches.discard(batch)
        batch.gone.set()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        saving = asyncio.create_task(work)
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)

    async def resume(self, to: Address, rows: Sequence[OutboxRow]) -> tuple[PriorReply, ...]:
        """After a crash: bring the answer that `rows` are of to its end, or put it off; what became of each message."""
        replies = in_order(rows)
        seen = [row for row in replies if row.state == "sent" and row.message_id]
        await self._archiver.put(to, seen, again=True)
        if left := await self._left(replies):
            await self._taken_up(to, left)
            rows = await self._journal.deliveries(to.request_id)
        return prior_replies(rows)

    async def _taken_up(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        batch = self.adopt(to, rows)
        if batch is None:
            return
        try:
            await self.outcome(batch)
        except errors.DeliveryFailed as error:
            self._log.write("delivery", "an answer could not be completed", level="warn", cause=str(error))
        except asyncio.CancelledError:
            await self.leave(batch)
            raise

    async def _left(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """The rows that are not at their end."""
        repeated = {row.repeat_of for row in rows}
        for row in rows:
            if row.state == "sending" and row.id in repeated:
                # The process ended between the repeat's first write and this one.
                await self.rows.update(row.lose("uncertain"))
        return [row for row in rows if row.open and not (row.state == "sending" and row.id in repeated)]

    # ------------------------------------------------------------ beside the lines

    def live_message(self, to: Address, kind: OutboundKind, row: OutboxRow | None = None) -> LiveMessage:
        """A message that changes while a turn runs; `row` is that of one which an earlier process has begun."""
        return LiveMessage(to, kind, self._sender, row, clock=self._clock, log=self._log)

    async def draft(self, to: Address, words: str) -> bool:
        """As `ChannelSender.draft`."""
        return await self._sender.draft(to, words)

    async def amend(self, row: OutboxRow) -> None:
        """As `ChannelSender.amend`."""
        await self._sender.amend(row)

    async def look_for(self, row: OutboxRow) -> OutboxRow:
        """As `ChannelSender.look_for`."""
        return await self._sender.look_for(row)

    def spare(self, to: Address, *, reserve: int = 1, edit: bool = False) -> bool:
        """As `ChannelSender.spare`."""
        return self._sender.spare(to, reserve=reserve, edit=edit)

    def split(self, to: Address, text: str) -> list[str]:
        """As `Channel.split`."""
        return self._sender.split(to, text)

    # ------------------------------------------------------------ the work

    def _begin(self, line: Line) -> None:
        if line.worker is None and line.batches and not self._closed_for(line):
            line.worker = asyncio.create_task(self._work(line))
            line.worker.add_done_callback(functools.partial(self._ended, line))

    def _closed_for(self, line: Line) -> bool:
        return self._closed and line.batches[0].late

    async def _work(self, line: Line) -> None:
        while line.batches and not self._closed_for(line):
            batch = line.batches[0]
            with turn_scope(chat_key=batch.to.chat_key, request_id=batch.to.request_id):
                if batch.late:
                    await self._allowed(batch.to)
                    await self._batch_sender.give_up_old(batch)
                await self._batch_sender.deliver(batch)
            if not batch.rows:
                self._discard(line.batches.popleft())
            elif line.chat_key is None:
                line.batches.popleft()  # a notice that has to wait does so among the replies
                self._queue(batch)

    def _ended(self, line: Line, task: asyncio.Task[None]) -> None:
        line.worker = None
        if not line.batches:
            if line.chat_key is not None:
                del self._lines[line.chat_key]
            return
        batch = line.batches[0]
        if task.cancelled():
            if not batch.late and batch.begun is None:
                self._discard(batch)
            return
        if (error := task.exception()) is not None:
            self._log.write(
                "error",
                f"a delivery failed: {type(error).__name__}: {error}",
                level="error",
                chat_key=batch.to.chat_key,
                request_id=batch.to.request_id,
            )
            if batch.late or (batch.rows and batch.head.deferred):
                self.limits.hold(batch.to, RETRY_SECONDS)
                if not batch.late:  # what nothing but the outbox looks after goes on by itself
                    batch.late = True
                    batch.end(errors.DeliveryDeferred("a delivery failed", wait=RETRY_SECONDS))
            else:
                self._discard(line.batches.popleft())
                batch.end(error)
        self._begin(line)

    async def _allowed(self, to: Address) -> None:
        """Wait until what goes out by itself may: the platform lets it, it is there, and the journal can say that it did."""
        await self._started.wait()
        while True:
            wait = self.limits.frozen(to)
            if not wait and not (self._sender.connected(to) and await self._journal.flush()):
                wait = RETRY_SECONDS
            if not wait:
                return
            await self._clock.sleep(wait)
