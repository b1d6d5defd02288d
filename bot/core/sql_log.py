"""Event log in an SQL database, independent of the dialect: group commit, pending events, retries, reads."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
"""Kind of the facts that store export cursors."""
FORGET = "DELETE FROM facts WHERE kind = ? AND key = ?"
AFTER = "SELECT id, seq, turn, person, kind, at, data, chat, n FROM events WHERE n > ? ORDER BY n LIMIT ?"
READ = "SELECT id, seq, turn, person, kind, at, data FROM events WHERE chat = ? AND seq >= ? ORDER BY seq"
OF_KINDS = "SELECT id, seq, turn, person, kind, at, data FROM events WHERE chat = ? AND at >= ? AND kind IN (%s) ORDER BY seq"
NAMING = "SELECT id, seq, turn, person, kind, at, data, chat FROM events WHERE (chat = ? OR substr(chat, 1, ?) = ?) AND (%s) ORDER BY n"
CHAT_OF = "SELECT chat FROM events WHERE id >= ? AND (id = ? OR turn = ?) ORDER BY id LIMIT 1"
"""Query for the chat of a request or turn. Event ids and request ids are both ULIDs, and events of a request
are appended after its id was made, so older events are skipped.
"""
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
AT_ONCE = 500
"""Max chats of one query."""
LINGER = 0.05
"""Max seconds until events are written for which no caller waits; a kill of the process loses at most these events."""
RETRY_SECONDS = 2.0
"""Interval in seconds between retries while the disk refuses writes."""

Alert = Callable[[str, Sentence], object]
"""Function that alerts operators, once per subject."""
CONTENT: tuple[type[Exception], ...] = (ValueError, TypeError, OverflowError)
"""Errors caused by the data and not by the disk, so that a retry would fail again."""
_R = TypeVar("_R")


class Session(Protocol):
    """Database connection with `?` as placeholder."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class SqlLog(ABC):
    """Implements `EventLog` with statements that SQLite and PostgreSQL both accept. Subclasses provide
    sessions and classify errors.
    """

    refusals: ClassVar[tuple[type[Exception], ...]]
    """Errors of a database that is temporarily unusable."""
    conflicts: ClassVar[tuple[type[Exception], ...]]
    """Errors of events that can never be written."""

    def __init__(
        self,
        *,
        clock: Clock,
        log: OperatorLog,
        alert: Alert | None = None,
    ) -> None:
        self._alert = alert
        self._lost = set[ChatKey]()
        """Chats with a lost event that no retry could write; kept until operators are told."""
        self._watchers: list[Committed] = []
        self._clock = clock
        self._log = log
        self._pending: list[list[Entry]] = []
        self._waiters: list[tuple[asyncio.Future[None], bool]] = []
        self._writing: asyncio.Task[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="event-log")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="event-log-reader")
        self.trouble = ""
        """Reason why the disk refuses writes; "" while writes succeed."""

    @abstractmethod
    def _writing_session(self) -> AbstractContextManager[Session]:
        """Open a transaction on the writer's thread."""

    @abstractmethod
    def _reading(self, work: Callable[[Any], _R]) -> _R:
        """Return the result of `work` with the reading session, on the session's thread. Raises
        `errors.StorageError`.
        """

    @abstractmethod
    def _again(self, error: Exception) -> bool:
        """Return True if a transaction that failed with this error is retried at once."""

    @abstractmethod
    def _end(self) -> None:
        """Close the database sessions."""

    def _words(self, error: Exception) -> str:
        """Return an error as text for operators, without any of the data."""
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

    @property
    def pending(self) -> int:
        """Return the number of transactions that are not on disk yet."""
        return len(self._pending)

    def _begin(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._drain(), name="event log")

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(0)  # events appended in this step of the event loop join the batch
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
            # There must be no await between the last check for pending events and this line, or an event would be lost.
            self._writing = None

    def _well(self, entries: Sequence[Entry]) -> None:
        if self.trouble:
            self.trouble = ""
            self._log.write("storage", "the log of the chats can be written again")
        while self._lost:
            chat = self._lost.pop()
            if self._alert is not None:
                self._alert(f"lost events of {chat}", sentence("operators.events_lost", chat=chat))
        newest = {entry.event.chat: entry.event.seq for entry in entries}
        for watcher in self._watchers if newest else ():
            watcher(newest)

    def _refused(self, cause: Exception, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        if not self.trouble:
            self._log.write(
                "storage",
                "the disk refuses the log of the chats: nothing new is taken in",
                level="error",
                cause=self._words(cause),
            )
        self.trouble = self._words(cause)
        for waiter, patient in waiters:
            if patient:
                self._waiters.append((waiter, patient))
            elif not waiter.done():
                waiter.set_exception(errors.StorageError(f"the log cannot be written: {self._words(cause)}"))

    # ------------------------------------------------------------ on the writer's thread

    def _write(self, batch: Sequence[Sequence[Entry]]) -> Exception | None:
        """Write appended events in one transaction. If an event can never be written, write each append
        separately, then each chat separately, and drop only that event. Returns the disk's error, or None
        once everything writable is written.
        """
        while True:
            try:
                self._transaction([entry for some in batch for entry in some])
            except self.conflicts as error:
                chats = {entry.event.chat for some in batch for entry in some}
                if len(batch) > 1:
                    return next(filter(None, [self._write([one]) for one in batch]), None)
                if len(chats) > 1:
                    parts = [[one for one in batch[0] if one.event.chat == chat] for chat in chats]
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
                if self._again(error):
                    continue
                return error
            return None

    def _transaction(self, entries: Sequence[Entry]) -> None:
        keys = [
            _clean(key, str(one.event.chat), one.event.seq)
            for one in entries
            for key in keys_of(one.event.data)
        ]
        positions = {str(one.event.chat): one.position for one in entries}
        with self._writing_session() as db:
            db.executemany(APPEND, [_row(one) for one in entries])
            db.executemany(BLANK, [(raw, event.id) for one in entries for event, raw in one.blanks])
            db.executemany(KEY, keys)
            db.executemany(POSITION, [_clean(chat, one.base, one.open) for chat, one in positions.items()])
            for kind, key, value in filter(None, (fact_of(one.event.data) for one in entries)):
                if value is None:
                    db.execute(FORGET, _clean(kind, key))
                else:
                    db.execute(FACT, _clean(kind, key, json.dumps(value, ensure_ascii=False)))

    # ------------------------------------------------------------ reading

    async def read(self, chat: ChatKey, since: int = 0, *, pending: bool = True) -> list[Event]:
        # Copy pending events before reading the disk, so that an event committed in between is in both, not in neither.
        waiting = [one.event for one in self._waiting(chat) if one.event.seq >= since] if pending else []
        found = await self._asked(
            lambda db: [self._event(chat, row) for row in db.execute(READ, (str(chat), since))]
        )
        newest = found[-1].seq if found else since - 1
        return [*found, *(one for one in waiting if one.seq > newest)]

    async def of_kinds(self, chat: ChatKey, kinds: Collection[str], since: float) -> list[Event]:
        waiting = [
            one.event for one in self._waiting(chat) if one.event.kind in kinds and one.event.at >= since
        ]
        sql = OF_KINDS % ", ".join("?" * len(kinds))
        found = await self._asked(
            lambda db: [self._event(chat, row) for row in db.execute(sql, (str(chat), since, *kinds))]
        )
        known = {one.id for one in found}
        return [*found, *(one for one in waiting if one.id not in known)]

    def _event(self, chat: ChatKey, row: tuple[Any, ...]) -> Event:
        name, seq, turn, person, kind, at, data = row
        return Event(name, chat, at, decode(kind, data), turn, person, seq)

    async def after(self, n: int, limit: int) -> list[tuple[int, Event]]:
        return await self._asked(
            lambda db: [
                (number, self._event(ChatKey.parse(chat), tuple(row)))
                for *row, chat, number in db.execute(AFTER, (n, limit))
            ]
        )

    async def chats(self) -> list[ChatKey]:
        rows = await self._asked(lambda db: db.execute("SELECT chat FROM chats").fetchall())
        return [ChatKey.parse(chat) for (chat,) in rows]

    async def naming(self, place: ChatKey, names: Collection[str]) -> list[Event]:
        # This scans all rows: removals are rare, while an index of all ids would slow down every message.
        wanted = [name for name in names if name]
        # Ids occur as JSON strings and, in model messages, as JSON inside a JSON string.
        forms = {name: (f'"{name}"', f'\\"{name}\\"') for name in wanted}
        # Copy pending events before reading the disk, so that an event committed in between is in both, not in neither.
        pending = [
            one.event
            for entries in self._pending
            for one in entries
            if place.chat.contains(one.event.chat)
            and any(one.event.turn == name or any(form in one.raw for form in forms[name]) for name in wanted)
        ]
        tells = " OR ".join(["turn = ? OR instr(data, ?) > 0 OR instr(data, ?) > 0"] * len(wanted)) or "1 = 0"
        below = f"{place.chat}:"
        given = (
            str(place.chat),
            len(below),
            below,
            *(word for name in wanted for word in (name, *forms[name])),
        )
        found = await self._asked(
            lambda db: [
                self._event(ChatKey.parse(chat), tuple(row))
                for *row, chat in db.execute(NAMING % tells, given)
            ]
        )
        known = {one.id for one in found}
        return [*found, *(one for one in pending if one.id not in known)]

    async def cursor(self, export: str) -> int:
        sql = "SELECT value FROM facts WHERE kind = ? AND key = ?"
        row = await self._asked(lambda db: db.execute(sql, (CURSOR, export)).fetchone())
        return 0 if row is None else int(row[0])

    async def move_cursor(self, export: str, n: int) -> None:
        await self._changed(lambda db: db.execute(FACT, (CURSOR, export, str(n))))

    async def _changed(self, work: Callable[[Session], object]) -> None:
        """Run `work` in a separate database transaction."""

        def change() -> None:
            with (
                errors.as_storage_error("the log cannot be written", *self.refusals),
                self._writing_session() as db,
            ):
                work(db)

        await asyncio.get_running_loop().run_in_executor(self._writer, change)

    async def older(self, chat: ChatKey, at: float) -> tuple[int, int]:
        await self.committed(patient=False)
        name = str(chat)
        first, young, end = await self._asked(lambda db: db.execute(OLDER, (name, name, at, name)).fetchone())
        return (first, end if young is None else young) if first is not None else (0, 0)

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        await self._changed(lambda db: [db.execute(one, (str(chat), seq)) for one in DELETES])

    async def position(self, chat: ChatKey) -> Position | None:
        newest = next(iter(list(self._waiting(chat))[-1:]), None)
        if newest is not None:
            return newest.position
        sql = "SELECT base, open FROM chats WHERE chat = ?"
        row = await self._asked(lambda db: db.execute(sql, (str(chat),)).fetchone())
        return None if row is None else Position(*row)

    def _waiting(self, chat: ChatKey) -> Iterator[Entry]:
        return (one for entries in self._pending for one in entries if one.event.chat == chat)

    async def open_chats(self) -> list[ChatKey]:
        rows = await self._asked(
            lambda db: db.execute("SELECT chat FROM chats WHERE open IS NOT NULL").fetchall()
        )
        return [ChatKey.parse(chat) for (chat,) in rows]

    async def spoken_in(self, place: ChatKey, since: float = 0.0) -> dict[ChatKey, float]:
        pending = [one.event for entries in self._pending for one in entries]
        given = (since, str(place), str(place), str(place))
        on_disk = await self._asked(
            lambda db: {ChatKey.parse(chat): at for chat, at in db.execute(SPOKEN_IN, given)}
        )
        found = dict[ChatKey, float]()
        for one in reversed(pending):
            if one.kind == "received" and place.contains(one.chat):
                found.setdefault(one.chat, one.at)
        return found | {chat: at for chat, at in on_disk.items() if chat not in found}

    async def first_words(self, chats: Collection[ChatKey]) -> dict[ChatKey, str]:
        await self.committed(patient=False)
        names = [*map(str, chats)]

        def read(db: Session) -> dict[ChatKey, str]:
            found = dict[ChatKey, str]()
            for some in (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)):
                for chat, raw in db.execute(FIRST_SAID % ", ".join("?" * len(some)), some):
                    if raw is not None and (words := json.loads(raw)["inbound"].get("text")):
                        found[ChatKey.parse(chat)] = words
            return found

        return await self._asked(read)

    async def facts(self) -> dict[tuple[str, str], Json]:
        rows = await self._asked(lambda db: db.execute(FACTS, (CURSOR,)).fetchall())
        return {(kind, key): json.loads(value) for kind, key, value in rows}

    async def newest(self) -> str:
        row = await self._asked(lambda db: db.execute("SELECT coalesce(max(id), '') FROM events").fetchone())
        return str(row[0])

    async def chat_of(self, request: str) -> ChatKey | None:
        row = await self._asked(lambda db: db.execute(CHAT_OF, (request,) * 3).fetchone())
        return None if row is None else ChatKey.parse(row[0])

    async def usage(self, chat: ChatKey) -> ChatStats:
        await self.committed(patient=False)
        return ChatStats(*await self._asked(lambda db: db.execute(USAGE, (str(chat),)).fetchone()))

    async def known(self, keys: Collection[str]) -> bool:
        if not keys:
            return False
        if any(
            key in keys for entries in self._pending for one in entries for key in keys_of(one.event.data)
        ):
            return True
        sql = f"SELECT 1 FROM keys WHERE key IN ({', '.join('?' * len(keys))}) LIMIT 1"  # noqa: S608 - question marks alone
        return await self._asked(lambda db: db.execute(sql, _clean(*keys)).fetchone()) is not None

    async def _asked(self, work: Callable[[Any], _R]) -> _R:
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._reading, work)

    async def close(self) -> None:
        if self._pending:
            self._begin()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=RETRY_SECONDS)
            if self._writing is not None:
                self._writing.cancel()
        for pool in (self._writer, self._reader):
            pool.shutdown()
        self._end()


def _row(entry: Entry) -> tuple[object, ...]:
    one = entry.event
    return _clean(str(one.chat), one.seq, one.id, one.turn, one.person, one.kind, one.at, entry.raw)


def _clean(*values: object) -> tuple[object, ...]:
    """Return values that every database accepts: strings without lone surrogates."""
    return tuple(text.clean(one) if isinstance(one, str) else one for one in values)
