"""Sends outbox rows: the only caller of a channel's `send`, `edit` and `find`, in life and after a restart."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.approvals import QuestionButtons
from bot.contracts.archive import Archive, ArchiveLine, HistoryQuery
from bot.contracts.channel import Channel, Drafts, Edits
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal, Outbox
from bot.contracts.leadership import Leadership
from bot.contracts.outbound import (
    Address,
    LiveForm,
    Outbound,
    OutboundKind,
    OutboxRow,
    OutgoingFile,
    Sent,
)
from bot.gateway.outbox.files import KeptFile, OutgoingFiles
from bot.gateway.outbox.rate_limit import MAX_WAIT, UNSAID, RateLimiter
from bot.system import JumpSafeClock
from bot.telemetry.context import turn_scope
from bot.words import Sentence, language, own_zone, say, sentence, speaking, zone


def repeated(row: OutboxRow) -> str:
    """The words before those of a row that repeats another one."""
    with speaking(row.language):
        return f"{say('delivery.repeated')}\n\n"


def in_order(rows: Iterable[OutboxRow], kind: str = "reply") -> list[OutboxRow]:
    """Rows of one kind as people should see them: a repeat stands where its original would."""
    found = [row for row in rows if row.kind == kind]
    places: dict[str, int] = {}
    for row in found:
        places.setdefault(row.original, len(places))
    return sorted(found, key=lambda row: places[row.original])


def prior_replies(rows: Sequence[OutboxRow]) -> tuple[PriorReply, ...]:
    """The outcome of each message of an answer, together with its repeats. A file that was refused is not among them: what came in
    its place is.
    """
    messages: dict[str, list[OutboxRow]] = {}
    for row in in_order(rows):
        if row.reason == errors.FileRefused.code:
            continue
        messages.setdefault(row.original, []).append(row)
    return tuple(
        PriorReply(
            name,
            tuple(row.message_id or row.id for row in same if row.message_id or row.deferred),
            all(row.state == "failed" for row in same),
            same[0].step_id,
        )
        for name, same in messages.items()
    )


def seconds_left(row: OutboxRow, now: float) -> float:
    """Seconds until a row is to go out, 0 where it may. A clock that was set back makes them no more than they were when it
    was put off.
    """
    until = row.not_before
    return 0.0 if until is None else max(0.0, min(until - now, until - row.changed_at))


class ClosedChats:
    """The closed ones, in memory as in the journal."""

    def __init__(self, journal: Outbox, log: Log) -> None:
        self._journal = journal
        self._log = log
        self._closed: dict[tuple[str, str], str] = {}

    async def load(self) -> None:
        """Read the closed chats from the journal. Raises `errors.StorageError`."""
        self._closed = {**await self._journal.closed_targets(), **self._closed}

    def check(self, to: Address) -> None:
        """Raises `errors.TargetGone` where this chat is known to be closed."""
        reason = self._closed.get((to.channel, to.chat_id))
        if reason is not None:
            raise errors.TargetGone(f"known to be gone: {reason}")

    def closed(self, to: Address) -> bool:
        return (to.channel, to.chat_id) in self._closed

    async def close(self, to: Address, reason: str) -> None:
        """The platform says that a chat is gone; it counts from this moment on, and after a restart."""
        self._closed[to.channel, to.chat_id] = reason
        self._log.write(
            "delivery",
            "a chat can no longer be written to; nothing is sent there until something comes from it",
            level="warn",
            channel=to.channel,
            chat_id=to.chat_id,
            cause=reason,
        )
        try:
            await self._journal.close_target(to.channel, to.chat_id, reason)
        except errors.StorageError as error:
            self._log.write("error", "a closed chat cannot be recorded", level="error", cause=str(error))

    async def open(self, channel: str, chat_id: str) -> None:
        """Something came from a chat, so it can be written to."""
        if self._closed.pop((channel, chat_id), None) is None:
            return
        self._log.write("delivery", "a chat can be written to again", channel=channel, chat_id=chat_id)
        try:
            await self._journal.open_target(channel, chat_id)
        except errors.StorageError as error:
            self._log.write("error", "a reopened chat cannot be recorded", level="error", cause=str(error))


BOT_USER = "bot"


class ReplyArchiver:
    """Puts replies that were sent into the archive. Notices never go there: the model must not come to see them."""

    def __init__(self, archive: Archive, clock: Clock, log: Log) -> None:
        self._archive = archive
        self._clock = clock
        self._log = log

    async def put(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """One line for the sent parts of one message."""
        replies = [row for row in rows if row.kind == "reply"]
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
        try:
            await self._archive.append(line)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be written", level="error", cause=str(error))

    async def put_once(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """The same, of those rows that are not in the archive yet."""
        if not any(row.kind == "reply" for row in rows):
            return

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
        await self.put(to, [row for row in rows if not known & {row.id, row.repeat_of}])


@dataclass(frozen=True, slots=True)
class Alert:
    """Trouble that operators should hear of. There is one alert an hour of each `subject`."""

    subject: str
    words: Sentence


T = TypeVar("T")
WriteRows = Callable[[Sequence[OutboxRow]], Awaitable[None]]

MAX_ATTEMPTS = 6
SEND_SECONDS = 120.0
"""After this a channel that says nothing counts as one that may have sent."""
FILE_SECONDS = 240.0
"""The same for a file."""
LIVE_SECONDS = 10.0
"""The same for what is only for show: an answer waits no longer for it."""
SETTLE_SECONDS = 2.0
"""A message that a platform does not show may still be on its way there: after this it is asked once more."""
GRACE_SECONDS = 3.0
"""The time for a send that has begun to end when the process stops: else its outcome would be unknown."""
RETRY_SECONDS = 5.0
"""Until a channel that is not connected, or a disk that refused, is looked at again."""
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
AMENDS = 3
LONGEST_AMEND = 60.0
LONG = "the platform asks to wait for long"
BEHIND = "an earlier answer still waits for its platform"


@dataclass(slots=True, eq=False)
class _Line:
    """Batches that go out one after the other, and the task that sends them while there are some. `chat_key` is that of a chat's
    replies, None of a notice alone.
    """

    chat_key: ChatKey | None = None
    batches: deque[Batch] = field(default_factory=deque)
    worker: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """The rows of one text, sent in order."""

    to: Address
    rows: deque[OutboxRow]
    """Those that are left."""
    parts: int
    """How many there were."""
    must_arrive: bool
    """It is put off rather than given up."""
    late: bool = False
    """Nobody waits for it any more: it goes out by itself."""
    recovered: bool = False
    """An earlier process has begun it."""
    sent: list[OutboxRow] = field(default_factory=list)
    archived: int = 0
    """How many of these are in the archive."""
    missing: list[str] = field(default_factory=list)
    """Names of files that its chat cannot have, which it was told."""
    written: Future[None] | None = None
    line: _Line = field(default_factory=_Line)
    outcome: Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """What its sender hears: nothing, or an `errors.DeliveryFailed`."""
    begun: Future[None] | None = None
    """A send that its sender has left."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing of it is on its way any more."""

    @property
    def head(self) -> OutboxRow:
        return self.rows[0]

    def update(self, head: OutboxRow) -> None:
        """The first row is in another state."""
        self.rows[0] = head

    @property
    def first(self) -> bool:
        """True where it is its turn in its line."""
        return bool(self.line.batches) and self.line.batches[0] is self

    @property
    def in_order(self) -> bool:
        """Replies keep their order in a chat, and so does what was put off; a notice goes out at once."""
        return self.late or any(row.kind == "reply" for row in self.rows)

    def put_off(self, until: float) -> None:
        """Let it go out by itself, and not before."""
        self.rows = deque(row.put_off(until) for row in self.rows)
        self.late = True

    def end(self, error: BaseException | None = None) -> None:
        """Tell its sender, once."""
        if self.outcome.done():
            return
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)
            self.outcome.exception()  # there may be nobody to hear it


