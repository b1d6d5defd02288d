"""The journal's file: opened for writing, opened for reading alone, set aside where it is damaged."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from bot import disk_reserve, errors
from bot.journal import schema, wal
from bot.journal.connection import close

SIDES = ("-wal", "-shm")
_ROOM = 64 * 1024
"""Bytes without which a disk counts as full: more than SQLite asks for at once."""

_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_SUSPECT = {*_CORRUPT, *_UNABLE, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL}

Check = Literal["", "quick_check", "integrity_check"]
WHOLE: Check = "integrity_check"
"""Not the quick one, where nothing is known of a file: an index that has lost a row would hide an inbound."""

BUSY_SECONDS = 5.0
"""Most seconds that another process's lock is waited for."""


def open_to_write(
    path: Path, damaged: Callable[[str], None], check: Check = WHOLE, *, busy_seconds: float = BUSY_SECONDS
) -> sqlite3.Connection:
    """Opened, checked, brought up to date, and with nothing left to do of what an earlier process wrote.

    `damaged` hears what is wrong with the write-ahead log while that is still there as it was found. `check` reads the
    whole file: what is done of that depends on what is known already (`to_check`).
    Raises `sqlite3.Error`, `OSError`, or `errors.StorageError` where its version is not read.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its side files the mode of the main one. An existing file is not opened here: to close it
    # again would take away the locks that another connection of this process has on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    log = path.with_name(path.name + "-wal")
    found = wal.damage(log, None)
    if found:
        damaged(found)  # SQLite is about to throw it away
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        db.text_factory = _text
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        if check:
            (verdict,) = db.execute(f"PRAGMA {check}(1)").fetchone()
            if verdict != "ok":
                raise _error(str(verdict), sqlite3.SQLITE_CORRUPT)
        (_, frames, _) = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not found and (found := wal.damage(log, max(frames, 0))):
            damaged(found)
        if wrong := schema.damage(db):
            raise _error(wrong, sqlite3.SQLITE_CORRUPT)
        _keep_copy(db, path)
        schema.migrate(db, schema.LATER)
        # What a failed fsync left in the write-ahead log may be in memory alone: nothing new may stand behind it.
        (busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise _error("database is locked", sqlite3.SQLITE_BUSY)
        db.execute("DELETE FROM probe WHERE id = 0")  # there is none; a file that is read-only says so
        # A change reaches the log as a whole: where a part of it does before, SQLite writes the checksums of frames again,
        # and a kill just then looks like damage. A migration may be too large for that.
        db.execute("PRAGMA cache_spill = OFF")
    except sqlite3.OperationalError as error:
        close(db)
        if _code(error) == sqlite3.SQLITE_READONLY and _of_the_future(path):
            raise _error("a file format that no version of SQLite writes", sqlite3.SQLITE_CORRUPT) from error
        raise
    except (sqlite3.Error, errors.StorageError):
        close(db)
        raise
    return db


def newest(path: Path) -> Path:
    """The file beside a journal that names the inbound it took in last. Whoever removes rows, or the journal, without the gateway
    removes it too.
    """
    return _side(path, "-newest")


def open_to_read(
    path: Path, *, busy_seconds: float = BUSY_SECONDS, any_version: bool = False
) -> sqlite3.Connection:
    """Raises `sqlite3.Error`, or `errors.StorageError` where its version is not ours and `any_version` will not do."""
    try:
        return _reader(path, busy_seconds, "?mode=ro", any_version=any_version)
    except sqlite3.OperationalError as error:
        if _code(error) not in _UNABLE or _filled(path.with_name(path.name + "-wal")):
            raise
    # SQLite wanted to create its side files and may not; the file is whole without them.
    return _reader(path, busy_seconds, "?mode=ro&immutable=1", any_version=any_version)


def _reader(path: Path, busy_seconds: float, how: str, *, any_version: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}{how}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        db.text_factory = _text
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != schema.NEWEST and not any_version:
            why = schema.refusal(version)
            raise errors.StorageError(why or f"the journal has version {version}, and is not up to date")
        db.execute("SELECT count(*) FROM sqlite_master" if any_version else "SELECT 1 FROM probe").fetchone()
    except (sqlite3.Error, errors.StorageError):
        close(db)
        raise
    return db


def copies(path: Path) -> list[Path]:
    """The copies that were kept of a journal before it was brought to a newer version."""
    return sorted(path.parent.glob(f"{path.name}.version-*"))


def _keep_copy(db: sqlite3.Connection, path: Path) -> None:
    """Keep a file that is about to be brought to a newer version, in place of the copy of the time before."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not 0 < version < schema.NEWEST:
        return
    new, before = path.with_name(f"{path.name}.being-copied"), copies(path)
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db.execute("VACUUM INTO ?", (str(new),))
    _fsync(new)
    target = new.replace(path.with_name(f"{path.name}.version-{version}"))
    _fsync(path.parent)
    for other in before:
        if other != target:
            other.unlink()


