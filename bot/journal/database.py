"""One SQLite file, one thread, one transaction a batch."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot import errors
from bot.batch import Batcher
from bot.contracts import Clock, Log
from bot.journal import schema

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SUSPECT = {*_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_SIDES = ("", "-wal", "-shm")

Work = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """`work` runs inside the batch's transaction, in a savepoint of its own.

    Where the disk failed in the middle of a commit, nobody knows what became of it; `undo` then runs before
    anything else does, so that what was refused is not half there.
    """

    work: Work
    undo: Work | None = None


class Database:
    """A file that is opened at the first operation, and again after the disk has failed."""

    def __init__(self, path: Path, *, clock: Clock, log: Log, busy_seconds: float = 5.0) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._busy_seconds = busy_seconds
        self._db: sqlite3.Connection | None = None
        self._undo: list[Work] = []
        self._batcher: Batcher[Operation | None, Any] = Batcher("journal", self._batch)
        self.trouble = ""
        """The last error, until a batch succeeds again."""

    def run(self, work: Work, *, undo: Work | None = None, hurry: bool = True) -> Future[Any]:
        """Queue `work` for the writer's thread; gives its result once it is on disk.

        Gives `errors.StorageError` where it could not be written; nothing of it is on disk then.
        """
        return self._batcher.put(Operation(work, undo), hurry=hurry)

    def read(self, work: Work) -> Future[Any]:
        """Queue `work` that changes nothing. It sees everything that was queued before it."""
        return self._batcher.put(Operation(work))

    async def close(self) -> None:
        if self._db is not None:
            await self._batcher.put(None)
        await self._batcher.close()

    # Everything below runs on the writer's thread.

    def _batch(self, batch: list[Operation | None]) -> Sequence[Any]:
        operations = [operation for operation in batch if operation is not None]
        try:
            results = iter(self._carry_out(self._opened(), operations) if operations else [])
        except sqlite3.Error as error:
            results = iter([self._failed(error, operations)] * len(operations))
        except OSError as error:
            results = iter([self._told(f"{error}")] * len(operations))
        except errors.StorageError as error:
            results = iter([self._told(str(error))] * len(operations))
        answers = [next(results) if operation is not None else None for operation in batch]
        if len(operations) < len(batch):
            self._close()
        return answers

    def _carry_out(self, db: sqlite3.Connection, operations: Sequence[Operation]) -> list[Any]:
        changes = db.total_changes
        try:
            results = self._transaction(db, operations)
        except sqlite3.Error as error:
            if len(operations) == 1 or _code(error) in {*_SUSPECT, sqlite3.SQLITE_BUSY}:
                raise
        else:
            if db.total_changes > changes and not any(isinstance(r, errors.StorageError) for r in results):
                self.trouble = ""
            return results
        # One that does not fit (a full disk, say) must not take the others down with it.
        return [self._alone(db, operation) for operation in operations]

    def _alone(self, db: sqlite3.Connection, operation: Operation) -> Any:
        try:
            return self._transaction(db, [operation])[0]
        except sqlite3.Error as error:
            return self._failed(error, [operation])

    def _transaction(self, db: sqlite3.Connection, operations: Sequence[Operation]) -> list[Any]:
        db.execute("BEGIN IMMEDIATE")
        try:
            results = [self._guarded(db, operation) for operation in operations]
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        return results

    def _guarded(self, db: sqlite3.Connection, operation: Operation) -> Any:
        db.execute("SAVEPOINT operation")
        try:
            result = operation.work(db)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if not db.in_transaction or _code(error) in _SUSPECT:
                raise
            db.execute("ROLLBACK TO operation")
            result = self._told(f"{error}")
        db.execute("RELEASE operation")
        return result

    def _failed(self, error: sqlite3.Error, operations: Sequence[Operation]) -> errors.StorageError:
        if _code(error) in _SUSPECT:
            # Not trusted any further: opened anew and checked before the next operation.
            self._undo.extend(operation.undo for operation in operations if operation.undo is not None)
            self._close()
        return self._told(f"{error}")

    def _told(self, cause: str) -> errors.StorageError:
        text = f"the journal cannot be written: {cause}"
        self.trouble = text
        self._log.write("storage", text, level="error", file=self._path.name)
        return errors.StorageError(text)

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):  # what it may complain about has been told
                db.close()

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            try:
                self._db = self._open()
            except sqlite3.Error as error:
                if _code(error) not in _CORRUPT:
                    raise
                self._quarantine(f"{error}")
                self._db = self._open()
        if self._undo:
            for result in self._transaction(self._db, [Operation(undo) for undo in self._undo]):
                if isinstance(result, errors.StorageError):
                    raise result
            self._undo.clear()
        return self._db

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its side files the mode of the main one.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(
            self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _damaged(str(verdict))
            schema.migrate(db)
        except (sqlite3.Error, errors.StorageError):
            db.close()
            raise
        return db

    def _quarantine(self, cause: str) -> None:
        ts = int(self._clock.now() * 1000)
        while (target := self._path.with_name(f"{self._path.name}.corrupt-{ts}")).exists():
            ts += 1
        for side in _SIDES:
            source = self._path.with_name(self._path.name + side)
            if source.exists():
                source.replace(target.with_name(target.name + side))
        self._log.write(
            "storage",
            f"{self._path.name} is damaged ({cause}); set aside as {target.name}, beginning with an empty one: "
            "what was taken in and not yet answered is in there",
            level="error",
            file=self._path.name,
            quarantine=target.name,
        )


def _code(error: Exception) -> int | None:
    """The primary result code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if code is not None else None


def _damaged(verdict: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(verdict)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
