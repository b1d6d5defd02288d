"""Copies of a journal: taken beside the gateway that writes it, and made fit to go on elsewhere."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from bot import errors
from bot.contracts.approvals import OPEN_APPROVAL, ApprovalRecord, Verdict
from bot.contracts.journal import OPEN_INBOX, OPEN_TURN
from bot.contracts.outbound import OPEN_OUTBOX, OutboxRow
from bot.journal import file
from bot.journal.approvals import ApprovalMoves
from bot.journal.inbox import TurnMoves
from bot.journal.outbox import OutboxMoves
from bot.journal.table import states


def copy(path: Path, target: Path) -> None:
    """Write a database of any version to a new file, as it is at one moment. Whoever writes to it goes on meanwhile.

    Raises `errors.StorageError` where it cannot be read, or is damaged.
    """
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with (
        errors.as_storage_error(f"{path.name} cannot be copied", sqlite3.Error),
        closing(file.open_to_read(path, any_version=True)) as db,
        closing(sqlite3.connect(target, isolation_level=None)) as copied,
    ):
        db.backup(copied)
        (verdict,) = copied.execute(f"PRAGMA {file.WHOLE}(1)").fetchone()
    if verdict != "ok":
        raise errors.StorageError(
            f"{path.name} is damaged ({verdict}); a restart of the gateway sets it aside and goes on with what can be "
            "read of it"
        )


def take_up(path: Path, *, moved: bool) -> None:
    """Bring a copied journal up to date. Unless its gateway has only `moved`, what was open in it may have been finished
    since: nothing of that is done again. Losses of it are told at the start, as those of a damaged journal are.

    Raises `errors.StorageError`.
    """
    with (
        errors.as_storage_error("the journal cannot be taken up", sqlite3.Error),
        closing(file.open_to_write(path, _refuse)) as db,
    ):
        if not moved:
            db.execute("BEGIN IMMEDIATE")
            _let_go(db)
            db.execute("COMMIT")


def _let_go(db: sqlite3.Connection) -> None:
    """End what is open. Each thing ends at the time it has on file: there is no other one that is known to be later."""
    db.execute(f"DELETE FROM inbox WHERE state IN ({states(*OPEN_INBOX)})")
    for turn_id, begun_at in _open(db, "id, begun_at", "turns", OPEN_TURN):
        TurnMoves({turn_id: lambda turn: turn.end("stopped")}, begun_at).make(db)
    for name, asked_at in _open(db, "id, asked_at", "approvals", OPEN_APPROVAL):
        stop = partial(ApprovalRecord.resolve, verdict=Verdict("stopped"), at=asked_at)
        ApprovalMoves({name: stop}, asked_at).make(db)
    # What was to be sent may have been: the platform is asked, or a repeat says that it is one.
    for name, changed_at in _open(db, "id, changed_at", "outbox", OPEN_OUTBOX):
        OutboxMoves({name: OutboxRow.begin}, changed_at).make(db)
    db.execute("INSERT OR REPLACE INTO lost VALUES (1, 'gone', NULL)")


def _open(db: sqlite3.Connection, columns: str, table: str, names: Sequence[str]) -> list[tuple[str, float]]:
    statement = f"SELECT {columns} FROM {table} WHERE state IN ({states(*names)})"
    return db.execute(statement).fetchall()


def _refuse(found: str) -> None:
    raise errors.StorageError(f"the journal is damaged: {found}")
