"""Base of the journal's ports: statements on the shared file, and JSON columns."""

from __future__ import annotations

import json
import sqlite3
from asyncio import Future
from collections.abc import Awaitable, Sequence
from typing import Any

from bot import errors, text
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey
from bot.journal.database import Database, Work, Writer


class JournalTable:
    """One port of the journal over the shared file.

    A change is queued when its method is called, not when it is awaited: changes reach the disk in the order of the
    calls, also those that no caller awaits. That is why such methods are plain functions that return an awaitable.
    """

    def __init__(self, base: Database, *, clock: Clock, log: Log, writer: Writer | None = None) -> None:
        self._base = base
        self._writer = writer or base
        self._clock = clock
        self._log = log

    def _change(self, statement: str, values: Sequence[object], *, hurry: bool = True) -> Future[int]:
        """One statement; gives the number of rows that it changed."""
        bound = clean(values)
        return self._writer.run(lambda db: int(db.execute(statement, bound).rowcount), hurry=hurry)

    async def _rows(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        bound = clean(values)
        rows: list[tuple[Any, ...]] = await self._base.read(
            lambda db: db.execute(statement, bound).fetchall()
        )
        return rows

    async def _row(self, statement: str, values: Sequence[object]) -> tuple[Any, ...] | None:
        rows = await self._rows(statement, values)
        return rows[0] if rows else None


def transition(statement: str, values: Sequence[object], state: str, looked_up: str, name: str) -> Work:
    """Work that takes a row to `state` by a statement that names the states before it. Raises `errors.IllegalTransition` where the
    row is in none of them, or is not there; `looked_up` gives its state.

    It may run again after a commit of unknown outcome: then the row may be beyond that state, and it changes nothing.
    """
    bound, key = clean(values), clean((name,))
    made = False

    def work(db: sqlite3.Connection) -> None:
        nonlocal made
        if db.execute(statement, bound).rowcount:
            made = True
        elif not made:
            row = db.execute(looked_up, key).fetchone()
            raise errors.IllegalTransition(
                f"{name} is {row[0] if row else 'missing'} and cannot become {state}"
            )

    return work


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
