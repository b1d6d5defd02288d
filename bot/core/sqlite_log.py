"""Event log in an SQLite database file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

from bot import errors
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.event_log import CONTENT, CURSOR, FACT, Alert, EventLog, Session
from bot.resources import FULL, DiskReserve

FILE = "shipmate.db"
NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""SQLite error codes for a full disk or an exhausted quota."""
VERSION = 1
"""Version of the schema (`PRAGMA user_version`)."""
LOST = "log_lost"
"""`kind` of a row of the table `facts`. The row records that the log was `damaged` or `gone` when a process started."""
SCHEMA = Path(__file__).with_suffix(".sql").read_text("utf-8")
"""Statements that create the tables. They have no effect on existing tables."""
PRAGMAS = """
PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA secure_delete = on; PRAGMA busy_timeout = 5000;
PRAGMA journal_size_limit = 67108864;
"""
_R = TypeVar("_R")


class SqliteLog(EventLog):
    """The event log in the database file `path`. A missing file is created. If `mend` is True, a damaged file is renamed,
    and its readable rows are copied to a new file. Only the process that writes the log may use `mend`.
    """

    refusals = (sqlite3.Error, OSError)
    conflicts = (
        *CONTENT,
        sqlite3.IntegrityError,
        sqlite3.DataError,
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
    )

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        log: OperatorLog,
        reserve: DiskReserve | None = None,
        alert: Alert | None = None,
        mend: bool = False,
    ) -> None:
        super().__init__(clock=clock, log=log, alert=alert)
        self._path = path
        self._mend = mend
        self._reserve = reserve

    @contextmanager
    def _writing_session(self) -> Iterator[sqlite3.Connection]:
        db = self._opened()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            new = not self._path.exists() or not self._path.stat().st_size
            gone = self._mend and new and any((self._path.parent / "chats").glob("*.jsonl"))
            why = "" if new or not self._mend else _check(self._path, "quick_check", "rw")
            old = None
            if why or gone:
                old = self._path.with_name(f"{self._path.name}.corrupt-{int(self._clock.now())}")
                for suffix in ("", "-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        self._path.with_name(self._path.name + suffix).replace(
                            old.with_name(old.name + suffix)
                        )
                self._log.write(
                    "storage", "the log of the chats is damaged", level="error", cause=why or "gone"
                )
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            db.executescript(f"{PRAGMAS} BEGIN IMMEDIATE; {SCHEMA}")
            if old is not None:
                _salvage(old, db)
                found = json.dumps({"what": "damaged" if why else "gone", "at": self._clock.now()})
                db.execute(FACT, (LOST, "log", found))
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.execute("COMMIT")
            self._db = db
        return cast("sqlite3.Connection", self._db)

    async def delete_before(self, chat: ChatKey, seq: int) -> None:
        await super().delete_before(chat, seq)
        # Without a checkpoint, the deleted text would remain in the write-ahead log.
        checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
        await asyncio.get_running_loop().run_in_executor(
            self._writer, lambda: self._opened().execute(checkpoint).fetchone()
        )

    def _again(self, error: Exception) -> bool:
        full = getattr(error, "sqlite_errorcode", 0) in NO_ROOM or getattr(error, "errno", None) in FULL
        return full and self._reserve is not None and self._reserve.give()

    def _open(self) -> None:
        """Open the database for writing. Runs on the writer's thread. If the disk is full, delete the reserve file and retry."""
        while self._db is None:
            try:
                self._opened()
            except self.refusals as error:
                if not self._again(error):
                    raise

    def _reading(self, work: Callable[[sqlite3.Connection], _R]) -> _R:
        try:
            if self._read_db is None:
                if self._mend or not self._path.exists():
                    self._writer.submit(self._open).result()
                self._read_db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                self._read_db.execute("PRAGMA query_only = 1")
            return work(self._read_db)
        except (sqlite3.Error, OSError) as error:
            raise errors.StorageError(f"the log cannot be read: {error}") from None


@contextmanager
def session(home: Path, url: str | None, words: str, *, write: bool = False) -> Iterator[Session]:
    """Open the log in the folder `home` or in the PostgreSQL database `url`. A missing file is replaced by an empty log in
    memory. Raises `errors.StorageError` with a message that begins with `words`.
    """
    if url is not None:
        from bot.core import postgres_log  # needs the optional PostgreSQL library

        with (
            errors.as_storage_error(words, *postgres_log.ERRORS),
            contextlib.closing(postgres_log.prepared(url)) as session,
        ):
            session.execute(f"SET default_transaction_read_only = {'off' if write else 'on'}")
            yield session
        return
    path = home / FILE
    mode = ("rw" if write else "ro") if path.is_file() else "memory"
    address = f"{path.absolute().as_uri()}?mode={mode}"
    with (
        errors.as_storage_error(words, sqlite3.Error, OSError),
        contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=30.0)) as db,
    ):
        db.executescript(SCHEMA if mode == "memory" else "PRAGMA secure_delete = on")
        yield db


def _check(path: Path, pragma: str, mode: str = "ro") -> str:
    """Check a database. With `mode="rw"`, first roll back a transaction that a killed process left incomplete. Return a
    description of the first damage; "" if none is found. Raises `sqlite3.Error` if the file cannot be read, and
    `errors.StorageError` if the event log has a newer version.
    """
    try:
        address = f"{path.absolute().as_uri()}?mode={mode}"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30.0)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if path.name == FILE and version > VERSION:
                raise errors.StorageError(
                    f"the log has version {version}, which is that of a newer one; run that, or put a backup in its place"
                )
            (found,) = db.execute(f"PRAGMA {pragma}(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in {
            sqlite3.SQLITE_CORRUPT,
            sqlite3.SQLITE_NOTADB,
        }:
            raise
        return str(error)
    return "" if found == "ok" else str(found)


def damage(path: Path) -> str:
    """Check a whole database. Return a description of the first damage, or of a newer version; "" if the database is intact.
    Blocks on disk access.
    """
    try:
        return _check(path, "integrity_check")
    except (sqlite3.Error, errors.StorageError) as error:
        return str(error)


def _salvage(path: Path, db: sqlite3.Connection) -> None:
    """Copy every readable row of the damaged database `path` to the new database `db`. Triggers are disabled during the
    copying, because they would count copied events a second time.
    """
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    if path.exists():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as old:
            old.text_factory = lambda raw: raw.decode(errors="replace")
            # Without this setting, SQLite reads nothing from a truncated file.
            old.execute("PRAGMA writable_schema = ON")
            for table in tables:
                for row in _rows(old, table):
                    db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - own names
    db.execute(
        "INSERT OR IGNORE INTO chats SELECT chat, min(seq), min(seq) FROM events GROUP BY chat"
    )  # a chat without a stored position is read from its first event
    # The new database numbers events anew, so every export starts from the beginning.
    db.execute("DELETE FROM facts WHERE kind = ?", (CURSOR,))
    for _, statement in triggers:
        db.execute(statement)


def _rows(old: sqlite3.Connection, table: str) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a damaged table, first from its beginning up to the damage, then from its end up to the damage."""
    for order in ("ASC", "DESC"):
        try:
            yield from old.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY 1 {order}")  # noqa: S608 - own names
        except sqlite3.DatabaseError:
            continue
        return
