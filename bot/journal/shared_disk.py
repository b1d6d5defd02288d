"""The part of `.ship` that is the same on all hosts of a database: what is said, remembered and sent is in PostgreSQL, and the files
of a host are copies of it.

The process that leads reads and writes its copies, as it would without the others; `SharedDisk` brings what they get to the
database: at once where a caller wants it on disk, else within seconds. So "on disk" means there: committed by the session that the
next leader ends. A copy has the size and the time of its row. What differs, because a kill came before the commit or another host
has written since, is fetched anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from bot import errors
from bot.contracts.environment import Clock, Disk, Log, OpenFile
from bot.contracts.leadership import Leadership
from bot.journal import shared_files
from bot.journal.connection import Connection, close
from bot.journal.shared_files import FILES, FOLDERS, SharedFile, Store

NOTE = "shared.json"
"""Says of which database the files are copies."""
_INDEX = "index.db"
WRITE_BACK_SECONDS = 2.0
FOLLOW_SECONDS = 1.0
_MOST_TOGETHER = 1_000
"""Files that are read together at most."""
_R = TypeVar("_R")


def is_shared(home: Path, path: Path) -> bool:
    """True of a file that all hosts have."""
    return path.is_relative_to(home) and shared_files.is_name(path.relative_to(home).as_posix())


class Copies:
    """The copies of one host. Everything blocks."""

    def __init__(self, home: Path, disk: Disk, log: Log) -> None:
        self._home = home
        self._disk = disk
        self._log = log
        self._newest = 0
        # Id and time of files that this process has fetched: such a one that has grown since is not fetched whole.
        self._had: dict[str, tuple[int, int]] = {}
        self._one_at_a_time = threading.RLock()
        self._db: Connection | None = None

    def compare(self, db: Connection) -> bool:
        """Make all files what the database has, if it has any; False where one was changed meanwhile. Raises `sqlite3.Error` and
        OSError.
        """
        with self._one_at_a_time:
            rows = shared_files.changed_since(db, 0)
            if not rows:
                return True  # those of the first process that leads are still to come
            self._are_copies(shared_files.store(db))
            there = {row.path for row in rows if row.id}
            for path in files(self._home):
                if path.relative_to(self._home).as_posix() not in there:
                    self._disk.remove(path)
            return self._take(db, rows)

    def catch_up(self, db: Connection) -> bool:
        """The same, by what has changed since where this process has followed."""
        with self._one_at_a_time:
            if not self._newest:
                return self.compare(db)
            return self._take(db, shared_files.changed_since(db, self._newest))

    def import_all(self, db: Connection) -> None:
        """Bring all files to a database that has none. In a transaction."""
        at = time.time_ns() // 1000 * 1000
        for path in files(self._home):
            with closing(self._disk.open(path)) as file:
                shared_files.put(db, path.relative_to(self._home).as_posix(), _pieces(file), at)
            os.utime(path, ns=(at, at))
        self.sign(shared_files.store(db))

    async def follow(self, url: str, clock: Clock) -> None:
        """Fetch what changes, on and on, while another process leads."""
        trouble = ""
        try:
            while True:
                try:
                    await asyncio.to_thread(self._follow, url)
                    trouble = ""
                except (sqlite3.Error, OSError) as error:
                    if str(error) != trouble:
                        trouble = str(error)
                        self._log.write("cluster", f"files cannot be followed: {error}", level="warn")
                await clock.sleep(FOLLOW_SECONDS)
        finally:
            await asyncio.to_thread(self._end)

    def _follow(self, url: str) -> None:
        with self._one_at_a_time:
            try:
                self._db = self._db or shared_files.connect(url)
                self.catch_up(self._db)
            except (sqlite3.Error, OSError):
                self._end()
                raise

    def _end(self) -> None:
        with self._one_at_a_time:
            db, self._db = self._db, None
            close(db)

    def _are_copies(self, store: Store) -> None:
        """Put files aside that are no copies, and forget what was made of those that were erased since."""
        try:
            note = json.loads(self._disk.read(self._home / NOTE))
        except ValueError:
            note = {}
        if note.get("store") != store.name:
            self._set_aside()
        elif note.get("erasures") == store.erasures:
            return
        for path in self._home.glob(f"{_INDEX}*"):
            self._disk.remove(path)
        self.sign(store)

    def sign(self, store: Store) -> None:
        """Note that the files are copies."""
        words = json.dumps({"v": 1, "store": store.name, "erasures": store.erasures})
        self._disk.replace(self._home / NOTE, words.encode() + b"\n")

    def _set_aside(self) -> None:
        if not any(files(self._home)):
            return
        aside = self._home / f"before-{secrets.token_hex(4)}"
        aside.mkdir(mode=0o700)
        for name in (*FOLDERS, *FILES):
            with contextlib.suppress(FileNotFoundError):
                (self._home / name).replace(aside / name)
        self._log.write(
            "cluster",
            f"the files of .ship were those of another Shipmate, and are kept in {aside.name}",
            level="warn",
        )

    def _take(self, db: Connection, rows: Iterable[SharedFile]) -> bool:
        for some in _together(rows):
            whole = shared_files.whole(
                db, [row for row in some if self._is_small(row) and self._is_missing(row)]
            )
            for row in some:
                path = self._home / row.path
                if not row.id:
                    self._disk.remove(path)
                    self._had.pop(row.path, None)
                elif self._is_missing(row) and not self._fetched(db, row, path, whole.get(row.id)):
                    return False  # it comes again, and so does what is behind it
                else:
                    self._had[row.path] = (row.id, row.at)
                self._newest = max(self._newest, row.changed)
        return True

    def _is_missing(self, row: SharedFile) -> bool:
        path = self._home / row.path
        return bool(row.id) and _facts(path) != (row.size, row.at)

    def _is_small(self, row: SharedFile) -> bool:
        """True of one that is read together with others. Of one that has grown only the end is read."""
        return row.size <= shared_files.PIECE and self._had.get(row.path, (0, 0))[0] != row.id

    def _fetched(self, db: Connection, row: SharedFile, path: Path, whole: Sequence[bytes] | None) -> bool:
        size, at = _facts(path) or (0, 0)
        if whole is None and self._had.get(row.path) == (row.id, at) and size <= row.size:
            for data in shared_files.content(db, row, size):
                self._disk.append(path, data)
        else:
            _write(self._disk, path, shared_files.content(db, row) if whole is None else whole)
        if self._disk.size(path) != row.size:
            return False
        os.utime(path, ns=(row.at, row.at))
        return True


class SharedDisk:
    """`contracts.environment.Disk` of the process that leads. Nothing but that writes while it is open."""

    def __init__(
        self, inner: Disk, home: Path, url: str, *, log: Log, leadership: Leadership | None = None
    ) -> None:
        self._inner = inner
        self._home = home
        self._url = url
        self._log = log
        self._leadership = leadership
        self._db: Connection | None = None
        self._writing = threading.RLock()
        self._guard = threading.Lock()
        # Files that are ahead of the database; True of those that have not only grown.
        self._ahead: dict[Path, bool] = {}
        self._last = 0
        self._seen: dict[Path, tuple[int, int] | None] = {}
        self._trouble = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_back, name="shared files", daemon=True)
        self.read = inner.read
        self.open = inner.open
        self.size = inner.size
        self.names = inner.names
        self.exists = inner.exists

    def begin(self, copies: Copies) -> None:
        """Have the files as the database has them; where it has none yet, it gets those that are here. Raises
        `errors.StorageError`.
        """
        with self._writing, errors.as_storage_error("the files of .ship cannot be read from the database"):
            self._committed(lambda db: self._meet(db, copies))
        self._thread.start()

    def close(self) -> None:
        """Bring to the database what it lacks. Whoever is to write does so no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._db is not None:
            self._notice()
            with contextlib.suppress(OSError):
                self.flush()
        with self._writing:
            db, self._db = self._db, None
            close(db)

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        if not is_shared(self._home, path):
            self._inner.append(path, data, sync=sync)
            return
        try:
            self._inner.append(path, data)
        finally:
            self._mark(path)
        if sync:
            self.flush(path)

    def sync(self, path: Path) -> None:
        if is_shared(self._home, path) or path.name in FOLDERS:
            self.flush(path)  # a folder has no row: nothing of it is ahead
        else:
            self._inner.sync(path)

    def replace(self, path: Path, data: bytes) -> None:
        if not is_shared(self._home, path):
            self._inner.replace(path, data)
            return

        def put(db: Connection) -> int:
            shared_files.put(db, self._name(path), _cut(data), at := self._now())
            return at

        with self._changing(path):
            at = self._committed(put)
            with self._here_too(path):
                _write(self._inner, path, iter([data]))
            os.utime(path, ns=(at, at))

    def rename(self, source: Path, target: Path) -> None:
        shared = [path for path in (source, target) if is_shared(self._home, path)]
        with contextlib.ExitStack() as changing:
            for path in shared:
                changing.enter_context(self._changing(path))
            self._inner.rename(source, target)
            self._push(shared, anew=True)

    def truncate(self, path: Path, size: int) -> None:
        if not is_shared(self._home, path):
            self._inner.truncate(path, size)
            return
        with self._changing(path):
            self._inner.truncate(path, size)
            self._push([path], anew=True)

    def remove(self, path: Path) -> None:
        if not is_shared(self._home, path):
            self._inner.remove(path)
            return
        with self._changing(path):
            self._committed(lambda db: shared_files.remove(db, self._name(path)))
            with self._here_too(path):
                self._inner.remove(path)

    def flush(self, wanted: Path | None = None) -> None:
        """Bring what is ahead to the database; at once for all files, where `wanted` (None: any) is one of them. Raises OSError."""
        with self._writing:
            if wanted is None or wanted in self._ahead:
                self._upload()

    def erase(self) -> None:
        """Have nothing of files that were removed stay in free pages, and no host keep what was made of them. Raises OSError."""

        def erase(db: Connection) -> None:
            shared_files.count_erasure(db)
            shared_files.forget_removed(db)

        with self._writing:
            self._committed(erase)
            if self._db is not None:
                shared_files.scrub(self._db)

    def _upload(self, *, unsure: bool = False) -> None:
        """Bring what is ahead to the database; `unsure`: only files of which nobody knows what it has. Raises OSError."""
        with self._guard:
            ahead = {path: anew for path, anew in self._ahead.items() if anew or not unsure}
            for path in ahead:
                del self._ahead[path]
        try:
            self._push([path for path, anew in ahead.items() if not anew])
            self._push([path for path, anew in ahead.items() if anew], anew=True)
        except OSError:
            for path, anew in ahead.items():
                self._mark(path, anew=anew)
            raise

    def _mark(self, path: Path, *, anew: bool = False) -> None:
        with self._guard:
            self._ahead[path] = self._ahead.get(path, False) or anew

    @contextlib.contextmanager
    def _changing(self, path: Path) -> Iterator[None]:
        """A change for the block. Where it is refused, the database gets what is here before any other change: nobody knows what it
        has of this one.
        """
        with self._writing:
            with self._guard:
                self._ahead.pop(path, None)
            try:
                self._upload(unsure=True)
                yield
            except OSError:
                self._mark(path, anew=True)
                raise

    @contextlib.contextmanager
    def _here_too(self, path: Path) -> Iterator[None]:
        """A change for the block that the database has already. Where this disk refuses it, it is taken back there at once: the
        next change, of another file, goes by what is here.
        """
        try:
            yield
        except OSError:
            self._push([path], anew=True)
            raise

    def _push(self, paths: Collection[Path], *, anew: bool = False) -> None:
        """Bring files to the database, in one transaction. Raises OSError."""
        if not paths:
            return
        names = [self._name(path) for path in paths]

        def push(db: Connection) -> list[int]:
            rows = shared_files.found(db, names)
            return [
                self._pushed(db, path, name, rows.get(name), anew=anew)
                for path, name in zip(paths, names, strict=True)
            ]

        times = self._committed(push)
        for path, at in zip(paths, times, strict=True):
            with self._guard:
                if path not in self._ahead and at:
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(path, ns=(at, at))

    def _pushed(self, db: Connection, path: Path, name: str, row: SharedFile | None, *, anew: bool) -> int:
        """Bring a file to the database; the time that it has there, 0 where it has gone."""
        facts = _facts(path)
        if facts is None:
            shared_files.remove(db, name)
            return 0
        if row is not None and (facts == (row.size, row.at) or (facts[0] == row.size and not anew)):
            return row.at
        at = self._now()
        with closing(self._inner.open(path)) as file:
            if row is not None and row.size < file.size and not anew:
                shared_files.grow(db, row, _pieces(file, row.size), at)
            else:
                shared_files.put(db, name, _pieces(file), at)
        return at

    def _meet(self, db: Connection, copies: Copies) -> None:
        if shared_files.has_any(db):
            if not copies.catch_up(db):
                raise errors.StorageError("the files in the database are not whole")
            return
        copies.import_all(db)

    def _committed(self, work: Callable[[Connection], _R]) -> _R:
        """Carry work out in one transaction; once more in a new session where the one that was there is gone. Raises OSError."""
        fresh = self._db is None
        try:
            return self._in_transaction(work)
        except (sqlite3.Error, errors.StorageError) as error:
            db, self._db = self._db, None
            close(db)
            if fresh:
                raise OSError(errno.EIO, f"the database does not take files: {error}") from error
        return self._committed(work)

    def _in_transaction(self, work: Callable[[Connection], _R]) -> _R:
        if self._db is None:
            self._db = shared_files.connect_to_write(self._url, self._leadership)
        db = self._db
        db.execute("BEGIN")
        try:
            result = work(db)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        return result

    def _notice(self) -> None:
        """Bring what a command has written, beside this process, to the database as well."""
        for path in map(self._home.joinpath, FILES):
            if (facts := _facts(path)) != self._seen.get(path):
                self._seen[path] = facts
                self._mark(path, anew=True)

    def _write_back(self) -> None:
        while not self._over.wait(WRITE_BACK_SECONDS):
            self._notice()
            try:
                self.flush()
                self._trouble = ""
            except OSError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    self._log.write("storage", f"files wait for the database: {error}", level="error")

    def _name(self, path: Path) -> str:
        return path.relative_to(self._home).as_posix()

    def _now(self) -> int:
        """A time (ns) that no file has, of whole microseconds, which every file system keeps."""
        self._last = max(time.time_ns() // 1000 * 1000, self._last + 1000)
        return self._last


def refresh(home: Path, disk: Disk, url: str, log: Log) -> None:
    """Make the files of a host copies of what is in the database now. Raises `errors.StorageError`."""
    with (
        errors.as_storage_error(
            "the files of .ship cannot be read from the database", sqlite3.Error, OSError
        ),
        closing(shared_files.connect(url)) as db,
    ):
        Copies(home, disk, log).compare(db)


def copies_of(home: Path) -> str:
    """The name of the store whose copies the files of a `.ship` are; "" where they are none."""
    try:
        return str(json.loads((home / NOTE).read_bytes())["store"])
    except (FileNotFoundError, ValueError, KeyError):
        return ""


def files(home: Path) -> Iterator[Path]:
    """The files of a `.ship` that all hosts have."""
    for name in FOLDERS:
        yield from _walked(home / name)
    yield from (home / name for name in FILES if (home / name).is_file())


def _walked(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            if not name.startswith(".") and (path := Path(place, name)).is_file():
                yield path


def _facts(path: Path) -> tuple[int, int] | None:
    """The size and the time (ns) of a file; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _together(rows: Iterable[SharedFile]) -> Iterator[list[SharedFile]]:
    """Files in order, so many as may be read at once."""
    some, size = list[SharedFile](), 0
    for row in rows:
        if some and (size + row.size > shared_files.AT_ONCE or len(some) == _MOST_TOGETHER):
            yield some
            some, size = [], 0
        some.append(row)
        size += row.size
    yield some


def _write(disk: Disk, path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file anew, beside the old one and then in its place. The database has it, so nothing waits for the disk."""
    scratch = path.with_name(f".{secrets.token_hex(6)}.tmp")
    try:
        disk.append(scratch, b"")
        for data in pieces:
            disk.append(scratch, data)
        scratch.replace(path)
    except OSError:
        disk.remove(scratch)
        raise


def _cut(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), shared_files.PIECE):
        yield data[begin : begin + shared_files.PIECE]


def _pieces(file: OpenFile, begin: int = 0) -> Iterator[bytes]:
    """The rest of a file as it was when it was opened."""
    for at in range(begin, file.size, shared_files.PIECE):
        yield file.read(at, min(shared_files.PIECE, file.size - at))
