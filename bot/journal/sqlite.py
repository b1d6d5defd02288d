"""`SqliteJournal`: the journal in one SQLite file."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bot import errors, text
from bot.contracts.approvals import GIVEN, LASTING
from bot.contracts.environment import Clock, Log
from bot.contracts.journal import INBOX_FAILURE, OPEN_INBOX, DataLoss
from bot.contracts.outbound import OUTBOX_FAILURES
from bot.disk_reserve import DiskReserve
from bot.journal.approvals import SqlApprovals
from bot.journal.connection import Connection
from bot.journal.database import Database, FileDatabase, PostingWriter
from bot.journal.file import BUSY_SECONDS
from bot.journal.inbox import InboxWrites, SqlInbox
from bot.journal.jobs import SqlJobs
from bot.journal.leases import SqlLeases
from bot.journal.lines import LineWrites, SqlLines
from bot.journal.outbox import AT_WORK, OutboxWrites, SqlOutbox
from bot.journal.steps import SqlSteps
from bot.journal.table import held, states

_AT_ONCE = 2_000

# A sweep deletes rows at their end and moves none: that do the transitions of their types alone.
# Of a turn that is not finished everything stays: resumed, it has to know what it did and what it sent.
_SWEEPS = (
    f"""DELETE FROM inbox WHERE request_id IN
        (SELECT request_id FROM inbox WHERE state NOT IN ({states(*OPEN_INBOX, INBOX_FAILURE)}) AND changed_at < ? LIMIT ?)""",
    f"""DELETE FROM outbox WHERE id IN (SELECT id FROM outbox
        WHERE state = 'sent' AND changed_at < ? AND request_id NOT IN
            ({AT_WORK}) LIMIT ?)""",
    f"""DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE at < ? AND request_id NOT IN
            ({AT_WORK}) LIMIT ?)""",
)
# What went wrong may have to be looked at for longer.
_SWEEPS_FAILED = (
    f"""DELETE FROM inbox WHERE request_id IN
        (SELECT request_id FROM inbox WHERE state = '{INBOX_FAILURE}' AND changed_at < ? LIMIT ?)""",
    f"""DELETE FROM outbox WHERE id IN (SELECT id FROM outbox
        WHERE state IN ({states(*OUTBOX_FAILURES)}) AND changed_at < ? AND request_id NOT IN
            ({AT_WORK}) LIMIT ?)""",
    "DELETE FROM dead_letters WHERE rowid IN (SELECT rowid FROM dead_letters WHERE at < ? LIMIT ?)",
)
# After the inbox: of what is still there, the turn and the steps stay too.
_SWEEP_TURNS = """DELETE FROM turns WHERE id IN (SELECT id FROM turns WHERE begun_at < ?
    AND id NOT IN (SELECT request_id FROM inbox)
    AND NOT EXISTS (SELECT 1 FROM inbox WHERE turn_id = turns.id) LIMIT ?)"""
_SWEEP_STEPS = """DELETE FROM steps WHERE rowid IN (SELECT rowid FROM steps WHERE began_at < ?
    AND request_id NOT IN (SELECT request_id FROM inbox) LIMIT ?)"""
# What was allowed for a chat, or always, stays.
_SWEEP_APPROVALS = f"""DELETE FROM approvals WHERE rowid IN (SELECT rowid FROM approvals
    WHERE asked_at < ? AND NOT (state IN ({states(*GIVEN)}) AND scope IN ({states(*LASTING)}))
        AND request_id NOT IN (SELECT request_id FROM inbox) LIMIT ?)"""
_PUT_ONCE = """INSERT INTO once VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET at = excluded.at, until = excluded.until"""
_PROBE = "INSERT INTO probe VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
_SWEEP_ONCE = "DELETE FROM once WHERE key IN (SELECT key FROM once WHERE until < ? LIMIT ?)"


class SqlPostedWrites(InboxWrites, OutboxWrites, LineWrites):
    """`contracts.journal.PostedWrites`."""


class SqlJournal(SqlInbox, SqlSteps, SqlOutbox, SqlJobs, SqlLeases, SqlLines, SqlApprovals):
    """`contracts.journal.Journal` in a database. One process at a time should own it."""

    def __init__(self, base: Database, *, clock: Clock, log: Log) -> None:
        super().__init__(base, clock=clock, log=log)
        self.post = SqlPostedWrites(base, clock=clock, log=log, writer=PostingWriter(base))

    async def open(self) -> None:
        """Open now rather than at the first call. Raises `errors.StorageError` where that is not possible."""
        await self.base.run(lambda _: None)

    def health(self) -> str:
        """The trouble with the disk; "" where the last change reached it."""
        return self.base.trouble

    def lost(self) -> DataLoss | None:
        return self.base.lost

    async def forget_loss(self) -> None:
        await self.base.forget_loss()

    @property
    def pending_writes(self) -> int:
        return self.base.pending_writes

    async def flush(self) -> bool:
        return await self.base.flush()

    def once(self, key: str, now: float, every: float) -> Coroutine[Any, Any, bool]:
        cleaned = text.clean(key)

        def work(db: Connection) -> bool:
            row = db.execute("SELECT at FROM once WHERE key = ?", (cleaned,)).fetchone()
            if row is not None and row[0] <= now < row[0] + every:
                return False
            # A time that is still to come tells of a clock set back: counted from now on, it does not bind
            # for longer than `every`.
            db.execute(_PUT_ONCE, (cleaned, now, now + every))
            return row is None or row[0] <= now

        return held(self.base.run(work))

    async def sweep(self, before: float, *, failed: float | None = None) -> int:
        await self._sweep(_SWEEP_ONCE, before)
        gone = sum([await self._sweep(statement, before) for statement in _SWEEPS])
        gone += sum(
            [
                await self._sweep(statement, before if failed is None else failed)
                for statement in _SWEEPS_FAILED
            ]
        )
        await self._sweep(_SWEEP_APPROVALS, before)
        await self._sweep(_SWEEP_TURNS, before)
        return gone + await self._sweep(_SWEEP_STEPS, before)

    async def probe(self) -> str:
        try:
            await self._change(_PROBE, (self._clock.now(),))
        except errors.StorageError as error:
            return str(error)
        return ""

    async def close(self) -> None:
        """Finish what waits and close the file. Safe to call twice."""
        await self.base.close()

    async def _sweep(self, statement: str, before: float) -> int:
        """Delete a few rows at a time, so that other changes do not wait."""
        total = 0

        def sweep(db: Connection) -> int:
            self.base.known.clear()  # a turn whose messages have gone may go too
            return db.execute(statement, (before, _AT_ONCE)).rowcount

        while True:
            gone: int = await self.base.run(sweep)
            total += gone
            if gone < _AT_ONCE:
                return total


class SqliteJournal(SqlJournal):
    """The journal in one SQLite file, which is opened at the first call."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        log: Log,
        busy_seconds: float = BUSY_SECONDS,
        reserve: DiskReserve | None = None,
    ) -> None:
        base = FileDatabase(path, clock=clock, log=log, busy_seconds=busy_seconds, reserve=reserve)
        super().__init__(base, clock=clock, log=log)
