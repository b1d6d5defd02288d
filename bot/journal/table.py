"""Base of the journal's ports: statements on the shared file, and JSON columns."""

from __future__ import annotations

import abc
import json
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from bot import errors, text
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey
from bot.journal.connection import Connection, Rows
from bot.journal.database import Database, Writer
from bot.journal.status_cache import StatusCache

Status = TypeVar("Status")


class JournalTable:
    """One port of the journal over the shared file.

    A change is queued when its method is called, not when it is awaited: changes reach the disk in the order of the
    calls, also those that no caller awaits. That is why such methods are plain functions that return an awaitable.
    """

    def __init__(self, base: Database, *, clock: Clock, log: Log, writer: Writer | None = None) -> None:
        self.base = base
        self._writer = writer or base
        self._clock = clock
        self._log = log

    def _change(self, statement: str, values: Sequence[object], *, hurry: bool = True) -> Future[None]:
        """One statement."""
        bound = clean(values)

        def work(db: Connection) -> None:
            db.execute(statement, bound)

        return self._writer.run(work, hurry=hurry)

    def _count(self, statement: str, values: Sequence[object]) -> Future[int]:
        """One statement; gives the number of rows that it changed."""
        bound = clean(values)
        return self._writer.run(lambda db: db.execute(statement, bound).rowcount)

    async def _rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        bound = clean(values)
        rows: list[tuple[Any, ...]] = await self.base.read(lambda db: db.execute(statement, bound).fetchall)
        return rows

    async def _row(self, statement: str, values: Sequence[object]) -> tuple[Any, ...] | None:
        rows = await self._rows(statement, values)
        return rows[0] if rows else None


class Moves(abc.ABC, Generic[Status]):
    """Transitions of rows, by their ids, as a part of one operation. That may run again after a commit of unknown outcome:
    then one that it has made before is no trouble, whatever became of its row since. A row that is missing is trouble, unless
    they are made only `where_begun`. Without `known` each row is asked for.
    """

    def __init__(
        self,
        moves: Mapping[str, Callable[[Status], Status]],
        now: float,
        *,
        known: StatusCache | None = None,
        where_begun: bool = False,
    ) -> None:
        self._moves: dict[str, Callable[[Status], Status]] = {text.clean(name): moves[name] for name in moves}
        self._now = now
        self._known = StatusCache() if known is None else known
        self._where_begun = where_begun
        self._made: set[str] = set()

    def make(self, db: Connection) -> list[str]:
        """Make each that the state of its row allows; the troubles with the others."""
        return make(db, self)

    def ask(self, db: Connection) -> dict[str, Rows]:
        """The rows whose states are not known, as they are, to be read before any of them is changed."""
        return {name: self._ask(db, name) for name in self._moves if (type(self), name) not in self._known}

    def make_from(self, db: Connection, asked: Mapping[str, list[Any]]) -> list[str]:
        """As `make`, from what `ask` has found."""
        troubles: list[str] = []
        for name, move in self._moves.items():
            row = (type(self), name)
            before: Status | None = self._status(asked[name]) if name in asked else self._known.get(row)
            if before is None:
                troubles += [] if self._where_begun else [f"{name} is missing"]
                continue
            try:
                after = move(before)
            except errors.IllegalTransition as error:
                troubles += [] if name in self._made else [f"{name}: {error}"]
                continue
            self._made.add(name)
            if after != before:
                self._write(db, name, before, after)
            self._known.keep(row, after)
        return troubles

    @abc.abstractmethod
    def _ask(self, db: Connection, name: str) -> Rows: ...
    @abc.abstractmethod
    def _status(self, rows: list[Any]) -> Status | None: ...
    @abc.abstractmethod
    def _write(self, db: Connection, name: str, before: Status, after: Status) -> None: ...


def make(db: Connection, *moves: Moves[Any]) -> list[str]:
    """Make several, of rows that are asked for together: a server is a long way off."""
    asked = [one.ask(db) for one in moves]
    found = [{name: rows.fetchall() for name, rows in same.items()} for same in asked]
    return [trouble for one, rows in zip(moves, found, strict=True) for trouble in one.make_from(db, rows)]


def illegal(troubles: Iterable[str]) -> errors.IllegalTransition | None:
    told = "; ".join(filter(None, troubles))
    return errors.IllegalTransition(told) if told else None


def states(*names: str) -> str:
    """The names of states, as a list in a statement. An index that lists the same ones counts only in the same order."""
    return ", ".join(f"'{name}'" for name in names)


def clean(values: Sequence[object]) -> list[object]:
    """The values with every text free of what UTF-8 cannot carry."""
    return [text.clean(value) if isinstance(value, str) else value for value in values]


def dumps(value: Any) -> str:
    return text.clean(json.dumps(value, ensure_ascii=False))


def loads(raw: str | None) -> Any:
    """None also where the disk has damaged it."""
    try:
        return None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return None


def read_key(raw: str) -> ChatKey | None:
    """None where the disk has damaged it."""
    try:
        return ChatKey.parse(raw)
    except errors.IdentityInvalid:
        return None


async def done(change: Awaitable[object]) -> None:
    await change


async def held(change: Awaitable[object]) -> bool:
    return bool(await change)
