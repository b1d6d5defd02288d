"""Exports: files that are written from the event log for readers outside the bot, such as the archive. A stored cursor is the
number of the newest exported event. If somebody deletes these files, Shipmate writes them again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Clock, started
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, Inbound
from bot.core import events, quotes
from bot.core.archive_files import SEQ, ChatStore
from bot.core.chat import same_message
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.storage import jsonl

BATCH = 200  # Max events that an export reads at once
SYNC_SECONDS = 5.0
"""Interval in seconds between two fsyncs of an export, each followed by an update of the cursor. After a power failure, the
work of one interval is repeated.
"""
GATHER_SECONDS = 0.01
"""Delay in seconds before new events are read, so that one read returns the events of several commits."""
RETRY_SECONDS = 2.0  # Interval in seconds between retries while the disk refuses writes
BOT_USER = "bot"


class ExportLost(errors.StorageError):
    """An export lost data that it had written. The export must be written again, beginning at its cursor."""


class Export(ABC):
    """One kind of output, written from events in commit order. Passing an event twice has the same effect as passing it once.
    Methods raise `errors.StorageError`.
    """

    name: ClassVar[str]

    async def cursor(self) -> int | None:
        """Return the event number up to which the output is written; None if the event log stores this number."""
        return None

    @property
    def rests_on(self) -> int | None:
        """Return the number of the oldest event that the export needs, or None. The cursor stays before that event."""
        return None

    async def complete(self) -> bool:
        """Return False if the output of a chat is missing because somebody deleted it."""
        return True

    @abstractmethod
    async def take(self, n: int, event: Event) -> None:
        """Take in an event. If the call raises an error, the export stays unchanged."""

    async def write(self) -> None:  # noqa: B027 - some exports write at once
        """Write the output of all events taken in. After an error, the next call writes what is left."""

    async def sync(self) -> None:  # noqa: B027 - some exports are on disk at once
        """Flush the written output to disk."""

    async def close(self) -> None:  # noqa: B027 - most have nothing open
        """Close the export's open files."""


class Exporter:
    """Keeps an export up to date in a task of its own, so that a failing disk delays nothing else."""

    def __init__(self, export: Export, event_log: EventLog, *, clock: Clock, log: OperatorLog) -> None:
        self._export = export
        self._event_log = event_log
        self._clock = clock
        self._log = log
        self._at: int | None = None  # Number of the newest exported event; None until the cursor is read
        self._kept = 0  # Number of the newest event whose exported output is certainly on disk
        self._more, self._soon = asyncio.Event(), asyncio.Event()
        """Two flags: new work has arrived; a caller waits in `flush`."""
        self._passed = asyncio.Event()  # Flag that is set when the next pass over the log has ended
        self._keep_at = 0.0
        self._trouble, self._log_has_cursor = False, True
        self._task: asyncio.Task[None] | None = None
        event_log.watch(lambda _: self._more.set())

    def start(self) -> None:
        self._task = started(self._run(), self._log, f"the {self._export.name} ends")
        self._task.add_done_callback(lambda _: self._passed.set())

    async def flush(self) -> None:
        """Wait until everything appended so far is exported, or until the disk refuses the write."""
        if self._task is None or self._task.done():
            return
        with suppress(errors.StorageError):
            await self._event_log.committed(patient=False)
        self._more.set()
        self._soon.set()
        await self._passed.wait()

    def rewrite(self) -> None:
        """Write the export again from its cursor on, because written data was lost."""
        self._at = None
        self._more.set()

    async def close(self) -> None:
        if self._task is None:
            return
        await self.flush()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with suppress(errors.StorageError):
            await self._keep(self._kept if self._at is None else self._at)
        await self._export.close()

    async def _run(self) -> None:
        call_later = asyncio.get_running_loop().call_later
        while True:
            self._more.clear()
            self._soon.clear()
            passed, self._passed = self._passed, asyncio.Event()
            try:
                cause = await self._pass()
            finally:
                passed.set()
            if cause and not self._trouble:
                words = f"the {self._export.name} cannot be written: it follows once the disk takes it"
                self._log.write("storage", words, level="error", cause=cause)
            elif self._trouble and not cause:
                self._log.write("storage", f"the {self._export.name} can be written again")
            self._trouble = bool(cause)
            if cause:
                await self._clock.sleep(RETRY_SECONDS)
                continue
            left = self._keep_at - self._clock.monotonic() if self._at != self._kept else None
            for event, seconds in ((self._more, left), (self._soon, GATHER_SECONDS)):
                ends = None if seconds is None else call_later(seconds, event.set)
                await event.wait()
                if ends is not None:
                    ends.cancel()

    async def _pass(self) -> str:
        """Export all events that are left. Return the cause if the disk refuses; otherwise ""."""
        more = True
        while more:
            try:
                more = await self._step()
            except ExportLost:
                self._at = None
            except errors.StorageError as error:
                return str(error) or type(error).__name__
        return ""

    async def _begin(self) -> int:
        """Return the cursor; 0 if the output lacks a chat, or if the log to which the output belongs is lost. From 0, the
        export reads all events again, but writes no existing output twice.
        """
        own = await self._export.cursor()
        self._log_has_cursor = own is None
        at = await self._event_log.cursor(self._export.name) if own is None else own
        if own and not await self._event_log.after(own - 1, 1):
            at = 0
        elif at and not await self._export.complete():
            await self._event_log.move_cursor(self._export.name, 0)
            at = 0
        self._kept = at
        return at

    async def _step(self) -> bool:
        at = self._at = await self._begin() if self._at is None else self._at
        found = await self._event_log.after(at, BATCH)
        for n, event in found:
            await self._export.take(n, event)
        await self._export.write()
        if found and at == self._kept:
            self._keep_at = self._clock.monotonic() + SYNC_SECONDS
        if self._at != at:
            return True  # `rewrite` was called in the meantime
        self._at = at = found[-1][0] if found else at
        if at != self._kept and self._clock.monotonic() >= self._keep_at:
            await self._keep(at)
        return len(found) == BATCH

    async def _keep(self, at: int) -> None:
        await self._export.sync()
        if self._log_has_cursor:
            rests_on = self._export.rests_on
            cursor = at if rests_on is None else min(at, rests_on - 1)
            await self._event_log.move_cursor(self._export.name, cursor)
        self._kept = at