class _PutOff(errors.DeliveryDeferred):
    """The first row of a batch has to wait."""


class OutboxWorker:
    """One task a chat with replies sends them in order; a notice has a task of its own. What the platform lets out only
    later stays in its line, for a day at most, and `adopt` puts what an earlier process left into the same lines.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        journal: Journal,
        archiver: ReplyArchiver,
        limits: RateLimiter,
        closed_chats: ClosedChats,
        files: OutgoingFiles,
        alerts: asyncio.Queue[Alert],
        leadership: Leadership,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._channels = channels
        self._journal = journal
        self._leadership = leadership
        self._archiver = archiver
        self.limits = limits
        self.closed_chats = closed_chats
        self._files = files
        self._alerts = alerts
        self._clock = clock
        self._steady = JumpSafeClock(clock)
        self._ids = ids
        self._log = log
        self._lines: dict[ChatKey, _Line] = {}
        self._batches: set[Batch] = set()
        self._untold: dict[ChatKey, dict[str, OutboxRow]] = {}
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
        late = [batch.line.worker for batch in self._batches if batch.late and batch.first]
        if self._saving:
            await asyncio.wait(self._saving, timeout=GRACE_SECONDS)
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
                    await self._files.keep_only(await self._journal.with_files())
                    for row in await self._journal.untold():
                        self._untold.setdefault(row.chat_key, {})[row.id] = row
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
            elif rows[0].chat_key.channel in self._channels:
                to, ordered = _place(rows[0], record.inbound), [*in_order(rows), *in_order(rows, "notice")]
                self.limits.hold(to, max(seconds_left(row, self._clock.now()) for row in rows))
                self.adopt(to, await self._left(ordered), late=True)

    async def _close(self, row: OutboxRow) -> None:
        """End a row that nobody will send: its turn was stopped, or failed, while it was being delivered."""
        if row.kind in {"preview", "progress"} and row.message_id is not None:
            # Nobody has said that it is no whole answer; what it shows says so by itself.
            await self._journal.update_outbox(row.arrive(row.message_id))
            return
        ended = _stopped(row)
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
        await self._files.release(ended)

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
        """Put one message into the outbox, in parts that each fit, with the files below them that were put into the store (`keep`).
        `replaces` are the message ids of the previews in whose places the first of them come.
        """
        rows = [
            replace(
                self.row(to, part, kind),
                repeat_of=repeat_of,
                step_id=step_id,
                buttons=buttons,
                closes_as=None if buttons is None else _without(part, while_open),
            )
            for part in parts
        ]
        for kept in files:
            row = replace(self.row(to, kept.markdown, kind), file=kept.stored, step_id=step_id)
            self._files.hold(row, kept.use)
            rows.append(row)
        rows[: len(replaces)] = [
            replace(row, replaces=place) for row, place in zip(rows, replaces, strict=False)
        ]
        batch = Batch(to, deque(_joined(rows)), len(rows), must_arrive or kind == "reply")
        self._put(batch)
        return batch

    @property
    def largest_file(self) -> int:
        """Bytes of a file that may be sent."""
        return self._files.limits.file

    async def keep(self, files: Sequence[OutgoingFile]) -> list[KeptFile]:
        """As `OutgoingFiles.put`, all of them or none: for `submit`, which has to follow."""
        kept: list[KeptFile] = []
        whole = False
        try:
            for file in files:
                stored, use = await self._files.put(file)
                kept.append(KeptFile(stored, use, file.markdown))
            whole = True
        finally:
            if not whole:
                for one in kept:
                    await self._files.drop(one.stored, one.use)
        return kept

    def conclude(
        self, to: Address, parts: Sequence[str], write: WriteRows, buttons: QuestionButtons | None = None
    ) -> Batch:
        """Put the last words about an inbound into the outbox, as a notice that nothing but the outbox looks after: `write`
        writes its rows together with the end of that. `buttons` stand below the last part.
        """
        rows = [self.row(to, part, "notice") for part in parts]
        rows[-1:] = [replace(row, buttons=buttons) for row in rows[-1:]]
        return self._concluded(to, rows, write)

    async def enqueue_once(
        self, to: Address, parts: Sequence[str], what: str, buttons: QuestionButtons | None
    ) -> Batch | None:
        """Put a notice into the outbox that nothing but the outbox looks after, once for each `what` of its request, over
        restarts too; None where it is there and has ended, or is on its way. Raises `errors.StorageError`.
        """
        names = [_derived_id(to.request_id, what, number) for number in range(len(parts))]
        found = [row for row in await self._journal.deliveries(to.request_id) if row.original in names]
        if any(row.original in names for batch in self._batches for row in batch.rows):
            return None  # what the disk does not take yet is on its way all the same
        if found:
            return self.adopt(to, await self._left(found), late=True)
        rows = [
            replace(
                self.row(to, part, "notice"),
                id=name,
                buttons=buttons,
                closes_as=None if buttons is None else part,
            )
            for name, part in zip(names, parts, strict=True)
        ]
        return self._concluded(to, rows, self._journal.post.put_outbox)

    def _concluded(self, to: Address, rows: Sequence[OutboxRow], write: WriteRows) -> Batch:
        now = self._clock.now()
        rows = [replace(row, not_before=now) for row in _joined(rows)]
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

    def row(self, to: Address, text: str, kind: OutboundKind) -> OutboxRow:
        """A new row, not written yet."""
        now = self._clock.now()
        return OutboxRow(
            self._ids.ulid(),
            to.request_id,
            to.chat_key,
            to.target,
            text,
            kind,
            created_at=now,
            language=language(),
            zone=zone(),
            own_zone=own_zone(),
        )

    def _put(self, batch: Batch, wait: float = 0.0) -> None:
        self._batches.add(batch)
        behind = self.waits(batch.to.chat_key) and (batch.in_order or batch.recovered)
        if not batch.late and (behind or wait):
            wait = max(wait, self.limits.frozen(batch.to))
            self.limits.hold(batch.to, wait)
            batch.put_off(self._clock.now() + wait)
            self._beside(self._deferred([batch], BEHIND if behind else LONG, wait))
        self._queue(batch)

    def _queue(self, batch: Batch) -> None:
        if batch.in_order:
            batch.line = self._lines.setdefault(batch.to.chat_key, _Line(batch.to.chat_key))
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
            await self._save(batch)
        task = batch.line.worker
        if task is None or not batch.first or (batch.must_arrive and not self._closed):
            return
        task.cancel()
        await asyncio.wait([task])
        if batch.begun is not None:
            self._beside(self._see_off(batch, batch.begun))
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
        await asyncio.gather(*(self._update(_stopped(row)) for row in batch.rows))

    def _discard(self, batch: Batch) -> None:
        self._batches.discard(batch)
        batch.gone.set()

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        saving = asyncio.create_task(work)
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)

    async def resume(self, to: Address, rows: Sequence[OutboxRow]) -> tuple[PriorReply, ...]:
        """After a crash: bring the answer that `rows` are of to its end, or put it off; what became of each message."""
        replies = in_order(rows)
        await self._archiver.put_once(to, [row for row in replies if row.state == "sent" and row.message_id])
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
                await self._update(row.lose("uncertain"))
        return [row for row in rows if row.open and not (row.state == "sending" and row.id in repeated)]

    # ------------------------------------------------------------ what a chat has still to hear

    def missed(self, chat_key: ChatKey) -> list[OutboxRow]:
        """The rows that will not arrive in a chat, until it is told so."""
        return list(self._untold.get(chat_key, {}).values())

    async def told(self, batch: Batch, rows: Iterable[OutboxRow]) -> None:
        """A batch tells its chat that `rows` will not arrive. It is on file before they count as told."""
        await self._write(batch)
        for row in rows:
            if self._untold.get(row.chat_key, {}).pop(row.id, None) is not None:
                await self._update(row.tell())

    # ------------------------------------------------------------ the work

    def _begin(self, line: _Line) -> None:
        if line.worker is None and line.batches and not self._closed_for(line):
            line.worker = asyncio.create_task(self._work(line))
            line.worker.add_done_callback(functools.partial(self._ended, line))

    def _closed_for(self, line: _Line) -> bool:
        return self._closed and line.batches[0].late

    async def _work(self, line: _Line) -> None:
        while line.batches and not self._closed_for(line):
            batch = line.batches[0]
            with turn_scope(chat_key=batch.to.chat_key, request_id=batch.to.request_id):
                if batch.late:
                    await self._allowed(batch.to)
                    await self._give_up_old(batch)
                await self._deliver(batch)
            if not batch.rows:
                line.batches.popleft()
            elif line.chat_key is None:
                line.batches.popleft()  # a notice that has to wait does so among the replies
                self._queue(batch)

    def _ended(self, line: _Line, task: asyncio.Task[None]) -> None:
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
            if not wait and not (
                self._channels[to.channel].health().connected and await self._journal.flush()
            ):
                wait = RETRY_SECONDS
            if not wait:
                return
            await self._clock.sleep(wait)

    async def _deliver(self, batch: Batch) -> None:
        """Send what is left of a batch, up to its end or until it is put off."""
        try:
            while batch.rows:
                try:
                    await self._send_head(batch)
                except errors.DeliveryFailed as error:
                    if batch.head.file is None or type(error) not in {
                        errors.DeliveryFailed,
                        errors.FileRefused,
                    }:
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
        self._discard(batch)

    async def _tell_of_file(self, batch: Batch, error: errors.DeliveryFailed) -> None:
        """A platform does not take a file: a sentence comes in its place, with the passage that it stands for below it. After a crash
        in between they are the same rows.
        """
        lost = batch.rows.popleft()
        assert lost.file is not None  # noqa: S101 - its caller has looked
        forbidden = isinstance(error, errors.FileRefused) and error.forbidden
        with speaking(lost.language):
            words = say(
                "delivery.file_forbidden" if forbidden else "delivery.file_refused", name=lost.file.name
            )
        if lost.text:
            parts = self.split(batch.to, f"{words}\n\n{lost.text}")
        else:
            batch.missing.append(lost.file.name)
            parts = [words]
        told = [
            replace(
                self.row(batch.to, part, lost.kind),
                id=_derived_id(lost.id, "file refused", number),
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
        await asyncio.gather(
            self._journal.post.put_outbox(told), self._update(lost.fail(errors.FileRefused.code))
        )

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
        wait = self.limits.freeze(to, error)
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
        self.closed_chats.check(batch.to)
        if batch.written is None and self.limits.spare(batch.to, reserve=0):
            batch.update(batch.head.begin())  # nothing to wait for: its row is new and being sent at once
            await self._write(batch)
        else:
            written = self._write(batch)
            if wait := await self.limits.slot(batch.to):
                raise errors.DeliveryThrottled("the platform still wants to be left alone", retry_after=wait)
            batch.update(batch.head.begin())
            await asyncio.gather(written, self._update(batch.head))
        await self._to_its_end(batch, self._sent(batch, place, doubt=doubt))

    async def _sent(self, batch: Batch, place: str | None, *, doubt: bool) -> None:
        channel, message = self._channels[batch.to.channel], _message(batch.head, batch.to.target)
        words = [row for row in batch.rows if row.file is None]
        message = replace(message, ends=message.kind == "reply" and words == [batch.head])
        try:
            if batch.head.file is not None:
                message = replace(message, file=await self._files.load(batch.head.file))
            await self._leadership.confirmed()
            call = _shown(channel, message, place)
            if message.file is None:
                sent = await _within(SEND_SECONDS, call)
            else:
                # It is shown at the end alone: a process that leads no more by then must not end it.
                sent = await _within(FILE_SECONDS, self._leadership.while_leading(call))
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
        """True where a row whose send has an unknown outcome is in the chat.

        Raises `errors.DeliveryUncertain` where the platform cannot tell, `errors.DeliveryThrottled` where it will
        be able to, later.
        """
        channel = self._channels[batch.to.channel]
        message = await self._sought(batch.head, batch.to.target)
        if batch.head.file is not None:
            try:
                message = replace(message, file=await self._files.load(batch.head.file))
            except errors.FileRefused as error:
                raise errors.DeliveryUncertain(str(error)) from None
        found = await _asked(channel, message)
        if found is None:
            await self._clock.sleep(SETTLE_SECONDS)
            found = await _asked(channel, message)
        if found is None:
            return False
        await self._to_its_end(batch, self._arrived(batch, found))
        return True

    async def _sought(self, row: OutboxRow, target: Mapping[str, str]) -> Outbound:
        """A row as a message that its channel is asked for. Raises `errors.DeliveryThrottled`."""
        try:
            claimed = await self._journal.claimed_ids(row)
        except errors.StorageError as error:
            raise errors.DeliveryThrottled(
                f"the journal cannot be read: {error}", retry_after=RETRY_SECONDS
            ) from None
        return replace(_message(row, target), claimed=claimed)

    async def _arrived(self, batch: Batch, sent: Sent) -> None:
        row = batch.head.arrive(sent.message_id)
        batch.sent.append(row)
        batch.rows.popleft()
        if batch.late or batch.recovered:
            # Before its row says so: else a crash in between would leave the archive without it.
            await self._archive(batch)
        await self._update(row)
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
        if batch.late or batch.recovered:
            await self._archiver.put_once(batch.to, rows)
        else:
            await self._archiver.put(batch.to, rows)

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
        parts = [whole] if lost.file is not None else self._channels[batch.to.channel].split(whole)
        closes_as = lost.closes_as if len(parts) == 1 else None
        repeats = [
            replace(
                self.row(batch.to, part.removeprefix(before), lost.kind),
                repeat_of=lost.id,
                # Where its turn may be over, nobody looks for what was not put off.
                not_before=None if lost.not_before is None else self._clock.now(),
                step_id=lost.step_id,
                buttons=lost.buttons,
                part_of=lost.part_of,
                closes_as=closes_as or (lost.closes_as and part.removeprefix(before)),
                language=lost.language,
                file=lost.file,
                zone=lost.zone,
                own_zone=lost.own_zone,
            )
            for part in parts
        ]
        for repeat in repeats:
            self._files.hold(repeat)
        batch.rows.extendleft(reversed(repeats))
        await asyncio.gather(self._journal.post.put_outbox(repeats), self._update(lost.lose("uncertain")))

    def _later(self, batch: Batch, *, doubt: bool) -> errors.DeliveryFailed:
        """The error of a row that the platform does not let out now. The older it is, the rarer it is tried."""
        frozen = self.limits.frozen(batch.to)
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
        self.limits.hold(batch.to, error.wait)
        behind = [one for one in batch.line.batches if one is not batch and not one.late]
        for one in (batch, *behind):
            one.put_off(until)
        await self._deferred([batch], str(error), error.wait)
        await self._deferred(behind, BEHIND, error.wait)

    async def _deferred(self, batches: Sequence[Batch], why: str, wait: float) -> None:
        """Batches that were put off are on file as such; their senders hear of it."""
        for batch in batches:
            await self._save(batch)
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

    async def _give_up_old(self, batch: Batch) -> None:
        """Nothing waits for its platform for longer than a day."""
        now = self._steady.now()
        old = [row for row in batch.rows if now - row.created_at > PATIENCE]
        batch.rows = deque(row for row in batch.rows if row not in old)
        for row in old:
            lost = errors.DeliveryUncertain if row.state == "sending" else errors.DeliveryExpired
            await self._end(row, lost("the platform did not take it for a day"))

    async def _give_up(self, batch: Batch, error: errors.DeliveryFailed) -> None:
        """Nothing more of a batch is sent: each row that is left says why."""
        if isinstance(error, errors.TargetGone) and not self.closed_chats.closed(batch.to):
            await self.closed_chats.close(batch.to, str(error))
        await self._write(batch)
        left, rest = list(batch.rows), error
        batch.rows.clear()
        if isinstance(error, errors.DeliveryUncertain):
            await self._end(left.pop(0), error)
            rest = errors.DeliveryFailed("what came before it may not have arrived")
        await asyncio.gather(*(self._end(row, rest) for row in left))
        await self._archive(batch)
        if batch.sent and not isinstance(error, errors.DeliveryUncertain):
            begun = {row.original for row in batch.sent}
            partial = errors.DeliveryPartial(str(error), sent=len(begun), parts=batch.parts)
            partial.__cause__ = error
            batch.end(partial)
        else:
            batch.end(error)

    async def _end(self, row: OutboxRow, error: errors.DeliveryFailed) -> None:
        """Record, and tell operators, that a row will not be sent any more; its chat hears it with the next message where the
        turn that would have told it may be over.
        """
        gone = isinstance(error, errors.TargetGone)
        untold = row.not_before is not None and not gone
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
        await self._update(row)
        if untold:
            self._untold.setdefault(row.chat_key, {})[row.id] = row
        if row.kind == "reply" and not gone:
            channel = row.chat_key.channel
            self._alerts.put_nowait(
                Alert(
                    f"deliveries of {channel}",
                    sentence("operators.delivery", channel=channel, cause=error, request=row.request_id),
                )
            )

    # ------------------------------------------------------------ live messages, and what was sent

    def spare(self, to: Address, *, reserve: int = 1, edit: bool = False) -> bool:
        """Take a slot for something cosmetic; False where none is free, and where nothing may go out at all."""
        return not self.closed_chats.closed(to) and self.limits.spare(to, reserve=reserve, edit=edit)

    def split(self, to: Address, text: str) -> list[str]:
        return self._channels[to.channel].split(text)

    async def create(self, to: Address, row: OutboxRow, form: LiveForm) -> OutboxRow:
        """Create a live message, once its row is on file: else it would count as never shown after a crash.

        Raises `errors.StorageError`, and an `errors.DeliveryFailed` as `Channel.send` does: after `DeliveryUncertain` the
        row, still `sending`, can be looked for with `locate`.
        """
        row = row.begin()
        await self._journal.put_outbox([row])
        message = _live(row, to.target, form)
        await self._leadership.confirmed()
        try:
            sent = await _within(LIVE_SECONDS, self._channels[to.channel].send(message))
        except errors.DeliveryUncertain:
            raise
        except errors.DeliveryFailed as error:
            if isinstance(error, errors.DeliveryThrottled):
                self.limits.freeze(to, error, cosmetic=True)
            await self._update(row.fail(error.code))
            raise
        row = row.appear(sent.message_id)
        await self._update(row)
        return row

    async def change(self, to: Address, row: OutboxRow, form: LiveForm) -> None:
        """Show the words of a row in the place where it is in the chat. Nobody waits for the disk: the row is on its way there,
        and what a crash leaves says what people saw, or what they were about to see. A disk that refuses writes is not
        given more of them. Raises an `errors.DeliveryFailed` as `Edits.edit`.
        """
        if not self._journal.pending_writes:
            self._journal.post.update_outbox(row)
        message = _live(row, to.target, form)
        await self._leadership.confirmed()
        try:
            await _within(LIVE_SECONDS, _shown(self._channels[to.channel], message, row.message_id))
        except errors.DeliveryThrottled as error:
            self.limits.freeze(to, error, cosmetic=True)
            raise

    async def draft(self, to: Address, words: str) -> bool:
        """Show words as being written: no row, since a crash leaves nothing of them. False where the channel cannot do that here."""
        channel = self._channels[to.channel]
        if not isinstance(channel, Drafts):
            return False
        message = Outbound(to.request_id, to.request_id, to.chat_key, to.target, words, "preview")
        await self._leadership.confirmed()
        try:
            return await _within(LIVE_SECONDS, channel.draft(message))
        except errors.DeliveryFailed as error:
            if isinstance(error, errors.DeliveryThrottled):
                self.limits.freeze(to, error, cosmetic=True)
            return True

    async def locate(self, to: Address, row: OutboxRow) -> OutboxRow:
        """Find the outcome of a live message whose creation has an unknown outcome. Where nobody can tell, it is not asked for again,
        and may stand in the chat as it is.
        """
        try:
            message = await self._sought(row, to.target)
            found = await _within(LIVE_SECONDS, self._channels[to.channel].find(message))
        except errors.DeliveryFailed:
            row = row.lose("uncertain")
        else:
            row = row.fail("not found") if found is None else row.appear(found.message_id)
        await self._update(row)
        return row

    async def look_for(self, row: OutboxRow) -> OutboxRow:
        """A row whose send has an unknown outcome, with the id of its message where its channel finds that."""
        channel = self._channels.get(row.chat_key.channel)
        if channel is None or row.target is None:
            return row
        try:
            message = await self._sought(row, row.target)
            found = await _within(LIVE_SECONDS, channel.find(message))
        except errors.DeliveryFailed:
            return row
        return row if found is None else replace(row, message_id=found.message_id)

    async def end_live(self, row: OutboxRow) -> None:
        """A live message stays as it is, or was never created."""
        await self._update(row.fail("not shown") if row.message_id is None else row.arrive(row.message_id))

    async def amend(self, row: OutboxRow) -> None:
        """Give a message that was sent the words and buttons that its row has now, where its channel can do that; a second
        time where its platform asks to wait. Where it cannot be changed it stays. Its row then has the words that people see.
        """
        channel = self._channels.get(row.chat_key.channel)
        if row.file is not None or row.message_id is None or row.target is None:
            return
        if not isinstance(channel, Edits):
            return
        message = _message(row, row.target)
        for _ in range(AMENDS):
            await self._leadership.confirmed()
            try:
                await _within(LIVE_SECONDS, channel.edit(message, row.message_id))
            except errors.DeliveryThrottled as error:
                await self._clock.sleep(min(error.retry_after, LONGEST_AMEND))
            except errors.DeliveryUncertain:
                continue
            except errors.DeliveryFailed as error:
                self._log.write("delivery", "a message could not be changed", level="debug", cause=str(error))
                return
            else:
                await self._update(row)
                return

    # ------------------------------------------------------------ on file

    def _write(self, batch: Batch) -> Future[None]:
        """Write new rows, once."""
        if batch.written is None:
            batch.written = asyncio.ensure_future(self._journal.post.put_outbox(tuple(batch.rows)))
        return batch.written

    async def _save(self, batch: Batch) -> None:
        """Write the rows that are left as they are now."""
        if batch.written is None:
            await self._write(batch)
        else:
            await asyncio.gather(batch.written, *map(self._update, batch.rows))

    async def _update(self, row: OutboxRow) -> None:
        await self._journal.post.update_outbox(row)
        if not row.open:
            await self._files.release(row)


def _joined(rows: Sequence[OutboxRow]) -> Iterator[OutboxRow]:
    """New rows of one message: each but the first names that one."""
    for row in rows:
        yield row if row is rows[0] else replace(row, part_of=rows[0].id)


def _without(words: str, lines: Collection[str]) -> str:
    """A text without these lines; one that has no others stays as it is."""
    return "\n".join(line for line in words.split("\n") if line not in lines) or words


def _derived_id(request_id: str, what: str, number: int) -> str:
    """The id of a row that is to be there once."""
    return hashlib.sha256(f"{request_id}\n{what}\n{number}".encode()).hexdigest()[:26].upper()


def _place(row: OutboxRow, inbound: Inbound) -> Address:
    """The address of a row on file. In another chat than its inbound's it keeps the pace of groups, the slower one."""
    to = Address.of(inbound)
    if row.chat_key == to.chat_key:
        return to if row.target is None else replace(to, target=row.target)
    key = row.chat_key
    return Address(key.channel, key.chat_id, key, "group", row.target or {}, row.request_id)


def _stopped(row: OutboxRow) -> OutboxRow:
    return row.lose("stopped") if row.state == "sending" else row.fail("stopped")


def _message(row: OutboxRow, target: Mapping[str, str]) -> Outbound:
    words = "" if row.file is not None else row.text
    if row.repeat_of is not None:
        words = repeated(row) + words
    return Outbound(
        row.id,
        row.request_id,
        row.chat_key,
        target,
        words,
        row.kind,
        repeat_of=row.repeat_of,
        buttons=row.buttons,
        language=row.language,
        meant_at=row.created_at,
    )


def _live(row: OutboxRow, target: Mapping[str, str], form: LiveForm) -> Outbound:
    message = _message(row, target)
    return replace(message, title=form.title, cards=form.cards, sure=form.sure, goes_on=form.goes_on)


async def _shown(channel: Channel, message: Outbound, place: str | None) -> Sent:
    if place is None:
        return await channel.send(message)
    await cast("Edits", channel).edit(message, place)
    return Sent(place)


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


async def _within(seconds: float, call: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise errors.DeliveryUncertain(f"the channel said nothing for {seconds:g} s") from None
