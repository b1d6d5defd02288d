"""Shares files of the folder `.ship` between the hosts of a cluster. The files are rows of the table `files`; each host has
a local copy.

The leader reads its local copies. The leader commits a change to the database first, and then writes its local copy.
All other processes (standbys) fetch the changes. If the size or mtime of a copy differs from the file's row, the file
is fetched again. Exports of the log (`chats`, the search index) are not shared, because each host makes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psycopg

from bot import errors
from bot.contracts.environment import Clock, Disk, Log
from bot.core.postgres_log import PostgresSession, prepared
from bot.storage import jsonl

FOLDERS = ("artifacts", "memory", "outgoing", "received", "sent")
FILES = ("access.json", "telegram-groups.json")
EXPORTS = ("chats", "exports.json", "index.db", "index.db-shm", "index.db-wal")
"""Names of the exports in `.ship` that each host makes from the log."""
NOTE = "shared.json"
"""Name of the file that contains the `store` id that the database had at the last fetch. `erase` gives the database a new id."""
FOLLOW_SECONDS = 1.0
CHANGED = "SELECT path, size, at, changed FROM files WHERE changed > ? ORDER BY changed"
CONTENT = "SELECT data, size, at FROM files WHERE path = ?"
PUT = """INSERT INTO files VALUES (?, ?, ?, ?, nextval('file_changes')) ON CONFLICT (path) DO UPDATE
    SET data = excluded.data, size = excluded.size, at = excluded.at, changed = excluded.changed"""
REMOVE = "UPDATE files SET data = NULL, size = 0, at = 0, changed = nextval('file_changes') WHERE path = ?"
STORE = "SELECT store FROM cluster_leader"
ERASED = """UPDATE cluster_leader SET store = DEFAULT; DELETE FROM files WHERE data IS NULL;
    VACUUM FULL events, keys, chats, usage, counts, facts, files"""


def is_name(name: str) -> bool:
    """Return True if `name` is the path, relative to `.ship`, of a shared file. Return False for a path with parts like `..`."""
    parts = PurePosixPath(name).parts
    plain = "/".join(parts) == name and not any(part.startswith(".") for part in parts)
    return plain and (name in FILES or (len(parts) > 1 and parts[0] in FOLDERS))


class SharedDisk:
    """Implements `contracts.environment.Disk` for a process of a cluster. `inner` stores the local files in `home`. All methods
    except `follow` block.
    """

    def __init__(self, inner: Disk, home: Path, url: str, log: Log) -> None:
        self._inner, self._home, self._url, self._log = inner, home, url, log
        self._epoch: int | None = None
        self._db: PostgresSession | None = None
        self._alone = threading.RLock()
        self._newest = 0
        self._kept: dict[str, tuple[int, int] | None] = {}
        self._last = 0
        self.read, self.open, self.size, self.names = inner.read, inner.open, inner.size, inner.names
        # Callers append only to files that hosts do not share, so these methods need no database.
        self.append, self.sync, self.truncate = inner.append, inner.sync, inner.truncate

    # ------------------------------------------------------------ the copies

    async def follow(self, clock: Clock, *, leads: bool = False) -> None:
        """Every second, fetch the changes of other processes. If `leads` is True, instead store the files that commands on this
        host have changed. Ends only by cancellation.
        """
        trouble = ""
        while True:
            try:
                await asyncio.to_thread(self.store_changed if leads else self._catch_up)
                trouble = ""
            except OSError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    self._log.write("cluster", f"files cannot be followed: {error}", level="warn")
            await clock.sleep(FOLLOW_SECONDS)

    def begin(self, epoch: int | None = None) -> None:
        """Fetch all files. If the database has none, store the local files there. Once `epoch` is no longer the leader's number,
        later changes are refused; None skips this check. Raises `errors.StorageError`.
        """
        with self._alone, errors.as_storage_error("the files of .ship cannot be fetched"):
            self._epoch = epoch
            if not self._catch_up():
                for path in files(self._home):
                    self._put(path, self._inner.read(path))

    def fetch(self) -> None:
        """Fetch the files that have changed. Raises `errors.StorageError`."""
        with errors.as_storage_error("the files of .ship cannot be fetched"):
            self._catch_up()

    def close(self) -> None:
        with self._alone:
            if self._db is not None:
                self._db.close()
            self._db = None

    def erase(self) -> None:
        """Purge deleted content from the database's files. Other hosts then delete their copies and exports. Raises OSError."""
        with self._session() as db:
            for statement in ERASED.split(";"):
                db.execute(statement)

    def _catch_up(self) -> bool:
        """Fetch the files that have changed. Return False if the database has no files."""
        with self._alone, self._session() as db:
            rows = db.execute(CHANGED, (self._newest,)).fetchall()
            if not self._newest:
                self._are_copies(db, {path for path, *_ in rows})
            for name, size, at, changed in rows:
                path = self._home / name
                if is_name(name) and (size, at) != (_facts(path) or (0, 0)):
                    data, _, written = db.execute(CONTENT, (name,)).fetchone() or (None, 0, 0)
                    if data is None:
                        self._inner.remove(path)
                    else:
                        self._inner.replace(path, data)
                        self._date(path, written)
                self._newest = changed
        return self._newest > 0

    def _are_copies(self, db: PostgresSession, there: set[str]) -> None:
        """If the database's `store` id has changed since this host's last fetch, delete all exports, and the copies of
        files that are no longer in the database. If this host has never fetched files, move the copies to another
        folder instead.
        """
        (store,) = db.execute(STORE).fetchone() or ("",)
        known = (jsonl.loads(self._inner.read(self._home / NOTE)) or {}).get("store")
        if known == store:
            return
        foreign = [path for path in files(self._home) if there and self._name(path) not in there]
        foreign += [path for name in EXPORTS if (path := self._home / name).exists()]
        aside = self._home / f"before-{secrets.token_hex(4)}"
        for path in foreign:
            (aside / self._name(path)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.replace(aside / self._name(path))
        if known is not None:  # delete the moved files, because they may contain erased content
            shutil.rmtree(aside, ignore_errors=True)
        elif foreign:
            self._log.write("cluster", f"files of another Shipmate are kept in {aside.name}", level="warn")
        self._inner.replace(self._home / NOTE, jsonl.dumps({"store": store}))

    def store_changed(self) -> None:
        """Store the files in `FILES` that a command on this host has changed."""
        with self._alone:
            for name in FILES:
                facts = _facts(self._home / name)
                if facts is not None and facts != self._kept.get(name):
                    self._put(self._home / name, self._inner.read(self._home / name))

    # ------------------------------------------------------------ changes

    def replace(self, path: Path, data: bytes) -> None:
        if self._is_shared(path):
            self._put(path, data)
        else:
            self._inner.replace(path, data)

    def rename(self, source: Path, target: Path) -> None:
        if self._is_shared(source) or self._is_shared(target):
            self.replace(target, self._inner.read(source))
            self.remove(source)
        else:
            self._inner.rename(source, target)

    def remove(self, path: Path) -> None:
        if self._is_shared(path):
            self._write(REMOVE, (self._name(path),))
        self._inner.remove(path)

    def _put(self, path: Path, data: bytes) -> None:
        # Each change gets a unique mtime (ns), in whole microseconds because some file systems store no nanoseconds.
        self._last = at = max(time.time_ns() // 1000 * 1000, self._last + 1000)
        with self._alone:
            self._write(PUT, (self._name(path), data, len(data), at))
            self._inner.replace(path, data)
            self._date(path, at)

    def _date(self, path: Path, at: int) -> None:
        os.utime(path, ns=(at, at))
        if (name := self._name(path)) in FILES:
            self._kept[name] = _facts(path)

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        with self._session() as db, db.leading(self._epoch):
            db.execute(statement, values)

    @contextlib.contextmanager
    def _session(self) -> Iterator[PostgresSession]:
        """Yield the database session. Reconnect if the connection was lost. Raises OSError."""
        with self._alone:
            try:
                if self._db is None or self._db.lost:
                    self._db = prepared(self._url)
                yield self._db
            except (psycopg.Error, errors.StorageError) as error:
                raise OSError(
                    errno.EIO, f"the database does not accept files: {errors.words_of(error)}"
                ) from error

    def _is_shared(self, path: Path) -> bool:
        return path.is_relative_to(self._home) and is_name(self._name(path))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._home).as_posix()


def files(home: Path) -> Iterator[Path]:
    """Yield the paths of the shared files in `home`, the folder `.ship`."""
    for folder in FOLDERS:
        for path in sorted((home / folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and is_name(path.relative_to(home).as_posix()):
                yield path
    yield from (home / name for name in FILES if (home / name).is_file())


def _facts(path: Path) -> tuple[int, int] | None:
    """Return a file's size in bytes and its mtime (ns); None if the file does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
