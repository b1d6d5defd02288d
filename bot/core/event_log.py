"""The event log: the durable source of truth for all chats. The SQL statements work in SQLite and in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.events import Event, FactSet, RowEnded, Shown, decode, keys_of
from bot.telemetry.usage import TOKENS, UsageTotals
from bot.words import Sentence, sentence

APPEND = "INSERT INTO events (chat, seq, id, turn, person, kind, at, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
KEY = "INSERT INTO keys (key, chat, seq) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
POSITION = "INSERT INTO chats (chat, base, open) VALUES (?, ?, ?) ON CONFLICT (chat) DO UPDATE SET base = excluded.base, open = excluded.open"
FACT = "INSERT INTO facts (kind, key, value) VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value"
FORGET = "DELETE FROM facts WHERE kind = ? AND key = ?"
_EVENTS = "SELECT id, seq, turn, person, kind, at, data, chat, n FROM events WHERE"
# Ids are ULIDs, which grow with time. A request's id is older than the ids of its events, so the search starts at that id.
_CHAT_OF = "SELECT chat FROM events WHERE id >= ? AND (id = ? OR turn = ?) ORDER BY id LIMIT 1"
_KNOWN = "SELECT 1 FROM keys WHERE key IN (%s) LIMIT 1"
_USAGE = """SELECT sum(answered), sum(calls), sum(unpriced), sum(cost), sum(input), sum(cache_read), sum(cache_write), sum(output)
FROM usage WHERE chat = ?"""
_OLDER = """SELECT (SELECT seq FROM events WHERE chat = ? ORDER BY seq LIMIT 1),
(SELECT seq FROM events WHERE chat = ? AND at >= ? ORDER BY seq LIMIT 1), (SELECT seq + 1 FROM events WHERE chat = ? ORDER BY seq DESC LIMIT 1)"""
_SPOKEN_IN = """SELECT chat, max(at) FROM events
WHERE kind = 'received' AND at >= ? AND (chat = ? OR chat > ? || ':' AND chat < ? || ';') GROUP BY chat ORDER BY max(n) DESC"""
_FIRST_SAID = """SELECT chat, (SELECT data FROM events WHERE chat = chats.chat AND kind = 'received'
AND instr(data, '"command":{') = 0 AND instr(data, '"text":"') > 0 ORDER BY seq LIMIT 1) FROM chats WHERE chat IN (%s)"""

CURSOR = "cursor"
"""Kind of rows in the table `facts`. Each such row stores the position in the log up to which an export was written."""
RESTORED = "restored"
"""Kind and key of a row in the table `facts`. Restoring a backup writes the row. The next start then closes unfinished work."""
LINGER = 0.05
"""Max seconds before an event is written if no caller waits for it. A kill loses only such events."""
RETRY_SECONDS = 2.0
"""Interval in seconds between retries while the disk refuses writes."""
CONTENT: tuple[type[Exception], ...] = (ValueError, TypeError, OverflowError)
"""Errors that are caused by the data, not by the disk. A retry would fail again."""

Committed = Callable[[Mapping[ChatKey, int]], None]
"""Function called on the event loop after each commit. It receives the newest event number of each chat with new events."""
Alert = Callable[[str, Sentence], object]
"""Function that alerts operators. Its arguments are the subject and the sentence."""
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Position:
    """Number of the event from which a chat is rebuilt: the smaller of `base` and `open`. Unfinished work needs the events
    from `open` on (None if no work is unfinished). The rest of the chat's state needs the events from `base` on.
    """

    base: int = 0
    open: int | None = None

    @property
    def first(self) -> int:
        return self.base if self.open is None else min(self.base, self.open)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event to write. `position` is the chat's position after the event, `raw` the event's data as JSON. `blanks` are
    older events whose text this event erases, each with its new stored data.
    """

    event: Event
    position: Position
    raw: str = ""
    blanks: Sequence[tuple[Event, str]] = ()


