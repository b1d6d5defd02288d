"""Event log in PostgreSQL. Several processes may use the database, but only one of them, the leader, appends events.
Each append checks the number of the current leadership (`epoch`) in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.adapt import Loader

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk
from bot.contracts.environment import Log as OperatorLog
from bot.core.event_log import CONTENT, Alert, EventLog, Session
from bot.storage import jsonl

VERSION = 1
"""Version of the tables. A program refuses tables of a newer version."""
SCHEMA = Path(__file__).with_suffix(".sql").read_text("utf-8")
"""Statements that create the tables. They have no effect on existing tables."""
SETTINGS = """
SET client_min_messages = warning; SET synchronous_commit = on; SET statement_timeout = '30s'; SET lock_timeout = '5s';
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
-- A process that freezes in a transaction, or loses its network, keeps the next one from leading no longer than this.
SET idle_in_transaction_session_timeout = '2s';
"""
_NUL = "\N{REPLACEMENT CHARACTER}"
"""Character that replaces NUL, because text in PostgreSQL cannot contain NUL."""
ERRORS = (psycopg.Error, OSError)
"""Exceptions which mean that the database cannot be used."""
_R = TypeVar("_R")


class _Sum(Loader):
    """Converts NUMERIC values to int. PostgreSQL returns sums of integers as NUMERIC."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


class PostgresSession:
    """A connection to PostgreSQL that accepts SQLite's placeholder `?`. Methods raise `psycopg.Error`."""

    def __init__(self, url: str, *, seconds: int = 5) -> None:
        """Connect to the database. `seconds` is the network timeout."""
        self.db = psycopg.connect(
            url,
            autocommit=True,
            application_name="shipmate",
            connect_timeout=seconds,
            tcp_user_timeout=1_000 * seconds,
            keepalives_idle=seconds,
            keepalives_interval=1,
            keepalives_count=3,
        )
        self.db.adapters.register_loader("numeric", _Sum)
        self.execute(SETTINGS)

    def execute(self, statement: str, given: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        return self.db.execute(_translated(statement), values(given))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        self.db.cursor().executemany(_translated(statement), [values(one) or () for one in rows])

    @contextmanager
    def leading(self, epoch: int | None) -> Iterator[None]:
        """Run the `with` block in a transaction. If `epoch` is no longer the number of the current leadership, roll back
        and raise `errors.StorageError`. If `epoch` is None, check nothing.
        """
        with self.db.pipeline(), self.db.transaction():
            yield
            # Check at the end of the transaction. This needs no extra round trip, and locks the row only during the commit.
            if (
                self.execute("SELECT epoch FROM cluster_leader FOR SHARE").fetchone() != (epoch,)
                and epoch is not None
            ):
                raise errors.StorageError("another process leads")

    @property
    def lost(self) -> bool:
        return self.db.broken or self.db.closed

    def close(self) -> None:
        self.db.close()


def prepared(url: str, *, seconds: int = 5) -> PostgresSession:
    """Connect to a database, and create the tables if they do not exist. Raises `psycopg.Error`, and `errors.StorageError`
    if the tables have a newer version.
    """
    session = PostgresSession(url, seconds=seconds)
    try:
        if not has_tables(session):
            with session.db.transaction():
                lock = "SELECT pg_advisory_xact_lock(hashtext('shipmate tables'), hashtext(current_schema()))"
                session.execute(lock)
                session.execute(SCHEMA)
                session.execute(
                    "INSERT INTO cluster_leader VALUES (1, 0, '', 0, ?) ON CONFLICT DO NOTHING", (VERSION,)
                )
    except (psycopg.Error, errors.StorageError):
        session.close()
        raise
    return session


def has_tables(session: PostgresSession) -> bool:
    """Return True if all tables exist. Raises `errors.StorageError` if the tables have a newer version."""
    if session.execute("SELECT to_regclass('counts_hours') IS NULL").fetchone() == (True,):
        return False
    (version,) = session.execute("SELECT max(version) FROM cluster_leader").fetchone() or (None,)
    if version is not None and version > VERSION:
        raise errors.StorageError(
            f"the log has version {version}, this Shipmate knows versions up to {VERSION}: it was written by a newer one; run that"
        )
    return version is not None


class PostgresLog(EventLog):
    """The event log in the PostgreSQL database at `url`. `epoch` is the number of this process's leadership; None for
    commands, which run while the bot is stopped. Every host exports the log to its own files, so the positions of its
    exports in the log are in the local file `cursors`.
    """

    refusals = (*ERRORS, errors.StorageError)
    conflicts = (*CONTENT, psycopg.IntegrityError, psycopg.DataError)

    def __init__(
        self,
        url: str,
        cursors: Path,
        *,
        epoch: int | None,
        disk: Disk,
        clock: Clock,
        log: OperatorLog,
        alert: Alert | None = None,
    ) -> None:
        super().__init__(clock=clock, log=log, alert=alert)
        self._url = url
        self._cursors = cursors
        self._epoch = epoch
        self._disk = disk
        self._proven = False
        """True once a transaction of the current session has been committed."""

    @contextmanager
    def _writing_session(self) -> Iterator[Session]:
        self._db = self._db or prepared(self._url)
        with self._db.leading(self._epoch):
            yield self._db
        self._proven = True

    def _again(self, error: Exception) -> bool:  # noqa: ARG002 - the session's state decides
        """Return True if a working connection was lost. The transaction is then retried at once in a new session. If
        the first attempt was committed after all, the second attempt changes nothing.
        """
        db, self._db = self._db, None
        again, self._proven = self._proven and db is not None and db.lost, False
        if db is not None:
            db.close()
        return again

    def _reading(self, work: Callable[[PostgresSession], _R]) -> _R:
        fresh = self._read_db is None
        with errors.as_storage_error("the log cannot be read", *ERRORS):
            if self._read_db is None:
                self._read_db = prepared(self._url)
                self._read_db.execute("SET default_transaction_read_only = on")
            try:
                return work(self._read_db)
            except psycopg.Error:
                if fresh or not self._read_db.lost:
                    raise
        self._read_db = None
        return self._reading(work)

    async def cursor(self, export: str) -> int:
        return int((await asyncio.to_thread(self._kept_cursors)).get(export, 0))

    async def move_cursor(self, export: str, n: int) -> None:
        def put() -> None:
            with errors.as_storage_error("the cursor of an export cannot be written"):
                self._disk.replace(self._cursors, jsonl.dumps({**self._kept_cursors(), export: n}))

        await asyncio.to_thread(put)

    def _kept_cursors(self) -> Json:
        return jsonl.loads(self._disk.read(self._cursors)) or {}


@lru_cache(maxsize=512)
def _translated(statement: str) -> sql.SQL:
    return sql.SQL(statement.replace("?", "%s"))


def values(given: Sequence[Any]) -> Sequence[Any] | None:
    """Return a statement's parameters, with NUL characters replaced. If there are none, return None, so that psycopg does not
    interpret `%` in the statement.
    """
    return [one.replace("\0", _NUL) if isinstance(one, str) else one for one in given] or None