def copy_aside(path: Path, ts: int) -> Path:
    """Keep a copy of a damaged file; returns its name."""
    target = _unused(path, ts)
    shutil.copy2(path, target)
    _fsync(target)
    _fsync(target.parent)
    return target


def set_aside(path: Path, ts: int) -> Path:
    """Rename a damaged file and what belongs to it; returns its new name.

    The file goes first, and for good: its log alone says that this was cut off in the middle (`finish_aside`). The other
    way round, a damaged file without its log could look whole.
    """
    target = _unused(path, ts)
    path.replace(target)
    _fsync(path.parent)
    _follow(path, target)
    return target


def finish_aside(path: Path, ts: int) -> Path | None:
    """Bring to its end what a crash cut off in `set_aside`: a log without its file goes to where that is. SQLite would
    take it for the log of the empty file that is made next. Returns that place, None where there was nothing to do.
    """
    if _filled(path) or not _side(path, "-wal").exists():
        return None
    aside = [
        one for one in path.parent.glob(f"{path.name}.corrupt-*") if one.name.rpartition("-")[2].isdigit()
    ]
    alone = [one for one in aside if not _side(one, "-wal").exists()]
    target = max(alone, key=lambda one: int(one.name.rpartition("-")[2]), default=_unused(path, ts))
    _follow(path, target)
    return target


def _follow(path: Path, target: Path) -> None:
    for side in SIDES:
        # Whoever closes the journal last takes it away, at any moment.
        with contextlib.suppress(FileNotFoundError):
            _side(path, side).replace(_side(target, side))
    _fsync(path.parent)


def _side(path: Path, side: str) -> Path:
    return path.with_name(path.name + side)


def _fsync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _of_the_future(path: Path) -> bool:
    """True if the file claims a format of SQLite that only a later version could write."""
    with path.open("rb") as file:
        return max(file.read(20)[18:]) > 2


def _unused(path: Path, ts: int) -> Path:
    while (target := path.with_name(f"{path.name}.corrupt-{ts}")).exists():
        ts += 1
    return target


def damaged(error: Exception) -> bool:
    return _code(error) in _CORRUPT


def suspect(error: Exception) -> bool:
    """True if a connection with this error is not to be trusted any further."""
    return _code(error) in _SUSPECT


def to_check(error: Exception) -> Check:
    """The check to run after an error before the next write: none after a full or read-only disk, which changed
    nothing; a quick one after an I/O error, which may have lost pages; all of it after damage.
    """
    if damaged(error):
        return WHOLE
    return "quick_check" if _code(error) in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL} else ""


def full(error: Exception) -> bool:
    """True if the disk had no room."""
    if isinstance(error, OSError):
        return error.errno in disk_reserve.FULL
    return _code(error) == sqlite3.SQLITE_FULL


def may_be_full(error: Exception, path: Path) -> bool:
    """The same, also where SQLite does not say so: of a quota, of the file that it shares, and of one that it could not
    make, it says that reading or writing failed.
    """
    if full(error):
        return True
    if _code(error) not in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
        return False
    scratch = path.with_name(f"{path.name}.room")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, bytes(_ROOM))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as found:
        return full(found)
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return False


def busy(error: Exception) -> bool:
    return _code(error) == sqlite3.SQLITE_BUSY


def own_fault(error: Exception) -> bool:
    """True if the values were wrong, not the disk."""
    return not isinstance(error, sqlite3.Error) or isinstance(
        error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.DataError
    )


def _code(error: Exception) -> int | None:
    """The primary result code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if code is not None else None


def _error(words: str, code: int) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(words)
    error.sqlite_errorcode = code
    return error


def _text(raw: bytes) -> str:
    """One letter that the disk has damaged does not make the others unreadable."""
    return raw.decode(errors="replace")


def _filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
