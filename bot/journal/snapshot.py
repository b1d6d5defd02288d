"""Copies of a journal: taken beside the gateway that writes it, and made fit to go on elsewhere."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from bot import errors
from bot.journal import file

BUSY_SECONDS = 5.0
_LET_GO = (
    "DELETE FROM inbox WHERE state IN ('queued', 'in_turn')",
    "UPDATE turns SET state = 'stopped', ended_at = begun_at WHERE ended_at IS NULL",
    "UPDATE approvals SET ended = 'stopped', decided_at = asked_at WHERE ended IS NULL",
    # What was to be sent may have been: the platform is asked, or a repeat says that it is one.
    "UPDATE outbox SET state = 'sending' WHERE state = 'ready'",
    "INSERT OR REPLACE INTO lost VALUES (1, 'gone', NULL)",
)


def copy(path: Path, target: Path) -> None:
    """Write a database of any version to a new file, as it is at one moment. Whoever writes to it goes on meanwhile.

    Raises `errors.StorageError` where it cannot be read, or is damaged.
    """
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(file.open_to_read(path, BUSY_SECONDS, any_version=True)) as db,
            closing(sqlite3.connect(target, isolation_level=None)) as copied,
        ):
            db.backup(copied)
            (verdict,) = copied.execute(f"PRAGMA {file.WHOLE}(1)").fetchone()
    except sqlite3.Error as error:
        raise errors.StorageError(f"{path.name} cannot be copied: {error}") from error
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
    try:
        with closing(file.open_to_write(path, BUSY_SECONDS, _refuse)) as db:
            if not moved:
                db.execute("BEGIN IMMEDIATE")
                for statement in _LET_GO:
                    db.execute(statement)
                db.execute("COMMIT")
    except sqlite3.Error as error:
        raise errors.StorageError(f"the journal cannot be taken up: {error}") from error


def _refuse(found: str) -> None:
    raise errors.StorageError(f"the journal is damaged: {found}")