class Session(Protocol):
    """Database connection with `?` as placeholder."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class EventLog(ABC):
    """Appends events in order, and never refuses one. `after`, `chats`, `newest`, `chat_of` and `facts` read only events on
    disk; all other methods also read unwritten events. Methods that use the disk raise `errors.StorageError`.

    Subclasses open the sessions and classify errors: errors in `refusals` mean that the database is temporarily unusable,
    errors in `conflicts` that an event can never be written.
    """

    refusals: ClassVar[tuple[type[Exception], ...]]
    conflicts: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, *, clock: Clock, log: OperatorLog, alert: Alert | None = None) -> None:
        self.trouble = ""
        """The disk's error message; "" if there is no error."""
        self._alert = alert or (lambda _subject, _words: None)
        self._clock = clock
        self._log = log
        self._lost = set[ChatKey]()
        """Chats that have lost an event because it could not be written. A chat leaves this set once operators were alerted."""
        self._watchers: list[Committed] = []
        self._pending: list[Sequence[Entry]] = []
        self._waiters: list[tuple[asyncio.Future[None], bool]] = []
        self._writing: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="event-log")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="event-log-reader")
        self._new_events: dict[tuple[int, int], asyncio.Future[list[tuple[int, Event]]]] = {}
        """The newest read of `after`, keyed by the call's arguments. Exports share it, because they need the same events."""
        self._db: Any = None
        self._read_db: Any = None

    @abstractmethod
    def _writing_session(self) -> AbstractContextManager[Session]:
        """Open a transaction on the writer's thread."""

    @abstractmethod
    def _reading(self, work: Callable[[Any], _R]) -> _R:
        """Call `work` with the session for reading, and return the result. Runs on the reader's thread. Raises
        `errors.StorageError`.
        """

    @abstractmethod
    def _again(self, error: Exception) -> bool:
        """Return True if a transaction that failed with this error should be retried at once."""

    # ------------------------------------------------------------ appending

    def watch(self, committed: Committed) -> None:
        self._watchers.append(committed)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write all entries in one transaction, after everything appended earlier. An event that is already in the log is ignored."""
        if not entries:
            return
        self._pending.append(entries)
        if self._linger is None and self._writing is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER, self._begin)

    async def committed(self, *, patient: bool = True) -> None:
        """Wait until everything appended so far is on disk, however often writes fail. If `patient` is False, raise an
        error at the first failed write. The events stay queued for writing.
        """
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
                    self._refused(errors.words_of(refused), waiters)
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
                del self._pending[: len(batch)]
                self._well({entry.event.chat: entry.event.seq for some in batch for entry in some})
                for waiter, _ in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
        finally:
            # No await may stand between the loop's last check and this line. Otherwise a new event might not be written.
            self._writing = None

    def _well(self, newest: Mapping[ChatKey, int]) -> None:
        if self.trouble:
            self.trouble = ""
            self._log.write("storage", "the log of the chats can be written again")
        while self._lost:
            chat = self._lost.pop()
            self._alert(f"lost events of {chat}", sentence("operators.events_lost", chat=chat))
        self._new_events = {}
        for watcher in self._watchers if newest else ():
            watcher(newest)

    def _refused(self, cause: str, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        if not self.trouble:
            words = "the disk refuses the log of the chats: nothing new is taken in"
            self._log.write("storage", words, level="error", cause=cause)
        self.trouble = cause
        self._waiters += [one for one in waiters if one[1]]
        for waiter, patient in waiters:
            if not patient and not waiter.done():
                waiter.set_exception(errors.StorageError(f"the log cannot be written: {cause}"))

    def _write(self, batch: Sequence[Sequence[Entry]]) -> Exception | None:
        """Write a batch of appends in one transaction. If the database rejects the data, write each append separately.
        If the database rejects an append, split the append by chat, write each part separately, and drop the parts that
        are rejected. Return the error if the database is unusable, otherwise None. Runs on the writer's thread.
        """
        while True:
            try:
                self._transaction([entry for some in batch for entry in some])
            except self.conflicts as error:
                chats = {entry.event.chat for some in batch for entry in some}
                parts = list(batch)
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
                    cause=f"{type(error).__name__}: {errors.words_of(error)}",
                )
                return None
            except self.refusals as error:
                if not self._again(error):
                    return error
            else:
                return None

    def _transaction(self, entries: Sequence[Entry]) -> None:
        events = [one.event for one in entries]
        positions = {str(one.event.chat): one.position for one in entries}
        rows = [
            (str(one.chat), one.seq, one.id, one.turn, one.person, one.kind, one.at, entry.raw)
            for entry in entries
            for one in (entry.event,)
        ]
        keys = [(key, str(one.chat), one.seq) for one in events for key in keys_of(one.data)]
        places = [(chat, one.base, one.open) for chat, one in positions.items()]
        with self._writing_session() as db:
            db.executemany(APPEND, map(_clean, rows))
            blanks = [(raw, event.id) for one in entries for event, raw in one.blanks]
            db.executemany("UPDATE events SET data = ? WHERE id = ?", blanks)
            db.executemany(KEY, map(_clean, keys))
            db.executemany(POSITION, map(_clean, places))
            for fact in (one.data for one in events if isinstance(one.data, FactSet)):
                db.execute(*stored(fact))

    async def _changed(self, *statements: tuple[str, Sequence[object]]) -> None:
        def change() -> None:
            with (
                errors.as_storage_error("the log cannot be written", *self.refusals),
                self._writing_session() as db,
            ):
                for statement, values in statements:
                    db.execute(statement, values)

        await asyncio.get_running_loop().run_in_executor(self._writer, change)
        self._new_events = {}

    async def move_cursor(self, export: str, n: int) -> None:
        await self._changed((FACT, (CURSOR, export, str(n))))

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        """Delete a chat's events before the number `seq`, and their platform keys. Usage totals stay."""
        delete = (
            "DELETE FROM events WHERE chat = ? AND seq < ?",
            "DELETE FROM keys WHERE chat = ? AND seq < ?",
        )
        await self._changed(*((one, (str(chat), seq)) for one in delete))

    # ------------------------------------------------------------ reading

    async def _asked(self, work: Callable[[Any], _R]) -> _R:
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._reading, work)

    async def _rows(self, sql: str, *values: object) -> list[Any]:
        return await self._asked(lambda db: db.execute(sql, _clean(values)).fetchall())

    async def _events(self, where: str, *values: object) -> list[tuple[int, Event]]:
        sql = f"{_EVENTS} {where}"
        return await self._asked(
            lambda db: [
                (n, Event(name, ChatKey.parse(chat), at, decode(kind, data), turn, person, seq))
                for name, seq, turn, person, kind, at, data, chat, n in db.execute(sql, _clean(values))
            ]
        )

    def _unwritten(self) -> list[Entry]:
        return [one for entries in self._pending for one in entries]

    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]:
        """Return a chat's events from event number `since` on. If `pending` is False, leave out events that are not on disk."""
        waiting = [one.event for one in self._unwritten() if pending and one.event.chat == chat]
        found = [one for _, one in await self._events("chat = ? AND seq >= ? ORDER BY seq", str(chat), since)]
        known = {one.id for one in found}
        return [*found, *(one for one in waiting if one.seq >= since and one.id not in known)]

    async def of_kinds(self, chat: ChatKey, kinds: Collection[str], since: float) -> list[Event]:
        await self.committed(patient=False)
        where = f"chat = ? AND at >= ? AND kind IN ({_marks(kinds)}) ORDER BY seq"
        return [one for _, one in await self._events(where, str(chat), since, *kinds)]

    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]:
        """Return at most `limit` events of all chats after the global number `n`, in commit order, each with its global number."""
        if (n, limit) not in self._new_events:
            read = self._events("n > ? ORDER BY n LIMIT ?", n, limit)
            self._new_events = {(n, limit): asyncio.ensure_future(read)}
        found: list[tuple[int, Event]] = []
        try:
            found = await asyncio.shield(self._new_events[n, limit])
        finally:
            if not found:
                self._new_events = {}
        return found

    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]:
        """Return the events of a chat and its threads that refer to one of these request, turn or message ids."""
        await self.committed(patient=False)
        # The query scans all rows of the chat. Removals are rare, and an index of ids would slow down every message.
        # An id occurs as a JSON string. In a model's message, its quotes are escaped, because that JSON is inside a JSON string.
        forms = [(name, f'"{name}"', f'\\"{name}\\"') for name in names if name]
        tells = " OR ".join(["turn = ? OR instr(data, ?) > 0 OR instr(data, ?) > 0"] * len(forms)) or "1 = 0"
        below = f"{place.chat}:"
        where = f"(chat = ? OR substr(chat, 1, ?) = ?) AND ({tells}) ORDER BY n"
        wanted = [word for some in forms for word in some]
        return [one for _, one in await self._events(where, str(place.chat), len(below), below, *wanted)]

    async def senders(self, chat: ChatKey, message: str) -> list[str]:
        """Return the ids of the turns whose answers this message of a chat has shown. The turn with the newest answer comes last."""
        found = (one for one in await self.naming(chat, {message}) if one.chat == chat)
        sent = (
            one for one in found if isinstance(one.data, RowEnded | Shown) and one.data.message_id == message
        )
        # An edit that only changes buttons belongs to no turn.
        return [one.turn for one in sent if one.turn is not None]

    async def chats(self, *, unfinished: bool = False) -> list[ChatKey]:
        """Return all chats, or only the chats that have unfinished work."""
        everything, some = "SELECT chat FROM chats", "SELECT chat FROM chats WHERE open IS NOT NULL"
        return [ChatKey.parse(chat) for (chat,) in await self._rows(some if unfinished else everything)]

    async def position(self, chat: ChatKey) -> Position | None:
        for entry in reversed(self._unwritten()):
            if entry.event.chat == chat:
                return entry.position
        rows = await self._rows("SELECT base, open FROM chats WHERE chat = ?", str(chat))
        return Position(*rows[0]) if rows else None

    async def cursor(self, export: str) -> int:
        rows = await self._rows("SELECT value FROM facts WHERE kind = ? AND key = ?", CURSOR, export)
        return int(rows[0][0]) if rows else 0

    async def facts(self) -> list[tuple[str, str, Json]]:
        """Return the kind, key and value of each fact, without the cursors of exports."""
        rows = await self._rows("SELECT * FROM facts WHERE kind <> ? ORDER BY kind, key", CURSOR)
        return [(kind, key, json.loads(value)) for kind, key, value in rows]

    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]:
        """Return the number of a chat's oldest event, and the number of its first event at or after the time `at`. If all
        events are older, the second number is that of the chat's next event. Both are 0 if the chat has no events.
        """
        await self.committed(patient=False)
        name = str(chat)
        ((first, young, end),) = await self._rows(_OLDER, name, name, at, name)
        return (first, end if young is None else young) if first is not None else (0, 0)

    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> dict[ChatKey, float]:
        """Return the conversations of a chat and its threads that have received a message since `since`, the newest first.
        Each value is the time of the conversation's newest message.
        """
        found = dict[ChatKey, float]()
        for one in reversed(self._unwritten()):
            if one.event.kind == "received" and place.contains(one.event.chat):
                found.setdefault(one.event.chat, one.event.at)
        rows = await self._rows(_SPOKEN_IN, since, *[str(place)] * 3)
        return found | {key: at for chat, at in rows if (key := ChatKey.parse(chat)) not in found}

    async def first_words(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        """Return the text of each chat's first message that is no command."""
        await self.committed(patient=False)
        rows = await self._rows(_FIRST_SAID % _marks(chats), *map(str, chats))
        said = {chat: json.loads(raw)["inbound"].get("text") for chat, raw in rows if raw is not None}
        return {ChatKey.parse(chat): words for chat, words in said.items() if words}

    async def newest(self) -> str:
        """Return the largest event id; "" if the log is empty."""
        return str((await self._rows("SELECT coalesce(max(id), '') FROM events"))[0][0])

    async def chat_of(self, request: str) -> ChatKey | None:
        rows = await self._rows(_CHAT_OF, *[request] * 3)
        return ChatKey.parse(rows[0][0]) if rows else None

    async def usage(self, chat: ChatKey) -> UsageTotals:
        """Return a chat's usage totals since the chat began. `turns` counts only answered turns."""
        await self.committed(patient=False)
        turns, calls, unpriced, cost, *tokens = (one or 0 for one in (await self._rows(_USAGE, str(chat)))[0])
        counts = Counter(dict(zip(TOKENS, tokens, strict=True)))
        return UsageTotals(turns, calls=calls, unpriced=unpriced, cost=cost, tokens=counts)

    async def known(self, keys: Collection[str]) -> bool:
        """Return True if an event with one of these platform keys was appended."""
        if any(key in keys for one in self._unwritten() for key in keys_of(one.event.data)):
            return True
        return bool(keys and await self._rows(_KNOWN % _marks(keys), *keys))

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


def stored(fact: FactSet) -> tuple[str, tuple[object, ...]]:
    """Return the SQL statement that stores or deletes a fact, and the statement's values."""
    if fact.value is None:
        return FORGET, _clean((fact.of, fact.key))
    return FACT, _clean((fact.of, fact.key, json.dumps(fact.value, ensure_ascii=False)))


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _clean(values: Iterable[object]) -> tuple[object, ...]:
    """Return the values with lone surrogates removed from strings, since databases do not accept them."""
    return tuple(text.clean(one) if isinstance(one, str) else one for one in values)
