"""The journal in PostgreSQL, by the statements that are written for SQLite.

One session writes, and holds an advisory lock for as long as it lives: no other process writes meanwhile, and a session whose
last commit has an unknown outcome is over before the next one looks.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.leadership import Leadership
from bot.disk_reserve import DiskReserve
from bot.journal import file, schema
from bot.journal.connection import Connection, Rows, close
from bot.journal.database import Database, ReadOnly
from bot.journal.sqlite import SqlJournal
from bot.journal.view import JournalView

SESSION = """
    SET client_min_messages = warning;
    SET synchronous_commit = on;
    SET statement_timeout = '30s';
    SET idle_in_transaction_session_timeout = '30s';
    -- The server finds out that this host is gone.
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3"""
JOURNAL_LOCK, FILES_LOCK = "shipmate", "shipmate files"
"""The names of the locks of the sessions that write: the journal, and files that hosts share."""
LOCKED = f"""locktype = 'advisory' AND granted
    AND classid IN ((hashtext('{JOURNAL_LOCK}')::bigint & 4294967295)::oid,
        (hashtext('{FILES_LOCK}')::bigint & 4294967295)::oid)
    AND objid = (hashtext(current_schema())::bigint & 4294967295)::oid
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
"""The condition by which `pg_locks` has the sessions that write."""
_BUSY = {"55P03", "57014", "40001", "40P01"}
"""A lock or an answer took too long, or others were in the way: the session is well."""
_TYPES = {"TEXT": 'TEXT COLLATE "C"', "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA", "INTEGER": "BIGINT"}
_VALUE = re.compile(r"'[^']*'|\?|(?<!:):([a-z_]+)|%")
_MOST_SENT = 50
"""Statements whose outcome is not known yet: their values are in memory."""
_NUL = "\N{REPLACEMENT CHARACTER}"
"""In the place of the one letter that PostgreSQL's texts cannot have."""


class PostgresJournal(SqlJournal):
    """The journal in the schema that connections to `url` begin in, which is its own. Only the leader of `leadership` opens it."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        log: Log,
        busy_seconds: float = file.BUSY_SECONDS,
        reserve: DiskReserve | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        base = PostgresDatabase(
            url, clock=clock, log=log, busy_seconds=busy_seconds, reserve=reserve, leadership=leadership
        )
        super().__init__(base, clock=clock, log=log)


class PostgresDatabase(Database):
    """The journal's tables in PostgreSQL."""

    far = True

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        log: Log,
        busy_seconds: float = file.BUSY_SECONDS,
        reserve: DiskReserve | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        super().__init__("postgresql", clock=clock, log=log, reserve=reserve)
        self._url = url
        self._leadership = leadership
        self._busy_seconds = busy_seconds
        self._uncommitted = False

    def _attempt(self, operations: Any) -> Any:
        self._uncommitted = True
        return super()._attempt(operations)

    def _commit(self, db: Connection, operations: Any) -> None:
        self._uncommitted = False
        super()._commit(db, operations)

    def _rolled_back(self, db: Connection) -> bool:
        self._uncommitted = db.in_transaction  # a statement that went out with it was refused
        return self._uncommitted

    def _again(self, error: Exception) -> bool:
        """Once, in a new session, as long as nothing of the batch can have been committed."""
        again, self._uncommitted = self._uncommitted, False
        return again and file.suspect(error)

    def _may_fit(self, error: Exception) -> bool:  # noqa: ARG002
        return False  # what this disk has in reserve is none of the server's

    def _connect(self) -> Connection:
        return connect(self._url, self._busy_seconds, self._leadership)

    def _connect_to_read(self) -> Connection:
        db = PostgresConnection(self._url)
        db.execute("SET default_transaction_read_only = on")
        return db


class ReadOnlyPostgres(ReadOnly, PostgresDatabase):
    """The same where another process writes it."""


def view(url: str, *, clock: Clock, log: Log) -> JournalView:
    """The journal beside the process that has it."""
    base = ReadOnlyPostgres(url, clock=clock, log=log)
    return JournalView(base, clock=clock, log=log)


