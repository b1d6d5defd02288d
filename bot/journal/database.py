"""One database, one thread, one transaction a batch; posted writes wait in memory while the disk refuses them."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import sqlite3
from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot import errors
from bot.batch import Batcher
from bot.contracts.environment import Clock, Log
from bot.contracts.journal import DataLoss
from bot.disk_reserve import DiskReserve
from bot.journal import file, salvage, schema
from bot.journal.connection import Connection, close
from bot.journal.status_cache import StatusCache

Work = Callable[[Connection], Any]

RETRY_SECONDS = 5.0
"""Between two tries to write what the disk has refused, where nothing else is written meanwhile."""
_NEWEST = "SELECT request_id FROM inbox ORDER BY rowid DESC LIMIT 1"
_KNOWS = "SELECT 1 FROM inbox WHERE request_id = ? UNION ALL SELECT 1 FROM lost WHERE at IS NULL"


@dataclass(frozen=True, slots=True)
class Operation:
    """`work` runs inside the batch's transaction. Where one of a batch fails by itself, all of them run again, each in a
    savepoint of its own: so `work` may run several times. An `errors.IllegalTransition` that it raises takes back what it wrote;
    one that it returns does not. Where it returns a callable, that gives the result: a server's answer is waited for behind the
    batch.

    A failed commit has an unknown outcome; `undo` then runs before anything else, so that no refused change stays half
    done. An operation that only `reads` is answered even when nothing can be written; a `new` one is refused on a full
    disk, so that the reserve is left to work under way. A `posted` one that is refused is kept, and written
    before any later one of its kind; `closes` names the inbound that it ends.
    """

    work: Work
    undo: Work | None = None
    reads: bool = False
    new: bool = False
    posted: bool = False
    closes: Collection[str] = ()


class _Refused(errors.StorageError):
    """One operation that can never be written, on a disk that is well."""


class Database(abc.ABC):
    """A database that is opened at the first operation, and again after it has failed.

    Beside the writer's connection there is one that only reads: it answers as long as nothing can be written.
    """

    far = False
    """True where an answer is a way to a server and back."""

    def __init__(self, name: str, *, clock: Clock, log: Log, reserve: DiskReserve | None = None) -> None:
        self._name = name
        self._reserve = reserve or DiskReserve(None, log)
        self._clock = clock
        self._log = log
        self._db: Connection | None = None
        self._reader: Connection | None = None
        self.known = StatusCache()
        """The states of rows, for what is carried out on the writer's thread."""
        self._undo: list[Work] = []
        self._pending: list[Operation] = []
        self._closing: set[str] = set()
        self._retrying: asyncio.Task[None] | None = None
        self._batcher: Batcher[Operation | None, Any] = Batcher("journal", self._batch)
        self.trouble = ""
        """The trouble with the disk, until a change reaches it again."""
        self._damaged = False
        """True where a loss was found that is not on file yet."""
        self.lost: DataLoss | None = None
        """As `contracts.journal.Journal.lost`."""

    def run(
        self,
        work: Work,
        *,
        undo: Work | None = None,
        hurry: bool = True,
        new: bool = False,
        closes: Collection[str] = (),
    ) -> Future[Any]:
        """Queue `work` for the writer's thread; gives its result once it is on disk.

        Gives `errors.StorageError` where it could not be written; nothing of it is on disk then.
        """
        return self._batcher.put(Operation(work, undo, new=new, closes=closes), hurry=hurry)

    def post(self, work: Work, *, hurry: bool = True, closes: Collection[str] = ()) -> Future[Any]:
        """Queue `work`, which is never refused: what the disk does not take is kept in memory, and written in the order
        of the calls once it takes something again. The future need not be awaited. It gives the result once that is on
        disk, None once the disk has refused it. `closes` names the inbound that are over then (`closing`).
        """
        future = self._batcher.put(Operation(work, posted=True, closes=closes), hurry=hurry)
        self._closing.update(closes)
        future.add_done_callback(lambda _: self._posted(closes))
        return asyncio.shield(future)  # who is cancelled takes nothing back

    @property
    def pending_writes(self) -> int:
        """The number of posted writes that the disk has refused and not taken since."""
        return len(self._pending)

    @property
    def closing(self) -> frozenset[str]:
        """The inbound whose end was posted a moment ago, and may be on disk by now."""
        return frozenset(self._closing)

    async def forget_loss(self) -> None:
        """As `contracts.journal.Journal.forget_loss`."""

        def forget(db: Connection) -> None:
            db.execute("DELETE FROM lost")

        await self.run(forget)
        self.lost = None

    async def flush(self) -> bool:
        """Write what is pending; False where the disk still refuses it."""
        if self._pending:
            await self._batcher.put(Operation(_nothing, posted=True))
        return not self._pending

    def read(self, work: Work) -> Future[Any]:
        """Queue `work` that changes nothing. It sees everything that was queued before it."""
        return self._batcher.put(Operation(work, reads=True))

    async def close(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
        if self._pending and not await self.flush():
            self._log.write(
                "storage",
                "what was posted to the journal could not be written",
                level="error",
                file=self._name,
                writes=self.pending_writes,
            )
        if self._db is not None or self._reader is not None:
            await self._batcher.put(None)
        await self._batcher.close()

    def _posted(self, closes: Collection[str]) -> None:
        """A posted write is on disk, or kept: then it is tried again."""
        self._closing.difference_update(closes)
        if self._pending and (self._retrying is None or self._retrying.done()):
            self._retrying = asyncio.get_running_loop().create_task(self._retry(), name="journal, again")

    async def _retry(self) -> None:
        while self._pending:
            await self._clock.sleep(RETRY_SECONDS)
            await self.flush()

    # Everything below runs on the writer's thread.

    def pending_closes(self) -> set[str]:
        """The inbound whose end is pending; for what reads."""
        return {request_id for operation in self._pending for request_id in operation.closes}

    def _batch(self, batch: list[Operation | None]) -> Sequence[Any]:
        operations = [operation for operation in batch if operation is not None]
        results = iter(self._in_order(operations) if operations else [])
        answers = [next(results) if operation is not None else None for operation in batch]
        if len(operations) < len(batch):
            self._close_all()
        return answers

    def _in_order(self, operations: Sequence[Operation]) -> Sequence[Any]:
        """Carry out a batch; posted writes that are refused are kept, and so is every later one until they are written."""
        waits = bool(self._pending) and not self._replayed(operations)
        tried = [operation for operation in operations if not (waits and operation.posted)]
        results = iter(self._attempt(tried) if tried else [])
        answers: list[Any] = []
        for operation in operations:
            behind = waits and operation.posted
            answer = None if behind else next(results)
            if behind or (operation.posted and _hurt(answer)):
                self._keep(operation)
            # One that can never be written was told, and keeps no other one back.
            refused = operation.posted and isinstance(answer, errors.StorageError | errors.IllegalTransition)
            answers.append(None if refused else answer)
        return answers

    def _keep(self, operation: Operation) -> None:
        if operation.work is _nothing:
            return
        if not self._pending:
            self._log.write(
                "storage",
                "posted writes wait until the journal can be written",
                level="error",
                file=self._name,
            )
        self._pending.append(operation)

    def _replayed(self, operations: Sequence[Operation]) -> bool:
        """Write what is pending, all of it in one transaction: an inbound is closed together with all that comes before.
        False where the disk refuses it, and where nothing asks for the disk.
        """
        if all(operation.reads for operation in operations):
            return False
        (result,) = self._attempt([Operation(lambda db: [_asked(one.work(db)) for one in self._pending])])
        if isinstance(result, _Refused | errors.IllegalTransition):
            # One of them can never be written: then one after the other, and without that one.
            while self._pending:
                (result,) = self._attempt(self._pending[:1])
                if _hurt(result):
                    return False
                del self._pending[0]
            return True
        if _hurt(result):
            return False
        self._tell_illegal(result)
        self._pending.clear()
        return True

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
                if not self._again(error):
                    refused = self._storage_error(error)
        return [self._looked_up(operation) if operation.reads else refused for operation in operations]

    def _carry_out(self, db: Connection, operations: Sequence[Operation]) -> list[Any]:
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
        return _each(operations, lambda operation: self._alone(db, operation))

    def _alone(self, db: Connection, operation: Operation) -> Any:
        if self._db is not db:
            return self._looked_up(operation) if operation.reads else errors.StorageError(self.trouble)
        try:
            return self._transaction(db, [operation])[0]
        except sqlite3.Error as error:
            if self._db is db and self._may_fit(error) and self._again(error):
                return self._alone(db, operation)
            return self._failed(error)

    def _transaction(self, db: Connection, operations: Sequence[Operation]) -> list[Any]:
        try:
            return self._in_transaction(db, operations, self._worked)
        except errors.IllegalTransition:
            pass  # the others are carried out without it
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if self._db is not db or file.suspect(error) or file.busy(error) or self._may_fit(error):
                raise
        return self._in_transaction(db, operations, self._guarded)

    def _in_transaction(
        self,
        db: Connection,
        operations: Sequence[Operation],
        carry_out: Callable[[Connection, Operation], Any],
    ) -> list[Any]:
        committed = False
        # Reading alone asks for nothing that the disk could refuse.
        db.execute("BEGIN" if all(operation.reads for operation in operations) else "BEGIN IMMEDIATE")
        try:
            results = _each(
                operations, lambda operation: self._refused_now(operation) or carry_out(db, operation)
            )
            self._commit(db, operations)
            committed = True
        finally:
            if not committed:
                self.known.clear()
            if self._db is db and db.in_transaction:
                db.execute("ROLLBACK")
        self._tell_illegal(results)
        return [self._answered(result) for result in results]

    def _answered(self, result: Any) -> Any:
        """A result of what is committed."""
        try:
            return _asked(result)
        except sqlite3.Error as error:
            return self._failed(error)

    def _worked(self, db: Connection, operation: Operation) -> Any:
        result = operation.work(db)
        return result if self.far else _asked(result)

    def _tell_illegal(self, results: Sequence[Any]) -> None:
        for result in results:
            if isinstance(result, errors.IllegalTransition):
                self._log.write("error", f"the journal was told what cannot follow: {result}", level="error")

    def _commit(self, db: Connection, operations: Sequence[Operation]) -> None:
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._rolled_back(db):
                raise
            # Whether it reached the disk is not known, and a second try on this connection would not tell.
            self._undo.extend(operation.undo for operation in operations if operation.undo is not None)
            self._give_up(db, error)
            raise

    def _rolled_back(self, db: Connection) -> bool:  # noqa: ARG002
        """True where a COMMIT that failed surely has written nothing."""
        return False

    def _refused_now(self, operation: Operation) -> errors.StorageError | None:
        if operation.new and self._reserve.trouble:
            return errors.StorageError(f"the journal takes in nothing new: {self._reserve.trouble}")
        return None

    def _guarded(self, db: Connection, operation: Operation) -> Any:
        db.execute("SAVEPOINT operation")
        try:
            result = self._worked(db, operation)
        except errors.IllegalTransition as error:
            self._taken_back(db)
            result = error
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if not db.in_transaction or file.suspect(error) or self._may_fit(error):
                raise
            self._taken_back(db)
            result = self._refused(error) if file.own_fault(error) else self._storage_error(error)
        db.execute("RELEASE operation")
        return result

    def _taken_back(self, db: Connection) -> None:
        db.execute("ROLLBACK TO operation")
        self.known.clear()

    def _looked_up(self, operation: Operation) -> Any:
        """Answer from the connection that only reads."""
        try:
            if self._reader is None:
                if self._undo:  # a fresh connection might see what was refused
                    return errors.StorageError(self.trouble)
                self._reader = self._connect_to_read()
            return _asked(operation.work(self._reader))
        except (sqlite3.Error, OSError, ValueError, errors.StorageError) as error:
            reader, self._reader = self._reader, None
            close(reader)
            return errors.StorageError(f"the journal cannot be read: {error}")

    def _failed(self, error: Exception) -> errors.StorageError:
        if file.suspect(error):
            self._give_up(self._db, error)
        return self._storage_error(error)

    def _may_fit(self, error: Exception) -> bool:
        """True if a change that a full disk refused may fit into the reserve."""
        return file.full(error) and self._reserve.left > 0

    def _well(self, results: Sequence[Any], *, changed: bool) -> None:
        if self.trouble and changed and not any(map(_hurt, results)):
            self.trouble = ""
            self._log.write("storage", "the journal can be written again", file=self._name)

    def _storage_error(self, error: Exception) -> errors.StorageError:
        """Told to the operator once, however many find out."""
        words = f"the journal cannot be written: {error}"
        if words != self.trouble:
            self.trouble = words
            self._log.write("storage", words, level="error", file=self._name)
        return errors.StorageError(words)

    def _refused(self, error: Exception) -> errors.StorageError:
        words = f"the journal cannot write this: {error}"
        self._log.write("storage", words, level="error", file=self._name)
        return _Refused(words)

    def _give_up(self, db: Connection | None, error: Exception) -> None:  # noqa: ARG002
        """Not trusted any further: opened anew before anything else is written."""
        self._db = None
        self.known.clear()
        close(db)

    def _close_all(self) -> None:
        # The writer last: it then leaves one file behind.
        reader, self._reader, db, self._db = self._reader, None, self._db, None
        self.known.clear()
        close(reader)
        close(db)

    def _opened(self) -> Connection:
        if self._db is None:
            db = self._connect()
            try:
                self.lost = schema.lost(db, damaged=self._damaged, now=self._clock.now())
            except sqlite3.Error:
                close(db)
                raise
            self._db, self._damaged = db, False
        if self._undo:
            for result in self._transaction(self._db, [Operation(undo) for undo in self._undo]):
                if isinstance(result, errors.StorageError):
                    raise result
            self._undo.clear()
        return self._db

    @abc.abstractmethod
    def _connect(self) -> Connection:
        """Open it to write, up to date. Raises `sqlite3.Error`, `OSError` and `errors.StorageError`."""

    @abc.abstractmethod
    def _connect_to_read(self) -> Connection: ...
    @abc.abstractmethod
    def _again(self, error: Exception) -> bool:
        """True where a change that was refused with this error may be tried again at once."""


class FileDatabase(Database):
    """One SQLite file. It is checked where it is opened, and begun anew where it is damaged.

    The connection that only reads keeps SQLite's view of what was committed while the writer's is given up. The newest inbound
    is named in a file beside it too: a write-ahead log that is removed or cut between two runs leaves a file that looks whole.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        log: Log,
        busy_seconds: float = file.BUSY_SECONDS,
        reserve: DiskReserve | None = None,
    ) -> None:
        super().__init__(path.name, clock=clock, log=log, reserve=reserve)
        self._path = path
        self._busy_seconds = busy_seconds
        self._check = file.WHOLE
        self._newest = ""

    def _commit(self, db: Connection, operations: Sequence[Operation]) -> None:
        super()._commit(db, operations)
        if not all(operation.reads for operation in operations):
            self._name_newest(db)

    def _name_newest(self, db: Connection) -> None:
        """Before anybody is told that it was taken in. Without a flush: after a power failure an older name does no harm."""
        with contextlib.suppress(sqlite3.Error, OSError):
            (newest,) = db.execute(_NEWEST).fetchone() or ("",)
            if newest != self._newest:
                handle = os.open(file.newest(self._path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                with os.fdopen(handle, "w") as out:
                    out.write(f"{newest:64}")  # of one length: a kill leaves the old or the new one
                self._newest = newest

    def _again(self, error: Exception) -> bool:
        """Release a part of the reserve; True if all refused changes may be tried again."""
        return file.may_be_full(error, self._path) and self._reserve.give()

    def _give_up(self, db: Connection | None, error: Exception) -> None:
        """Checked, where the error asks for it, before anything else is written."""
        self._check = max(self._check, file.to_check(error), key=len)
        super()._give_up(db, error)

    def _opened(self) -> Connection:
        fresh = self._db is None
        db = super()._opened()
        if fresh:
            self._check = ""
            self._name_newest(db)
        if self._reader is None:
            self._reader = self._connect_to_read()
        return db

    def _connect_to_read(self) -> Connection:
        return file.open_to_read(self._path, busy_seconds=self._busy_seconds)

    def _connect(self) -> Connection:
        self._finish_aside()
        try:
            db = self._open()
        except sqlite3.Error as error:
            if not file.damaged(error):
                raise
            return self._begun_anew(f"{error}")
        newest = ""
        with contextlib.suppress(OSError):
            newest = file.newest(self._path).read_text(errors="replace").strip()
        if newest and db.execute(_KNOWS, (newest,)).fetchone() is None:
            self._damaged = True
            self._log.write(
                "storage",
                f"{self._path.name} does not have what it took in last: its write-ahead log was removed or cut, or it is an "
                "older copy",
                level="error",
                file=self._name,
                request_id=newest,
            )
        return db

    def _open(self) -> sqlite3.Connection:
        return file.open_to_write(self._path, self._keep_log, self._check, busy_seconds=self._busy_seconds)

    def _finish_aside(self) -> None:
        target = file.finish_aside(self._path, int(self._clock.now() * 1000))
        if target is not None:
            self._log.write(
                "storage",
                f"{self._path.name} was being set aside when the last process ended; its log has gone to "
                f"{target.name} too",
                level="error",
                file=self._name,
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
            file=self._name,
            quarantine=target.name,
            carried=carried,
        )
        return db


def _hurt(result: Any) -> bool:
    """True where the disk has refused something that it may take later."""
    return isinstance(result, errors.StorageError) and not isinstance(result, _Refused)


def _each(operations: Sequence[Operation], carry_out: Callable[[Operation], Any]) -> list[Any]:
    """Carry out one after the other; behind a posted write that was refused, no other posted one."""
    results: list[Any] = []
    behind: errors.StorageError | None = None
    for operation in operations:
        result = behind if behind is not None and operation.posted else carry_out(operation)
        if operation.posted and _hurt(result):
            behind = result
        results.append(result)
    return results


def _asked(result: Any) -> Any:
    return result() if callable(result) else result


def _nothing(_: Connection) -> None:
    """Nothing to write: what is pending goes before it."""


class PostingWriter:
    """Posts every write: `run` refuses none. Nothing is taken back either, since it is written again."""

    def __init__(self, base: Database) -> None:
        self.base = base

    def run(
        self,
        work: Work,
        *,
        undo: Work | None = None,  # noqa: ARG002
        hurry: bool = True,
        closes: Collection[str] = (),
    ) -> Future[Any]:
        """As `Database.post`."""
        return self.base.post(work, hurry=hurry, closes=closes)


Writer = Database | PostingWriter
"""The writer of the journal's parts."""


class ReadOnly(Database):
    """One that another process owns: it is read as it is, and nothing of it is changed."""

    def _attempt(self, operations: Sequence[Operation]) -> Sequence[Any]:
        refused = errors.StorageError("the journal is only read here")
        return [self._looked_up(operation) if operation.reads else refused for operation in operations]


class ReadOnlyFile(ReadOnly, FileDatabase):
    """A file that another process owns."""
