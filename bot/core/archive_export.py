"""Exports messages from the event log to the archive. Each archive line carries its event's number, so that an event is
not written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import events, quotes
from bot.core.archive_files import SEQ, ChatStore
from bot.core.chat import same_message
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.exports import Export
from bot.storage import file_names, jsonl

BOT_USER = "bot"
MOST_GONE = 1_000
"""Max remembered deletions. A message that arrives after its deletion is not archived. It arrives within seconds."""

# ------------------------------------------------------------ from events to lines


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


def _answer(end: Event, sent: Mapping[str, tuple[events.Queued, str | None]]) -> ArchiveLine:
    first, message_id = next(iter(sent.values()))
    words = [
        part.text if part.file is None else "\n".join(filter(None, (f"[file: {part.file.name}]", part.text)))
        for part, _ in sent.values()
    ]
    return ArchiveLine(
        ts=int(end.at * 1000),
        channel=first.channel or end.chat.channel,
        chat_id=first.chat_id or end.chat.chat_id,
        chat_key=end.chat,
        user_id=BOT_USER,
        message_id=message_id,
        role="assistant",
        text="\n".join(words),
        meta={
            "requestId": end.turn,
            "messageIds": [name for _, name in sent.values()],
            "outboxIds": list(sent),
        },
    )


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


class LineFold:
    """Computes archive lines from events in commit order. The same events always give the same lines."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._outgoing: dict[str, _Outgoing] = {}
        """Undelivered bot messages, by id of the first outbox row of each."""
        self._gone: dict[tuple[ChatKey, str | None], None] = {}

    @property
    def rests_on(self) -> int | None:
        """Return the number of the oldest event that a future archive line may need; None if there is none."""
        return min((one.n for one in self._outgoing.values()), default=None)

    async def take(self, n: int, event: Event) -> tuple[int, ArchiveLine] | None:
        """Return the archive line that this event completes, preceded by the number of the oldest event in it. Return
        None if the event completes no line. Raises `errors.StorageError`.
        """
        line: ArchiveLine | None = None
        match event.data:
            case events.Received(inbound) if (event.chat, inbound.message_id) in self._gone:
                pass
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
        """Return an event number and the archive line of a bot message. The line is None while a part of the message is
        undecided, or if no part was delivered.
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
        return message.n, _answer(event, sent) if sent else None

    async def _deleted(self, event: Event, deletion: Inbound) -> ArchiveLine:
        of, turns = list[str](), dict[str, None]()
        for one in await self._before(event):
            if isinstance(one.data, events.Received | events.Edited):
                of += [one.data.inbound.request_id] if same_message(one.data.inbound, deletion) else []
            elif isinstance(one.data, events.TurnStarted | events.Joined):
                turns |= {one.turn: None} if one.turn and not {*of}.isdisjoint(one.data.members) else {}
        self._gone[event.chat, deletion.message_id] = None
        for oldest in list(self._gone)[:-MOST_GONE]:
            del self._gone[oldest]
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
        return [one for one in await self._log.read(event.chat) if one.seq < event.seq]


# ------------------------------------------------------------ from lines to files


@dataclass(frozen=True, slots=True)
class _Line:
    """An archive line to write. `n` is the number of the oldest event from which it was built."""

    n: int
    chat: ChatKey
    seq: int
    raw: bytes


class ArchiveExport(Export):
    name = "archive"

    def __init__(self, store: ChatStore, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._fold = LineFold(log)
        self._due: list[_Line] = []
        self._positions: dict[ChatKey, int] = {}
        """Number of the newest exported event of each chat."""
        self._dirty: set[str] = set()

    @property
    def rests_on(self) -> int | None:
        oldest = self._fold.rests_on
        return min([*(() if oldest is None else (oldest,)), *(one.n for one in self._due)], default=None)

    async def missing(self, chats: Collection[ChatKey]) -> list[ChatKey]:
        with errors.as_storage_error("the archive cannot be read"):
            names = set(await asyncio.to_thread(self._store.files.chats))
        return [chat for chat in chats if file_names.encode(chat) not in names]

    async def take(self, n: int, event: Event) -> bool:
        if (found := await self._fold.take(n, event)) is None:
            return False
        oldest, line = found
        self._due.append(_Line(oldest, event.chat, event.seq, dumped(line, event.seq)))
        return True

    async def write(self) -> None:
        while self._due:
            chat = self._due[0].chat
            if chat not in self._positions:
                self._positions[chat] = await self._position(chat)
            # After a failed write the exporter passes the same events again.
            mine = {one.seq: one.raw for one in self._due if one.chat == chat}
            new = {seq: raw for seq, raw in mine.items() if seq > self._positions[chat]}
            try:
                with errors.as_storage_error("the archive cannot be written"):
                    await asyncio.to_thread(self._append, file_names.encode(chat), list(new.values()))
            except errors.StorageError:
                del self._positions[chat]  # unknown, because some lines may be on disk
                raise
            self._positions[chat] = max([self._positions[chat], *new])
            self._due = [one for one in self._due if one.chat != chat]

    def _append(self, name: str, raws: Sequence[bytes]) -> None:
        with jsonl.locked(self._store.files.folder):
            self._dirty.add(name)
            self._store.append_lines(name, raws)

    async def _position(self, chat: ChatKey) -> int:
        with errors.as_storage_error("the archive cannot be read"):
            lines = await asyncio.to_thread(self._newest, file_names.encode(chat))
        for request, seq in lines:
            event = next(iter(await self._log.read(chat, seq, pending=False)), None)
            if event is not None and event.seq == seq and _is_of(event, request):
                return seq
        return 0

    def _newest(self, name: str) -> list[tuple[str, int]]:
        with jsonl.locked(self._store.files.folder):
            return self._store.newest(name)

    async def sync(self) -> None:
        with errors.as_storage_error("the archive cannot be written"):
            await asyncio.to_thread(self._store.sync, self._dirty)
        self._dirty = set()


def _is_of(event: Event, request: str) -> bool:
    """Return True if the event completes an archive line with this request id."""
    match event.data:
        case events.Received(inbound) | events.Edited(inbound) | events.Deleted(inbound):
            return request in {event.id, event.turn, inbound.request_id}
        case events.RowEnded():
            return event.turn == request
        case _:
            return isinstance(event.data, events.Removed)