class PostgresConnection:
    """A session of psycopg as `connection.Connection`.

    From BEGIN to COMMIT, or to the first savepoint, nothing is waited for but what is asked for: a message has thirty statements,
    and each way to the server and back costs the thread its turn. So what the server refuses may be told by a later statement of
    the transaction. After a COMMIT that was refused for that it is still `in_transaction`.
    """

    def __init__(self, url: str, *, seconds: int = 5) -> None:
        """`seconds` is for how long a network may be silent, about."""
        with _as_sqlite():
            self._db = psycopg.connect(
                url,
                autocommit=True,
                application_name="shipmate",
                connect_timeout=seconds,
                tcp_user_timeout=1_000 * seconds,
                keepalives_idle=seconds,
                keepalives_interval=1,
                keepalives_count=3,
            )
        self.total_changes = 0
        self._pipeline: psycopg.Pipeline | None = None
        self._leave = contextlib.ExitStack()
        self._sent: list[psycopg.Cursor[Any]] = []

    @property
    def in_transaction(self) -> bool:
        status = self._db.info.transaction_status
        return self._pipeline is not None or status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}

    def execute(self, statement: str, parameters: Any = (), /) -> Rows:
        if statement in {"BEGIN", "BEGIN IMMEDIATE"}:
            self._begin_pipeline()
        elif statement == "ROLLBACK":
            with contextlib.suppress(sqlite3.Error):  # it was told, or is of no interest any more
                self._end_pipeline()
        elif statement.startswith("SAVEPOINT"):
            self._end_pipeline()
        with _as_sqlite(self._db):
            cursor = self._db.execute(_translated(statement, named=bool(parameters)), _values(parameters))
        if statement == "COMMIT":
            self._end_pipeline()
        return self._counted(cursor)

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> Rows:
        cursor = self._db.cursor()
        if rows := [_values(row) for row in parameters]:
            with _as_sqlite(self._db):
                cursor.executemany(_translated(statement, named=True), rows)
        return self._counted(cursor)

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._end_pipeline()
        with _as_sqlite():
            self._db.close()

    def wait(self) -> None:
        """Wait for the outcome of all that was sent. Raises `sqlite3.Error`."""
        if self._pipeline is not None:
            with _as_sqlite(self._db):
                self._pipeline.sync()
            self._count_sent()

    def _begin_pipeline(self) -> None:
        with _as_sqlite(self._db):
            self._pipeline = self._leave.enter_context(self._db.pipeline())

    def _end_pipeline(self) -> None:
        """The same, and wait for each statement from now on."""
        self._pipeline = None
        with _as_sqlite(self._db):
            self._leave.close()
        self._count_sent()

    def _count_sent(self) -> None:
        sent, self._sent = self._sent, []
        self.total_changes += sum(
            one.rowcount for one in sent if one.description is None and one.rowcount > 0
        )

    def _counted(self, cursor: psycopg.Cursor[Any]) -> Rows:
        if self._pipeline is not None:
            self._sent.append(cursor)
            if len(self._sent) == _MOST_SENT:
                self.wait()
            return _Sent(self, cursor)
        if cursor.description is None:
            self.total_changes += max(cursor.rowcount, 0)
        return cursor


@dataclass(frozen=True, slots=True)
class _Sent:
    """The outcome of a statement, which is waited for where it is asked for."""

    db: PostgresConnection
    cursor: psycopg.Cursor[Any]

    @property
    def rowcount(self) -> int:
        if self.cursor.rowcount < 0:
            self.db.wait()
        return self.cursor.rowcount

    def fetchone(self) -> Any:
        with _as_sqlite(self.cursor.connection):
            return self.cursor.fetchone()

    def fetchall(self) -> list[Any]:
        with _as_sqlite(self.cursor.connection):
            return self.cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())


def connect(
    url: str, busy_seconds: float = file.BUSY_SECONDS, leadership: Leadership | None = None
) -> PostgresConnection:
    """A session that may write, which is one at a time. Raises `sqlite3.Error` and `errors.StorageError`."""
    db = PostgresConnection(url)
    try:
        db.execute(SESSION)
        held(db, JOURNAL_LOCK, leadership, busy_seconds)
        migrate(db)
    except (sqlite3.Error, errors.StorageError):
        close(db)
        raise
    return db


def held(
    db: Connection, lock: str, leadership: Leadership | None, busy_seconds: float = file.BUSY_SECONDS
) -> None:
    """Hold a lock for as long as a session lives. Raises `sqlite3.Error`, and `errors.StorageError` where another process has it or
    leads.
    """
    _must_lead(db, leadership)
    db.execute(f"SET lock_timeout = '{busy_seconds}s'")
    try:
        db.execute("SELECT pg_advisory_lock(hashtext(?), hashtext(current_schema()))", (lock,))
    except sqlite3.Error as error:
        if not file.busy(error):
            raise
        raise errors.StorageError("another process has the journal of this database open") from error
    # Whoever took over has ended the session before this one, and holds the lock as long as it writes.
    _must_lead(db, leadership)


def _must_lead(db: Connection, leadership: Leadership | None) -> None:
    if leadership is not None and _first(db, "SELECT epoch FROM cluster_leader") != leadership.epoch:
        raise errors.StorageError("another process leads")


