"""Exports the event log to the archive. Each archive line carries its event number, so that a second export
of the same event is recognised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import events
from bot.core.archive import lines
from bot.core.archive.store import ChatStore
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.exports import Export
from bot.core.message_versions import same_message
from bot.storage import file_names, jsonl

MOST_GONE = 1_000
"""Max remembered deletions whose message has not arrived yet; platforms deliver the message within seconds."""


@dataclass(slots=True)
class _Outgoing:
    """A bot message that is not delivered yet. `n` is the number of the message's `queued` event."""

    n: int
    parts: dict[str, events.Queued] = field(default_factory=dict)
    ends: dict[str, events.RowEnded] = field(default_factory=dict)


class LineFold:
    """Folds events in commit order into archive lines. The same events always give the same lines."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._outgoing: dict[str, _Outgoing] = {}
        """Undelivered bot messages by the id of their first outbox row."""
        self._gone: dict[tuple[ChatKey, str | None], None] = {}

    @property
    def rests_on(self) -> int | None:
        """Return the number of the oldest event that a later archive line may need."""
        return min((one.n for one in self._outgoing.values()), default=None)

    async def take(self, n: int, event: Event) -> tuple[int, ArchiveLine] | None:
        """Return the archive line that this event completes, with the number of the oldest event that the
        line was built from. Raises `errors.StorageError`.
        """
        line: ArchiveLine | None = None
        match event.data:
            case events.Received(inbound) if (event.chat, inbound.message_id) in self._gone:
                pass
            case events.Received() | events.Edited():
                line = lines.of_message(event)
            case events.Deleted(inbound):
                line = await self._removed(event, inbound)
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
        """Return the archive line of a bot message if `end` closes the message's last open part and any part
        was delivered.
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
        return message.n, lines.answered(event, sent) if sent else None

    async def _removed(self, event: Event, deletion: Inbound) -> ArchiveLine:
        of, turns = list[Inbound](), dict[str, None]()
        for one in await self._before(event):
            if isinstance(one.data, events.Received | events.Edited):
                of += [one.data.inbound] if same_message(one.data.inbound, deletion) else []
            elif isinstance(one.data, events.TurnStarted | events.Joined):
                meant = not {said.request_id for said in of}.isdisjoint(one.data.members)
                turns |= {one.turn: None} if one.turn and meant else {}
        self._gone[event.chat, deletion.message_id] = None
        for oldest in list(self._gone)[:-MOST_GONE]:
            del self._gone[oldest]
        return lines.removed(event, deletion, of, list(turns))

    async def _forgotten(self, event: Event, gone: events.Removed) -> ArchiveLine | None:
        asked = (one.data for one in await self._before(event) if one.id == gone.by)
        by = next((one.inbound for one in asked if isinstance(one, events.Received)), None)
        return None if by is None else lines.forgotten(event, gone, by)

    async def _before(self, event: Event) -> Sequence[Event]:
        return [one for one in await self._log.read(event.chat) if one.seq < event.seq]


@dataclass(frozen=True, slots=True)
class _Line:
    """An archive line to write. `n` is the number of the oldest event that the line was built from."""

    n: int
    chat: ChatKey
    seq: int
    raw: bytes


class ArchiveExport(Export):
    """Writes archive lines to `chats/*.jsonl`."""

    name = "archive"

    def __init__(self, store: ChatStore, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._fold = LineFold(log)
        self._due: list[_Line] = []
        self._positions: dict[str, int] = {}
        """Numbers of the newest exported events, by the base name of the chat's file."""
        self._dirty: set[Path] = set()

    @property
    def rests_on(self) -> int | None:
        oldest = self._fold.rests_on
        return min([*(() if oldest is None else (oldest,)), *(one.n for one in self._due)], default=None)

    async def missing(self, chats: Collection[ChatKey]) -> list[ChatKey]:
        with errors.as_storage_error("the archive cannot be read"):
            names = set(await asyncio.to_thread(self._store.files.chats))
        return [chat for chat in chats if file_names.encode(chat) not in names]

    async def take(self, n: int, event: Event) -> bool:
        found = await self._fold.take(n, event)
        if found is not None:
            oldest, line = found
            self._due.append(_Line(oldest, event.chat, event.seq, lines.dumped(line, event.seq)))
        return found is not None

    # ------------------------------------------------------------ writing

    async def write(self) -> None:
        if self._due:
            for chat in {one.chat for one in self._due}:
                if (name := file_names.encode(chat)) not in self._positions:
                    self._positions[name] = await self._position(chat)
            with errors.as_storage_error("the archive cannot be written"):
                await asyncio.to_thread(self._write)

    async def _position(self, chat: ChatKey) -> int:
        """Return the number of the newest exported event. A number above the log's newest event is ignored,
        since it was exported from an earlier log that was lost.
        """
        with errors.as_storage_error("the archive cannot be read"):
            lines_of = await asyncio.to_thread(self._newest, file_names.encode(chat))
        for request, seq in lines_of:
            event = next(iter(await self._log.read(chat, seq, pending=False)), None)
            if event is not None and event.seq == seq and _is_of(event, request):
                return seq
        return 0

    def _newest(self, name: str) -> list[tuple[str, int]]:
        with jsonl.locked(self._store.folder):
            self._store.tidy_once()
            return self._store.newest(name)

    async def sync(self) -> None:
        with errors.as_storage_error("the archive cannot be written"):
            await asyncio.to_thread(self._sync)

    def _write(self) -> None:
        with jsonl.locked(self._store.folder):
            self._store.tidy_once()
            while self._due:
                chat = self._due[0].chat
                name = file_names.encode(chat)
                mine = (one for one in self._due if one.chat == chat)
                new = {one.seq: one.raw for one in mine if one.seq > self._positions[name]}
                while new:
                    self._dirty.add(self._store.files.main(name))
                    for seq in list(new)[: self._store.write_some(name, list(new.values()), sync=False)]:
                        self._positions[name] = seq
                        del new[seq]
                self._due = [one for one in self._due if one.chat != chat]

    def _sync(self) -> None:
        for path in self._dirty:
            self._store.disk.sync(path)
        if self._dirty:
            self._store.disk.sync(self._store.folder)
        self._dirty.clear()


def _is_of(event: Event, request: str) -> bool:
    """Return True for an event that completes an archive line of this request."""
    match event.data:
        case events.Received(inbound) | events.Edited(inbound) | events.Deleted(inbound):
            return request in {event.id, event.turn, inbound.request_id}
        case events.RowEnded():
            return event.turn == request
        case _:
            return isinstance(event.data, events.Removed)
