"""One SQLite file, one thread, one transaction a batch."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot import errors
from bot.batch import Batcher
from bot.contracts.environment import Clock, Log
from bot.contracts.journal import Lost
from bot.disk_reserve import DiskReserve
from bot.journal import file, salvage, schema

Work = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """`work` runs inside the batch's transaction, in a savepoint of its own.

    A failed commit has an unknown outcome; `undo` then runs before anything else, so that no refused change stays half
    done. An operation that only `reads` is answered even when nothing can be written; a `new` one is refused on a full
    disk, so that the reserve is left to work under way.
    """

    work: Work
    undo: Work | None = None
    reads: bool = False
    new: bool = False


class _Refused(errors.StorageError):
    """One operation that can never be written, on a disk that is well."""


class Database:
    """A file that is opened at the first operation, and again, checked, after the disk has failed.

    Beside the writer's connection there is one that only reads. It keeps SQLite's view of what was committed
    while the writer's is given up, and answers as long as nothing can be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        log: Log,
        busy_seconds: float = 5.0,
        reserve: DiskReserve | None = None,
    ) -> None:
        self._path = path
        self._reserve = reserve or DiskReserve(None, log)
        self._clock = clock
        self._log = log
        self._busy_seconds = busy_seconds
        self._db: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._check = file.WHOLE
        self._undo: list[Work] = []
        self._batcher: Batcher[Operation | None, Any] = Batcher("journal", self._batch)
        self.trouble = ""
        """What is wrong with the disk, until a change reaches it again."""
        self._damaged = False
        """Whether a loss was found that is not on file yet."""
        self.lost: Lost | None = None
        """As `contracts.journal.Journal.lost`."""

    def run(
        self, work: Work, *, undo: Work | None = None, hurry: bool = True, new: bool = False
    ) -> Future[Any]:
        """Queue `work` for the writer's thread; gives its result once it is on disk.

        Gives `errors.StorageError` where it could not be written; nothing of it is on disk then.
        """
        return self._batcher.put(Operation(work, undo, new=new), hurry=hurry)

    def read(self, work: Work) -> Future[Any]:
        """Queue `work` that changes nothing. It sees everything that was queued before it."""
        return self._batcher.put(Operation(work, reads=True))

    async def close(self) -> None:
        if self._db is not None or self._reader is not None:
            await self._batcher.put(None)
        await self._batcher.close()

    # Everything below runs on the writer's thread.

    def _batch(self, batch: list[Operation | None]) -> Sequence[Any]:
        operations = [operation for operation in batch if operation is not None]
        results = iter(self._attempt(operations) if operations else [])
        answers = [next(results) if operation is not None else None for operation in batch]
        if len(operations) < len(batch):
            self._close_all()
        return answers

    def _attempt(self, operations: Sequence[Operation]) -> Sequence[Any]:
        if self.trouble and self._db is None and all(operation.reads for operation in operations):
            return [self._looked_up(operation) for operation in operations]
        refused: errors.StorageError | None = None
        while refused is None:
            try:
                return self._carry_out(self._opened(), operations)
            except (sqlite3.Error, OSError, errors.StorageError) as error:
                if file.suspect(error):
                    self._give_up(self._db, error)
                if not self._made_room(error):
                    refused = self._told(error)
        return [self._looked_up(operation) if operation.reads else refused for operation in operations]

    def _carry_out(self, db: sqlite3.Connection, operations: Sequence[Operation]) -> list[Any]:
        changes = db.total_changes
        try:
            results = self._transaction(db, operations)
        except sqlite3.Error as error:
            given_up = self._db is not db or file.suspect(error) or file.busy(error)
            if given_up or len(operations) == 1 or self._may_fit(error):
                raise
        else:
            self._well(results, changed=db.total_changes > changes)
            return results
        # One that does not fit must not take the others down with it.
        return [self._alone(db, operation) for operation in operations]

    def _alone(self, db: sqlite3.Connection, operation: Operation) -> Any:
        if self._db is not db:
            return self._looked_up(operation) if operation.reads else errors.StorageError(self.trouble)
        try:
            return self._transaction(db, [operation])[0]
        except sqlite3.Error as error:
            if self._db is db and self._may_fit(error) and self._made_room(error):
                return self._alone(db, operation)
            return self._failed(error)

    def _transaction(self, db: sqlite3.Connection, operations: Sequence[Operation]) -> list[Any]:
        # Reading alone asks for nothing that the disk could refuse.
        db.execute("BEGIN" if all(operation.reads for operation in operations) else "BEGIN IMMEDIATE")
        try:
            results = [self._guarded(db, operation) for operation in operations]
            self._commit(db, operations)
        finally:
            if self._db is db and db.in_transaction:
                db.execute("ROLLBACK")
        return results

    def _commit(self, db: sqlite3.Connection, operations: Sequence[Operation]) -> None:
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            # Whether it reached the disk is not known, and a second try on this connection would not tell.
            self._undo.extend(operation.undo for operation in operations if operation.undo is not None)
            self._give_up(db, error)
            raise

    def _guarded(self, db: sqlite3.Connection, operation: Operation) -> Any:
        if operation.new and self._reserve.trouble:
            return errors.StorageError(f"the journal takes in nothing new: {self._reserve.trouble}")
        db.execute("SAVEPOINT operation")
        try:
            result = operation.work(db)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if not db.in_transaction or file.suspect(error) or self._may_fit(error):
                raise
            db.execute("ROLLBACK TO operation")
            result = self._refused(error) if file.own_fault(error) else self._told(error)
        db.execute("RELEASE operation")
        return result

    def _looked_up(self, operation: Operation) -> Any:
        """Answer from the connection that only reads."""
        try:
            if self._reader is None:
                if self._undo:  # a fresh connection might see what was refused
                    return errors.StorageError(self.trouble)
                self._reader = file.open_to_read(self._path, self._busy_seconds)
            return operation.work(self._reader)
        except (sqlite3.Error, OSError, ValueError, errors.StorageError) as error:
            reader, self._reader = self._reader, None
            file.close(reader)
            return errors.StorageError(f"the journal cannot be read: {error}")

    def _failed(self, error: Exception) -> errors.StorageError:
        if file.suspect(error):
            self._give_up(self._db, error)
        return self._told(error)

    def _may_fit(self, error: Exception) -> bool:
        """True if a change that a full disk refused may fit into the reserve."""
        return file.full(error) and self._reserve.left > 0

    def _made_room(self, error: Exception) -> bool:
        """Release a part of the reserve; True if all refused changes may be tried again."""
        return file.may_be_full(error, self._path) and self._reserve.give()

    def _well(self, results: Sequence[Any], *, changed: bool) -> None:
        hurt = any(
            isinstance(result, errors.StorageError) and not isinstance(result, _Refused) for result in results
        )
        if self.trouble and changed and not hurt:
            self.trouble = ""
            self._log.write("storage", "the journal can be written again", file=self._path.name)

    def _told(self, error: Exception) -> errors.StorageError:
        """Told to the operator once, however many find out."""
        words = f"the journal cannot be written: {error}"
        if words != self.trouble:
            self.trouble = words
            self._log.write("storage", words, level="error", file=self._path.name)
        return errors.StorageError(words)

    def _refused(self, error: Exception) -> errors.StorageError:
        words = f"the journal cannot write this: {error}"
        self._log.write("storage", words, level="error", file=self._path.name)
        return _Refused(words)

    def _give_up(self, db: sqlite3.Connection | None, error: Exception) -> None:
        """Not trusted any further: opened anew, and checked where the error asks for it, before anything else is
        written.
        """
        self._db = None
        self._check = max(self._check, file.to_check(error), key=len)
        file.close(db)

    def _close_all(self) -> None:
        # The writer last: it then leaves one file behind.
        reader, self._reader, db, self._db = self._reader, None, self._db, None
        file.close(reader)
        file.close(db)

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._finish_aside()
            try:
                db = self._open()
            except sqlite3.Error as error:
                if not file.damaged(error):
                    raise
                db = self._begun_anew(f"{error}")
            try:
                self.lost = schema.lost(db, damaged=self._damaged, now=self._clock.now())
            except sqlite3.Error:
                file.close(db)
                raise
            self._db, self._check, self._damaged = db, "", False
        if self._reader is None:
            self._reader = file.open_to_read(self._path, self._busy_seconds)
        if self._undo:
            for result in self._transaction(self._db, [Operation(undo) for undo in self._undo]):
                if isinstance(result, errors.StorageError):
                    raise result
            self._undo.clear()
        return self._db

    def _open(self) -> sqlite3.Connection:
        return file.open_to_write(self._path, self._busy_seconds, self._keep_log, self._check)

    def _finish_aside(self) -> None:
        target = file.finish_aside(self._path, int(self._clock.now() * 1000))
        if target is not None:
            self._log.write(
                "storage",
                f"{self._path.name} was being set aside when the last process ended; its log has gone to "
                f"{target.name} too",
                level="error",
                file=self._path.name,
                quarantine=target.name,
            )

    def _keep_log(self, cause: str) -> None:
        self._damaged = True
        source = self._path.with_name(f"{self._path.name}-wal")
        target = file.copy_aside(source, int(self._clock.now() * 1000))
        self._log.write(
            "storage",
            f"{source.name} is damaged ({cause}); kept as {target.name}: what was taken in or done last, "
            "and stands behind the damage, is in there alone",
            level="error",
            file=source.name,
            quarantine=target.name,
        )

    def _begun_anew(self, cause: str) -> sqlite3.Connection:
        """Set a damaged file aside, and begin one that has what can be read of it."""
        self._damaged = True
        self._close_all()
        target = file.set_aside(self._path, int(self._clock.now() * 1000))
        db = self._open()
        carried = salvage.carry_over(target, db)
        self._log.write(
            "storage",
            f"{self._path.name} is damaged ({cause}); set aside as {target.name}, beginning with what can be read of it: "
            "what is missing is in there alone",
            level="error",
            file=self._path.name,
            quarantine=target.name,
            carried=carried,
        )
        return db


class ReadOnlyDatabase(Database):
    """A file that another process owns: it is read as it is, and nothing of it is changed."""

    def _attempt(self, operations: Sequence[Operation]) -> Sequence[Any]:
        refused = errors.StorageError("the journal is only read here")
        return [self._looked_up(operation) if operation.reads else refused for operation in operations]