def examine(url: str) -> tuple[str, str]:
    """The version of the server, and what is wrong with it; "" where nothing is. Raises `errors.StorageError`."""
    with (
        errors.as_storage_error("the database cannot be used", sqlite3.Error),
        contextlib.closing(PostgresConnection(url)) as db,
    ):
        names = ("server_version", "fsync", "full_page_writes")
        version, *kept = (_first(db, f"SHOW {name}") for name in names)
        found = _first(db, "SELECT to_regclass('journal_version') IS NOT NULL")
        number = _first(db, "SELECT max(version) FROM journal_version") if found else 0
    why = _refusal(number)
    if not why and kept != ["on", "on"]:
        why = "fsync or full_page_writes is off, so a crash may lose what was taken in"
    return version, why


def _first(db: Connection, statement: str) -> Any:
    return db.execute(statement).fetchone()[0]


def _refusal(version: int | None) -> str:
    return schema.refusal(version or 0, what="its tables")


def must_know(db: Connection) -> None:
    """Raise `errors.StorageError` where a version has written the tables that is not read."""
    if not _first(db, "SELECT to_regclass('journal_version') IS NOT NULL"):
        return
    if why := _refusal(_first(db, "SELECT max(version) FROM journal_version")):
        raise errors.StorageError(why)


def migrate(db: Connection) -> None:
    """Make the tables, or bring them up to date, wholly or not at all. Raises `errors.StorageError` as `must_know` does."""
    db.execute("BEGIN")
    db.execute("CREATE TABLE IF NOT EXISTS journal_version (version INTEGER PRIMARY KEY)")
    must_know(db)
    version = _first(db, "SELECT max(version) FROM journal_version")
    if version is None:
        db.execute(
            "CREATE OR REPLACE FUNCTION instr(text, text) RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT strpos($1, $2)'"
        )
        for statement in schema.statements():
            db.execute(statement)
        db.execute("INSERT INTO lost VALUES (1, 'gone', NULL)")
        db.execute("INSERT INTO journal_version VALUES (?)", (schema.NEWEST,))
    for step in schema.LATER[(version or schema.NEWEST) - schema.BASELINE :]:
        step(db)
    db.execute("UPDATE journal_version SET version = ?", (schema.NEWEST,))
    db.execute("COMMIT")


@lru_cache(maxsize=512)
def _translated(statement: str, *, named: bool) -> sql.SQL:
    """A statement in PostgreSQL's words. Without values psycopg reads no `%`."""
    if statement == "BEGIN IMMEDIATE":
        statement = "BEGIN"
    if statement.startswith(("CREATE TABLE", "ALTER TABLE")):
        statement = _described(statement)
    if named:
        statement = _VALUE.sub(_placeholder, statement)
    return sql.SQL(statement)


def _placeholder(found: re.Match[str]) -> str:
    if found[1]:
        return f"%({found[1]})s"
    return "%s" if found[0] == "?" else found[0].replace("%", "%%")


def _described(statement: str) -> str:
    """Types are written by their names in capitals; a table that has row numbers in SQLite gets a column of that name."""
    numbered = statement.startswith("CREATE TABLE") and not re.search(
        r"WITHOUT ROWID|INTEGER PRIMARY KEY", statement
    )
    statement = re.sub(r"\b(TEXT|REAL|BLOB|INTEGER)\b", lambda found: _TYPES[found[1]], statement)
    statement = statement.replace("WITHOUT ROWID", "").rstrip()
    if numbered:
        statement = f"{statement.removesuffix(')')}, rowid BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE)"
    return statement


def _values(parameters: Any) -> Any:
    """None where there are none: then psycopg leaves the statement as it is."""
    if isinstance(parameters, Mapping):
        return {name: value(one) for name, one in parameters.items()}
    return [value(one) for one in parameters] or None


def value(given: object) -> object:
    """A value as PostgreSQL has it."""
    if isinstance(given, bool):
        return int(given)
    return given.replace("\0", _NUL) if isinstance(given, str) and "\0" in given else given


@contextlib.contextmanager
def _as_sqlite(db: psycopg.Connection[Any] | None = None) -> Iterator[None]:
    """Raise what psycopg raises as the class of `sqlite3` that PEP 249 gives the same name."""
    try:
        yield
    except psycopg.Error as error:
        # Its other lines show what was to be written, and that may be what somebody has said.
        words = " ".join((error.diag.message_primary or str(error)).split()) or type(error).__name__
        kind = next(
            getattr(sqlite3, one.__name__) for one in type(error).__mro__ if hasattr(sqlite3, one.__name__)
        )
        gone = db is None or db.broken or db.closed
        code = sqlite3.SQLITE_IOERR if gone else sqlite3.SQLITE_ERROR
        if error.sqlstate in _BUSY and not gone:
            kind, code = sqlite3.OperationalError, sqlite3.SQLITE_BUSY
        elif gone:
            kind = sqlite3.OperationalError
        found = kind(words)
        found.sqlite_errorcode = code
        raise found from None
