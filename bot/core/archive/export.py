"""The export of the log to the archive: each line carries the number of its event, by which an event that comes again is known."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import events, file_names, jsonl
from bot.core.archive import lines
from bot.core.archive.store import ChatStore
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.exports import Export
from bot.core.message_versions import revised, same_message, whole

MOST_GONE = 1_000
"""Limit of deletions whose message has not come yet: platforms bring it within seconds."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is to be written. `n` is the number of the oldest event that it is made of."""

    n: int
    chat: ChatKey
    seq: int
    raw: bytes


@dataclass(slots=True)
class _Outgoing:
    """A message of the bot that is not at its end. `n` is the number of the event that queued it."""

    n: int
    parts: dict[str, events.Queued] = field(default_factory=dict)
    ends: dict[str, events.RowEnded] = field(default_factory=dict)


class ArchiveExport(Export):
    """Writes the lines of `chats/*.jsonl`: words of people, answers once they were delivered, deletions. No notices: the model must not
    come to see them.
    """

    name = "archive"

    def __init__(self, store: ChatStore, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._outgoing: dict[str, _Outgoing] = {}
        """Messages on their way out, by their first row."""
        self._gone: dict[tuple[ChatKey, str | None], None] = {}
        self._due: list[_Line] = []
        self._positions: dict[str, int] = {}
        """Numbers of the newest exported events, by the name of the chat's file."""
        self._dirty: set[Path] = set()

    @property
    def rests_on(self) -> int | None:
        return min([*(one.n for one in self._outgoing.values()), *(one.n for one in self._due)], default=None)

    async def missing(self, chats: Collection[ChatKey]) -> list[ChatKey]:
        with errors.as_storage_error("the archive cannot be read"):
            names = set(await asyncio.to_thread(self._store.files.chats))
        return [chat for chat in chats if file_names.encode(chat) not in names]

    async def take(self, n: int, event: Event) -> bool:
        line: ArchiveLine | None = None
        match event.data:
            case events.Received(inbound) if lines.has_line(inbound):
                if (event.chat, inbound.message_id) not in self._gone:
                    line = lines.said(inbound)
            case events.Edited(inbound) if lines.has_line(inbound):
                line = lines.said(await self._whole(event, inbound))
            case events.Deleted(inbound):
                line = await self._removed(event, inbound)
            case events.Queued(form="reply") as part:
                first = part.part_of or part.row
                self._outgoing.setdefault(first, _Outgoing(n)).parts[part.row] = part
            case events.RowEnded() as end:
                n, line = self._ended(n, event, end)
            case _:
                pass
        if line is not None:
            self._due.append(_Line(n, event.chat, event.seq, lines.dumped(line, event.seq)))
        return line is not None

    def _ended(self, n: int, event: Event, end: events.RowEnded) -> tuple[int, ArchiveLine | None]:
        """The line of a message whose last open part this was, where any of it arrived; and the number of its oldest event."""
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

    async def _whole(self, event: Event, edit: Inbound) -> Inbound:
        """An edit of one item of an album as what all of it says now."""
        if edit.changes is None or edit.items:
            return edit
        album: Inbound | None = None
        for one in await self._before(event):
            if isinstance(one.data, events.Received) and edit.message_id in one.data.inbound.items:
                album = one.data.inbound
            elif album is not None and isinstance(one.data, events.Edited):
                changed = one.data.inbound
                album = revised(album, changed) if same_message(album, changed) else album
        return edit if album is None else whole(album, edit)

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

    async def _before(self, event: Event) -> Sequence[Event]:
        return [one for one in await self._log.read(event.chat) if one.seq < event.seq]

    # ------------------------------------------------------------ writing

    async def write(self) -> None:
        if self._due:
            with errors.as_storage_error("the archive cannot be written"):
                await asyncio.to_thread(self._write)

    async def sync(self) -> None:
        with errors.as_storage_error("the archive cannot be written"):
            await asyncio.to_thread(self._sync)

    def _write(self) -> None:
        with jsonl.locked(self._store.folder):
            self._store.tidy_once()
            while self._due:
                chat = self._due[0].chat
                name = file_names.encode(chat)
                if name not in self._positions:
                    self._positions[name] = self._store.position(name)
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
