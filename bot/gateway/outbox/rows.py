"""Rows of the outbox: their order and outcome, how they are made and written, and the batches in which they go out."""

from __future__ import annotations

import asyncio
import hashlib
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.approvals import QuestionButtons
from bot.contracts.environment import Clock, Ids
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboundKind, OutboxRow
from bot.gateway.outbox.files import KeptFile, OutgoingFiles
from bot.words import language, own_zone, say, speaking, zone

WriteRows = Callable[[Sequence[OutboxRow]], Awaitable[None]]


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


def joined(rows: Sequence[OutboxRow]) -> Iterator[OutboxRow]:
    """New rows of one message: each but the first names that one."""
    for row in rows:
        yield row if row is rows[0] else replace(row, part_of=rows[0].id)


def with_buttons(
    parts: Sequence[str], buttons: QuestionButtons | None
) -> Iterator[tuple[str, QuestionButtons | None]]:
    """The parts of one message, each with the buttons below it: the last one alone has answers, so that nobody gives one before all
    of the message stands above it.
    """
    none = None if buttons is None else replace(buttons, choices=())
    for number, part in enumerate(parts, 1):
        yield part, buttons if number == len(parts) else none


def without(words: str, lines: Collection[str]) -> str:
    """A text without these lines; one that has no others stays as it is."""
    return "\n".join(line for line in words.split("\n") if line not in lines) or words


def derived_id(request_id: str, what: str, number: int) -> str:
    """The id of a row that is to be there once."""
    return hashlib.sha256(f"{request_id}\n{what}\n{number}".encode()).hexdigest()[:26].upper()


def address_of(row: OutboxRow, inbound: Inbound) -> Address:
    """The address of a row on file. In another chat than its inbound's it keeps the pace of groups, the slower one."""
    to = Address.of(inbound)
    if row.chat_key == to.chat_key:
        return to if row.target is None else replace(to, target=row.target)
    key = row.chat_key
    return Address(key.channel, key.chat_id, key, "group", row.target or {}, row.request_id)


def stopped(row: OutboxRow) -> OutboxRow:
    return row.lose("stopped") if row.state == "sending" else row.fail("stopped")


def repeated(row: OutboxRow) -> str:
    """The words before those of a row that repeats another one."""
    with speaking(row.language):
        return f"{say('delivery.repeated')}\n\n"


@dataclass(slots=True, eq=False)
class Line:
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
    line: Line = field(default_factory=Line)
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


class OutboxRows:
    """Makes rows and writes them, and knows those that will not arrive until their chats have heard it."""

    def __init__(self, journal: Journal, files: OutgoingFiles, *, clock: Clock, ids: Ids) -> None:
        self._journal = journal
        self._files = files
        self._clock = clock
        self._ids = ids
        self._untold: dict[ChatKey, dict[str, OutboxRow]] = {}

    async def load(self) -> None:
        """Read what an earlier process left. Raises `errors.StorageError`."""
        await self._files.keep_only(await self._journal.with_files())
        for row in await self._journal.untold():
            self.untold(row)

    def new(self, to: Address, text: str, kind: OutboundKind) -> OutboxRow:
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

    def of_file(self, to: Address, kept: KeptFile, kind: OutboundKind) -> OutboxRow:
        """A new row that has a file of the store."""
        row = replace(self.new(to, kept.markdown, kind), file=kept.stored)
        self._files.hold(row, kept.use)
        return row

    def write(self, batch: Batch) -> Future[None]:
        """Write new rows, once."""
        if batch.written is None:
            batch.written = asyncio.ensure_future(self._journal.post.put_outbox(tuple(batch.rows)))
        return batch.written

    async def save(self, batch: Batch) -> None:
        """Write the rows that are left as they are now."""
        if batch.written is None:
            await self.write(batch)
        else:
            await asyncio.gather(batch.written, *map(self.update, batch.rows))

    async def update(self, row: OutboxRow) -> None:
        """Write what became of a row."""
        await self._journal.post.update_outbox(row)
        if not row.open:
            await self.release(row)

    async def release(self, ended: OutboxRow) -> None:
        """A row has ended: its file goes where no other one uses it."""
        await self._files.release(ended)

    async def supersede(self, ended: OutboxRow, rows: Sequence[OutboxRow]) -> None:
        """Write new rows that come in the place of one that has ended, and its end."""
        for row in rows:
            self._files.hold(row)
        await asyncio.gather(self._journal.post.put_outbox(rows), self.update(ended))

    def untold(self, row: OutboxRow) -> None:
        """A chat has still to hear that a row will not arrive."""
        self._untold.setdefault(row.chat_key, {})[row.id] = row

    def missed(self, chat_key: ChatKey) -> list[OutboxRow]:
        """The rows that will not arrive in a chat, until it is told so."""
        return list(self._untold.get(chat_key, {}).values())

    async def announce(self, batch: Batch, rows: Iterable[OutboxRow]) -> None:
        """A batch tells its chat that `rows` will not arrive. It is on file before they count as told."""
        await self.write(batch)
        for row in rows:
            if self._untold.get(row.chat_key, {}).pop(row.id, None) is not None:
                await self.update(row.tell())
