"""The part of a database connection that the journal's statements use: SQLite's own, or one that takes its place."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class Rows(Protocol):
    """The outcome of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Statements are written once, in what SQLite and PostgreSQL both understand: `?` and `:name` stand for values, `rowid`
    is the order in which rows came, errors are those of `sqlite3`.
    """

    @property
    def in_transaction(self) -> bool: ...
    @property
    def total_changes(self) -> int:
        """Rows that were changed since it was opened."""
        ...

    def execute(self, sql: str, parameters: Any = ..., /) -> Rows: ...
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Rows: ...
    def close(self) -> None: ...


def close(db: Connection | None) -> None:
    if db is not None:
        with contextlib.suppress(sqlite3.Error):  # what it may complain about has been told
            db.close()