# ------------------------------------------------------------ archive


def dumped(line: ArchiveLine, seq: int) -> bytes:
    fields = line.model_copy(update={"meta": (line.meta or {}) | {SEQ: seq}}).model_dump(by_alias=True)
    return jsonl.dumps({key: value for key, value in fields.items() if value is not None})


def of_message(event: Event) -> ArchiveLine | None:
    """Return the archive line for a message or edit by a person; None for a command, signal or any other event."""
    if not isinstance(event.data, events.Received | events.Edited):
        return None
    inbound = event.data.inbound
    if inbound.kind not in {"message", "edit"} or inbound.command is not None:
        return None
    words, quoted = quotes.archived(inbound.readable, inbound.brought)
    meta: Json = {
        **quoted,
        "links": [link.model_dump() for link in inbound.links] or None,
        "requestId": inbound.request_id,
        "chatType": inbound.chat_type,
        "username": inbound.user_name,
        "edited": True if inbound.kind == "edit" else None,
        "job": inbound.due.job if inbound.due is not None else None,
        "attachments": [a.model_dump(by_alias=True, exclude_none=True) for a in inbound.attachments] or None,
    }
    return ArchiveLine.of(inbound, text=words, meta={k: v for k, v in meta.items() if v is not None})


def _removal(event: Event, by: Inbound, of: Sequence[str], turns: Sequence[str], role: str) -> ArchiveLine:
    meta: Json = {
        "deleted": True,
        "requestId": by.request_id,
        "of": list(of),
        "ofRole": role,
        "turns": list(turns),
    }
    return ArchiveLine.of(by, ts=int(event.at * 1000), role="system", text="", meta=meta)


@dataclass(slots=True)
class _Outgoing:
    """A bot message that is not delivered yet. `n` is the global number of the event that queued it."""

    n: int
    parts: dict[str, events.Queued] = field(default_factory=dict)
    ends: dict[str, events.RowEnded] = field(default_factory=dict)


