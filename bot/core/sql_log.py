"""Base class of the event logs in SQLite and PostgreSQL. It writes events in batches, retries failed writes, and reads events."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.event_log import ChatStats, Committed, Entry, Position
from bot.core.events import Event, decode, fact_of, keys_of
from bot.words import Sentence, sentence

APPEND = "INSERT INTO events (chat, seq, id, turn, person, kind, at, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
KEY = "INSERT INTO keys (key, chat, seq) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
POSITION = "INSERT INTO chats (chat, base, open) VALUES (?, ?, ?) ON CONFLICT (chat) DO UPDATE SET base = excluded.base, open = excluded.open"
FACT = "INSERT INTO facts (kind, key, value) VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value"
FACTS = "SELECT kind, key, value FROM facts WHERE kind <> ? ORDER BY kind, key"
CURSOR = "cursor"
"""`kind` of the rows of the table `facts` that contain the position of an export in the log."""
FORGET = "DELETE FROM facts WHERE kind = ? AND key = ?"
AFTER = "SELECT id, seq, turn, person, kind, at, data, chat, n FROM events WHERE n > ? ORDER BY n LIMIT ?"
READ = (
    "SELECT id, seq, turn, person, kind, at, data, chat FROM events WHERE chat = ? AND seq >= ? ORDER BY seq"
)
OF_KINDS = "SELECT id, seq, turn, person, kind, at, data, chat FROM events WHERE chat = ? AND at >= ? AND kind IN (%s) ORDER BY seq"
NAMING = "SELECT id, seq, turn, person, kind, at, data, chat FROM events WHERE (chat = ? OR substr(chat, 1, ?) = ?) AND (%s) ORDER BY n"
CHAT_OF = "SELECT chat FROM events WHERE id >= ? AND (id = ? OR turn = ?) ORDER BY id LIMIT 1"
"""Query for the chat of a request or turn. Ids are ULIDs, which grow with time. A request's id is made before its events,
so the query skips events with smaller ids.
"""
KNOWN = "SELECT 1 FROM keys WHERE key IN (%s) LIMIT 1"
USAGE = """SELECT coalesce(sum(answered), 0), coalesce(sum(calls), 0), coalesce(sum(unpriced), 0), coalesce(sum(input), 0),
coalesce(sum(cache_read), 0), coalesce(sum(cache_write), 0), coalesce(sum(output), 0), coalesce(sum(cost), 0.0) FROM usage WHERE chat = ?"""
OLDER = """SELECT (SELECT seq FROM events WHERE chat = ? ORDER BY seq LIMIT 1),
(SELECT seq FROM events WHERE chat = ? AND at >= ? ORDER BY seq LIMIT 1), (SELECT seq + 1 FROM events WHERE chat = ? ORDER BY seq DESC LIMIT 1)"""
DELETES = ("DELETE FROM events WHERE chat = ? AND seq < ?", "DELETE FROM keys WHERE chat = ? AND seq < ?")
BLANK = "UPDATE events SET data = ? WHERE id = ?"
SPOKEN_IN = """
    SELECT chat, max(at) FROM events WHERE kind = 'received' AND at >= ? AND (chat = ? OR chat > ? || ':' AND chat < ? || ';')
    GROUP BY chat ORDER BY max(n) DESC
"""
FIRST_SAID = """
    SELECT chat, (SELECT data FROM events WHERE chat = chats.chat AND kind = 'received' AND instr(data, '"command":{') = 0
    AND instr(data, '"text":"') > 0 ORDER BY seq LIMIT 1) FROM chats WHERE chat IN (%s)
"""
LINGER = 0.05
"""Max seconds until an event for which no caller waits is written. Only such events are lost if the process is killed."""
RETRY_SECONDS = 2.0
"""Interval in seconds between retries while the disk refuses writes."""

Alert = Callable[[str, Sentence], object]
"""Function that alerts operators. Its arguments are the subject and the sentence."""
CONTENT: tuple[type[Exception], ...] = (ValueError, TypeError, OverflowError)
"""Errors that are caused by the data, not by the disk. A retry would fail again."""
_R = TypeVar("_R")


class Session(Protocol):
    """Database connection with `?` as placeholder."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class SqlLog(ABC):
    """Implements `EventLog` with statements that SQLite and PostgreSQL both accept. Subclasses open the sessions and
    classify errors: after `refusals`, the database is temporarily unusable; after `conflicts`, an event can never be
    written.
    """

    refusals: ClassVar[tuple[type[Exception], ...]]
    conflicts: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, *, clock: Clock, log: OperatorLog, alert: Alert | None = None) -> None:
        self._alert = alert or (lambda _subject, _words: None)
        self._lost = set[ChatKey]()
        """Chats that have lost an event because it could not be written. A chat leaves this set once operators were alerted."""
        self._watchers: list[Committed] = []
        self._clock = clock
        self._log = log
        self._pending: list[list[Entry]] = []
        self._waiters: list[tuple[asyncio.Future[None], bool]] = []
        self._writing: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="event-log")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="event-log-reader")
        self._new_events: dict[tuple[int, int], asyncio.Future[list[tuple[int, Event]]]] = {}
        """The newest read of `after`, by its arguments. Several exports read the same new events."""
        self._db: Any = None
        self._read_db: Any = None
        self.trouble = ""

    @abstractmethod
    def _writing_session(self) -> AbstractContextManager[Session]:
        """Open a transaction on the writer's thread."""

    @abstractmethod
    def _reading(self, work: Callable[[Any], _R]) -> _R:
        """Call `work` with the session for reading, and return its result. Runs on the reader's thread. Raises
        `errors.StorageError`.
        """

    @abstractmethod
    def _again(self, error: Exception) -> bool:
        """Return True if a transaction that failed with this error should be retried at once."""

    def _words(self, error: Exception) -> str:
        return str(error)

    def watch(self, committed: Committed) -> None:
        self._watchers.append(committed)

    # ------------------------------------------------------------ appending

    def append(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self._pending.append(list(entries))
        if self._linger is None and self._writing is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER, self._begin)

    async def committed(self, *, patient: bool = True) -> None:
        if not self._pending and self._writing is None:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((waiter, patient))
        self._begin()
        await waiter

    def _begin(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._drain(), name="event log")

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(0)  # so that the batch contains all events of this step of the event loop
            while self._pending or self._waiters:
                batch, waiters = list(self._pending), self._waiters
                self._waiters = []
                refused = await loop.run_in_executor(self._writer, self._write, batch)
                if refused is not None:
                    self._refused(refused, waiters)
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
                del self._pending[: len(batch)]
                self._well([entry for some in batch for entry in some])
                for waiter, _ in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
        finally:
            # No await may stand between the loop's last check and this line. Otherwise a new event might not be written.
            self._writing = None

    def _well(self, entries: Sequence[Entry]) -> None:
        if self.trouble:
            self.trouble = ""
            self._log.write("storage", "the log of the chats can be written again")
        while self._lost:
            chat = self._lost.pop()
            self._alert(f"lost events of {chat}", sentence("operators.events_lost", chat=chat))
        self._new_events = {}
        newest = {entry.event.chat: entry.event.seq for entry in entries}
        for watcher in self._watchers if newest else ():
            watcher(newest)

    def _refused(self, error: Exception, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        cause = self._words(error)
        if not self.trouble:
            words = "the disk refuses the log of the chats: nothing new is taken in"
            self._log.write("storage", words, level="error", cause=cause)
        self.trouble = cause
        self._waiters += [one for one in waiters if one[1]]
        for waiter, patient in waiters:
            if not patient and not waiter.done():
                waiter.set_exception(errors.StorageError(f"the log cannot be written: {cause}"))

    # ------------------------------------------------------------ on the writer's thread

    def _write(self, batch: Sequence[Sequence[Entry]]) -> Exception | None:
        """Write a batch of appends in one transaction. If the database rejects the data, write each append separately. If it
        rejects an append, write the append's events of each chat separately, and drop the events that it rejects again.
        Return the error if the database is unusable, otherwise None.
        """
        while True:
            try:
                self._transaction([entry for some in batch for entry in some])
            except self.conflicts as error:
                chats = {entry.event.chat for some in batch for entry in some}
                parts: list[Sequence[Entry]] = list(batch)
                if len(batch) == 1:
                    parts = [[one for one in batch[0] if one.event.chat == chat] for chat in chats]
                if len(parts) > 1:
                    return next(filter(None, [self._write([one]) for one in parts]), None)
                self._lost |= chats
                self._log.write(
                    "storage",
                    "events of a chat cannot be written, and are lost: does another process write it?",
                    level="error",
                    chat_key=chats.pop(),
                    cause=f"{type(error).__name__}: {self._words(error)}",
                )
                return None
            except self.refusals as error:
                if not self._again(error):
                    return error
            else:
                return None

    def _transaction(self, entries: Sequence[Entry]) -> None:
        events = [(one.event, one.raw) for one in entries]
        rows = [
            _clean(str(one.chat), one.seq, one.id, one.turn, one.person, one.kind, one.at, raw)
            for one, raw in events
        ]
        keys = [_clean(key, str(one.chat), one.seq) for one, _ in events for key in keys_of(one.data)]
        positions = {str(one.event.chat): one.position for one in entries}
        with self._writing_session() as db:
            db.executemany(APPEND, rows)
            db.executemany(BLANK, [(raw, event.id) for one in entries for event, raw in one.blanks])
            db.executemany(KEY, keys)
            db.executemany(POSITION, [_clean(chat, one.base, one.open) for chat, one in positions.items()])
            for kind, key, value in filter(None, (fact_of(one.data) for one, _ in events)):
                if value is None:
                    db.execute(FORGET, _clean(kind, key))
                else:
                    db.execute(FACT, _clean(kind, key, json.dumps(value, ensure_ascii=False)))

    # ------------------------------------------------------------ reading

    async def _asked(self, work: Callable[[Any], _R]) -> _R:
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._reading, work)

    async def _rows(self, sql: str, *values: object) -> list[Any]:
        return await self._asked(lambda db: db.execute(sql, _clean(*values)).fetchall())

    async def _events(self, waiting: Sequence[Event], sql: str, *values: object) -> list[Event]:
        """Return the events that a query finds, then those events in `waiting` that it does not find. `waiting` are the pending
        events before the query, so that an event that is written meanwhile is not missed.
        """
        found = await self._asked(lambda db: [_event(row) for row in db.execute(sql, _clean(*values))])
        known = {one.id for one in found}
        return [*found, *(one for one in waiting if one.id not in known)]

    def _entries(self) -> list[Entry]:
        return [one for entries in self._pending for one in entries]

    def _waiting(self, chat: ChatKey) -> list[Event]:
        return [one.event for one in self._entries() if one.event.chat == chat]

    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]:
        waiting = [one for one in self._waiting(chat) if one.seq >= since] if pending else []
        return await self._events(waiting, READ, str(chat), since)

    async def of_kinds(self, chat: ChatKey, kinds: Collection[str], since: float) -> list[Event]:
        waiting = [one for one in self._waiting(chat) if one.kind in kinds and one.at >= since]
        return await self._events(waiting, OF_KINDS % _marks(kinds), str(chat), since, *kinds)

    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]:
        if (n, limit) not in self._new_events:
            read = self._asked(
                lambda db: [(number, _event(row)) for *row, number in db.execute(AFTER, (n, limit))]
            )
            self._new_events = {(n, limit): asyncio.ensure_future(read)}
        found: list[tuple[int, Event]] = []
        try:
            found = await asyncio.shield(self._new_events[n, limit])
        finally:
            if not found:
                self._new_events = {}
        return found

    async def chats(self) -> list[ChatKey]:
        return [ChatKey.parse(chat) for (chat,) in await self._rows("SELECT chat FROM chats")]

    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]:
        # The query scans all rows of the chat. Removals are rare, and an index of ids would slow down every message.
        # An id occurs as a JSON string. In a model's message, its quotes are escaped, because that JSON is inside a JSON string.
        forms = {name: (f'"{name}"', f'\\"{name}\\"') for name in names if name}

        def refers(one: Entry) -> bool:
            named = any(form in one.raw for some in forms.values() for form in some)
            return place.chat.contains(one.event.chat) and (one.event.turn in forms or named)

        waiting = [one.event for one in self._entries() if refers(one)]
        tells = " OR ".join(["turn = ? OR instr(data, ?) > 0 OR instr(data, ?) > 0"] * len(forms)) or "1 = 0"
        below = f"{place.chat}:"
        wanted = [word for name in forms for word in (name, *forms[name])]
        return await self._events(waiting, NAMING % tells, str(place.chat), len(below), below, *wanted)

    async def cursor(self, export: str) -> int:
        rows = await self._rows("SELECT value FROM facts WHERE kind = ? AND key = ?", CURSOR, export)
        return int(rows[0][0]) if rows else 0

    async def move_cursor(self, export: str, n: int) -> None:
        await self._changed(lambda db: db.execute(FACT, (CURSOR, export, str(n))))

    async def _changed(self, work: Callable[[Session], object]) -> None:
        """Run `work` on the writer's thread, in a transaction of its own."""

        def change() -> None:
            with (
                errors.as_storage_error("the log cannot be written", *self.refusals),
                self._writing_session() as db,
            ):
                work(db)

        await asyncio.get_running_loop().run_in_executor(self._writer, change)
        self._new_events = {}

    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]:
        await self.committed(patient=False)
        name = str(chat)
        ((first, young, end),) = await self._rows(OLDER, name, name, at, name)
        return (first, end if young is None else young) if first is not None else (0, 0)

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        await self._changed(lambda db: [db.execute(one, (str(chat), seq)) for one in DELETES])

    async def position(self, chat: ChatKey) -> Position | None:
        for entry in reversed(self._entries()):
            if entry.event.chat == chat:
                return entry.position
        rows = await self._rows("SELECT base, open FROM chats WHERE chat = ?", str(chat))
        return Position(*rows[0]) if rows else None

    async def open_chats(self) -> list[ChatKey]:
        rows = await self._rows("SELECT chat FROM chats WHERE open IS NOT NULL")
        return [ChatKey.parse(chat) for (chat,) in rows]

    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> dict[ChatKey, float]:
        found = dict[ChatKey, float]()
        for one in reversed(self._entries()):
            if one.event.kind == "received" and place.contains(one.event.chat):
                found.setdefault(one.event.chat, one.event.at)
        rows = await self._rows(SPOKEN_IN, since, *[str(place)] * 3)
        return found | {key: at for chat, at in rows if (key := ChatKey.parse(chat)) not in found}

    async def first_words(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        await self.committed(patient=False)
        rows = await self._rows(FIRST_SAID % _marks(chats), *map(str, chats))
        said = {chat: json.loads(raw)["inbound"].get("text") for chat, raw in rows if raw is not None}
        return {ChatKey.parse(chat): words for chat, words in said.items() if words}

    async def facts(self) -> dict[tuple[str, str], Json]:
        return {(kind, key): json.loads(value) for kind, key, value in await self._rows(FACTS, CURSOR)}

    async def newest(self) -> str:
        return str((await self._rows("SELECT coalesce(max(id), '') FROM events"))[0][0])

    async def chat_of(self, request: str) -> ChatKey | None:
        rows = await self._rows(CHAT_OF, *[request] * 3)
        return ChatKey.parse(rows[0][0]) if rows else None

    async def usage(self, chat: ChatKey) -> ChatStats:
        await self.committed(patient=False)
        return ChatStats(*(await self._rows(USAGE, str(chat)))[0])

    async def known(self, keys: Collection[str]) -> bool:
        if any(key in keys for one in self._entries() for key in keys_of(one.event.data)):
            return True
        return bool(keys and await self._rows(KNOWN % _marks(keys), *keys))

    async def close(self) -> None:
        if self._pending:
            self._begin()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=RETRY_SECONDS)
            if self._writing is not None:
                self._writing.cancel()
        for pool in (self._writer, self._reader):
            pool.shutdown()
        for db in (self._db, self._read_db):
            if db is not None:
                db.close()


def _event(row: Sequence[Any]) -> Event:
    name, seq, turn, person, kind, at, data, chat = row
    return Event(name, ChatKey.parse(chat), at, decode(kind, data), turn, person, seq)


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _clean(*values: object) -> tuple[object, ...]:
    """Return the values with lone surrogates removed from strings, since databases do not accept them."""
    return tuple(text.clean(one) if isinstance(one, str) else one for one in values)