@dataclass(eq=False)
class LineFold:
    """Computes archive lines from events in commit order. Equal events always give equal lines."""

    log: EventLog
    _outgoing: dict[str, _Outgoing] = field(default_factory=dict)
    """Undelivered bot messages, keyed by the id of each message's first outbox row."""

    @property
    def rests_on(self) -> int | None:
        """Return the number of the oldest event that a future archive line may need; None if no line needs an earlier event."""
        return min((one.n for one in self._outgoing.values()), default=None)

    async def take(self, n: int, event: Event) -> tuple[int, ArchiveLine] | None:
        """Return the archive line that this event completes, with the global number of the line's oldest event; None if the event
        completes no line. Raises `errors.StorageError`.
        """
        line: ArchiveLine | None = None
        match event.data:
            case events.Received() | events.Edited():
                line = of_message(event)
            case events.Deleted(inbound):
                line = await self._deleted(event, inbound)
            case events.Removed(message=message) as gone if message and gone.by:
                line = await self._forgotten(event, gone)
            case events.Queued(form="reply") as part:
                first = part.part_of or part.row
                self._outgoing.setdefault(first, _Outgoing(n)).parts[part.row] = part
            case events.RowEnded() as end:
                n, line = self._ended(n, event, end)
            case _:
                pass
        return None if line is None else (n, line)

    def _ended(self, n: int, event: Event, end: events.RowEnded) -> tuple[int, ArchiveLine | None]:
        """Return the number of the oldest event used, and the line of a bot message. The line is None until the delivery of all
        parts has ended, or if no part was delivered.
        """
        found = next(((name, one) for name, one in self._outgoing.items() if end.row in one.parts), None)
        if found is None:
            return n, None
        name, message = found
        message.ends[end.row] = end
        if message.ends.keys() != message.parts.keys():
            return n, None
        del self._outgoing[name]
        sent = {
            row: (part, message.ends[row].message_id)
            for row, part in message.parts.items()
            if message.ends[row].state == "sent"
        }
        if not sent:
            return message.n, None
        first, message_id = next(iter(sent.values()))
        words = [
            part.text
            if part.file is None
            else "\n".join(filter(None, (f"[file: {part.file.name}]", part.text)))
            for part, _ in sent.values()
        ]
        line = ArchiveLine(
            ts=int(event.at * 1000),
            channel=first.channel or event.chat.channel,
            chat_id=first.chat_id or event.chat.chat_id,
            chat_key=event.chat,
            user_id=BOT_USER,
            message_id=message_id,
            role="assistant",
            text="\n".join(words),
            meta={
                "requestId": event.turn,
                "messageIds": [name for _, name in sent.values()],
                "outboxIds": list(sent),
            },
        )
        return message.n, line

    async def _deleted(self, event: Event, deletion: Inbound) -> ArchiveLine:
        of, turns = list[str](), dict[str, None]()
        for one in await self._before(event):
            if isinstance(one.data, events.Received | events.Edited):
                of += [one.data.inbound.request_id] if same_message(one.data.inbound, deletion) else []
            elif isinstance(one.data, events.TurnStarted | events.Joined):
                turns |= {one.turn: None} if one.turn and not {*of}.isdisjoint(one.data.members) else {}
        return _removal(event, deletion, of, list(turns), "user")

    async def _forgotten(self, event: Event, gone: events.Removed) -> ArchiveLine | None:
        asked = (one.data for one in await self._before(event) if one.id == gone.by)
        by = next((one.inbound for one in asked if isinstance(one, events.Received)), None)
        if by is None:
            return None
        of = gone.turns if gone.role == "assistant" else gone.requests
        line = _removal(event, by, of, gone.related, gone.role)
        more = {"messageIds": list(gone.messages)} if len(gone.messages) > 1 else {}
        return line.model_copy(update={"message_id": gone.message, "meta": (line.meta or {}) | more})

    async def _before(self, event: Event) -> Sequence[Event]:
        return [one for one in await self.log.read(event.chat) if one.seq < event.seq]


class ArchiveExport(Export):
    """Export to the archive. Each line carries its event's number, so that an event is not written twice."""

    name = "archive"

    def __init__(self, store: ChatStore, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._fold = LineFold(log)
        self._due: dict[ChatKey, dict[int, tuple[int, bytes]]] = {}
        """Lines to write, keyed by chat and event number. Each line has the number of the oldest event from which it was built."""
        self._positions: dict[ChatKey, int] = {}  # Number of the newest exported event of each chat

    @property
    def rests_on(self) -> int | None:
        oldest = self._fold.rests_on
        due = [n for lines in self._due.values() for n, _ in lines.values()]
        return min([*(() if oldest is None else (oldest,)), *due], default=None)

    async def complete(self) -> bool:
        with errors.as_storage_error("the archive cannot be read"):
            names = set(await asyncio.to_thread(self._store.files.chats))
        for chat in await self._log.chats():
            if jsonl.file_name(chat) not in names:
                fold = LineFold(self._log)
                for event in await self._log.read(chat, pending=False):
                    if await fold.take(1, event):
                        return False
        return True

    async def take(self, n: int, event: Event) -> None:
        if found := await self._fold.take(n, event):
            oldest, line = found
            self._due.setdefault(event.chat, {})[event.seq] = oldest, dumped(line, event.seq)

    async def write(self) -> None:
        for chat, lines in list(self._due.items()):
            # Forget the position until the write has succeeded, because a failed write may leave some lines on disk.
            position = self._positions.pop(chat, None)
            position = await self._position(chat) if position is None else position
            new = {seq: raw for seq, (_, raw) in lines.items() if seq > position}
            await self._store.append_lines(jsonl.file_name(chat), list(new.values()))
            self._positions[chat] = max([position, *new])
            del self._due[chat]

    async def _position(self, chat: ChatKey) -> int:
        """Return the number of the chat's newest exported event. Lines of a lost log are ignored."""
        for request, seq in await self._store.newest(jsonl.file_name(chat)):
            event = next(iter(await self._log.read(chat, seq, pending=False)), None)
            if event is None or event.seq != seq:
                continue
            if request in {event.id, event.turn} or request in events.encode(event.data):
                return seq
        return 0

    async def sync(self) -> None:
        await self._store.sync()
