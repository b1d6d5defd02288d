"""`.ship` as one file, written beside a running gateway, and put back into an empty folder.

Nothing is stopped for it, so files are of slightly different times, and their order makes them fit: the log first, which is of one
moment; then the rest, which has all that the log names. The archive and the search index are exports of the log, and come back from it.
Of a file of lines, what it had at its opening is taken, up to its last whole line. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from bot import errors, instance, invocation, text
from bot.access_list import FILE as ACCESS
from bot.access_list import AccessList
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk, OpenFile
from bot.core.restored import RESTORED
from bot.core.sql_log import CURSOR, FACT, FORGET
from bot.core.sqlite_log import FILE as LOG
from bot.core.sqlite_log import SCHEMA, damage
from bot.importing.ship import JOURNAL
from bot.storage import jsonl
from bot.system import SystemClock

VERSION = 1
ABOUT = "backup.json"
"""The first file of a backup: what it is."""
_DATABASES = (LOG, "requests.db", JOURNAL, "usage.db")
"""Each is copied as it is at one moment."""
_KEPT = (LOG, JOURNAL, "chats", "memory", "artifacts")
"""Names of which each says that a conversation is kept here."""
_AT_ONCE = frozenset({"memory"})
"""Folders with files that belong together and are replaced: those of one folder are opened under its lock."""
_LEFT_OUT = frozenset(
    {
        instance.LOCK,
        instance.PID,
        instance.RESTORING,
        ".gitignore",
        "reserve",
        "schema",
        "links",
        "console.sock",
        "console.path",
        "shared.json",
        "commands.json",
        "exports.json",
        "index.db",
        RESTORED,
    }
)
"""Files that belong to a process, or are made anew."""
_MADE_BY_INIT = frozenset({".gitignore", "schema", instance.LOCK})
_SOURCE, _MOVED = "restored.json", f"{LOG}.moved"
"""In the folder of a restore: of which backup it is, and the log that the database has."""
_LEVEL = 6
Confirm = Callable[[list[str]], object]


@dataclass(frozen=True, slots=True)
class Backup:
    """Counts of a backup: its files, the bytes that they come to, and True if a gateway ran meanwhile."""

    files: int
    size: int
    running: bool


def write(home: Path, target: Path, *, disk: Disk, clock: Clock, database: str | None = None) -> Backup:
    """Write a backup of `home`, whole or not at all. Without a gateway none may start meanwhile. What is in a `database` is of one
    moment, and of this host comes what the hosts do not share.

    Raises `errors.StorageError`, `errors.ConfigError` where a restore was cut off, and OSError where the disk refuses.
    """
    instance.must_be_whole(home)
    with contextlib.ExitStack() as around:
        try:
            around.enter_context(instance.locked(home))
            running = False
        except errors.Unavailable:
            running = True
        scratch = Path(
            around.enter_context(tempfile.TemporaryDirectory(prefix=".shipmate-backup-", dir=target.parent))
        )
        shared = home
        if database is not None:
            from bot.cluster import transfer  # its library is there where it is wanted

            shared = scratch / "shared"
            shared.mkdir()
            transfer.copy_out(database, shared)
            running = running or transfer.is_running(database)
        packed = scratch / "backup"
        with packed.open("wb") as raw:
            with (
                gzip.GzipFile("", "wb", _LEVEL, raw) as zipped,
                tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                writer = _Writer(shared, tar, disk, int(clock.now()))
                writer.add_bytes(ABOUT, jsonl.dumps(_facts(clock, running=running)))
                writer.add_databases(shared, scratch)
                writer.add_all()
                if shared != home:
                    writer.add_databases(home, scratch)
                    writer.add_others(home)
            raw.flush()
            os.fsync(raw.fileno())
        packed.chmod(0o600)
        disk.rename(packed, target)
    return Backup(writer.files, writer.size, running)


def _facts(clock: Clock, *, running: bool) -> Json:
    return {
        "v": VERSION,
        "ts": int(clock.now() * 1000),
        "shipmate": invocation.version_of("shipmate"),
        "running": running,
    }


class _Member(tarfile.TarInfo):
    """The head of a file in a tar file: private, and without whose it is."""

    def __init__(self, name: str, size: int, ts: int) -> None:
        super().__init__(name)
        self.size, self.mode, self.mtime = size, 0o600, ts


class _Writer:
    """Puts the files of `.ship` into a tar file."""

    def __init__(self, home: Path, tar: tarfile.TarFile, disk: Disk, now: int) -> None:
        self._home = home
        self._tar = tar
        self._disk = disk
        self._now = now
        self._added = set[str]()
        self.files = 0
        self.size = 0

    def add_databases(self, home: Path, scratch: Path) -> None:
        for name in _DATABASES:
            if name not in self._added and self._disk.size(home / name):
                _copy(home / name, scratch / f"{name}.copy")
                self.add(name, self._disk.open(scratch / f"{name}.copy"))
                self._added.add(name)

    def add_all(self) -> None:
        """Add the other files."""
        for name in self._disk.names(self._home):
            if not self._is_left_out(name):
                self._added.add(name)
                self._add_tree(self._home / name)

    def add_others(self, home: Path) -> None:
        """Add what another `.ship` has, but for what is there already by its name."""
        self._home = home
        self._added |= {"memory", "artifacts"}
        self.add_all()

    def _is_left_out(self, name: str) -> bool:
        if name == "chats" and LOG in self._added:
            return True  # it comes back from the log
        beside = name.startswith(tuple(f"{one}-" for one in (*_DATABASES, "index.db")))
        ours = name in {*_LEFT_OUT, *_DATABASES, *self._added}
        return ours or beside or name.endswith((".new", ".tmp", ".importing"))

    def add_bytes(self, name: str, data: bytes) -> None:
        self._tar.addfile(_Member(name, len(data), self._now), io.BytesIO(data))

    def add(self, name: str, file: OpenFile) -> None:
        """Add a file as it was when it was opened, and close it. What was torn off is left out of lines."""
        with closing(file):
            size = _whole(file) if name.endswith(".jsonl") else file.size
            self._tar.addfile(_Member(name, size, self._now), _Stream(file))
        self.files += 1
        self.size += size

    def _add_tree(self, place: Path) -> None:
        if place.is_symlink():
            return  # nothing of ours
        if not place.is_dir():
            self._add_file(place)
            return
        kept = [place / name for name in self._disk.names(place) if not _is_passing(name)]
        if place.relative_to(self._home).parts[0] in _AT_ONCE:
            with jsonl.locked(self._home / place.relative_to(self._home).parts[0], shared=True):
                opened = [(path, self._disk.open(path)) for path in kept if _is_file(path)]
            for path, file in opened:
                self.add(str(path.relative_to(self._home)), file)
            kept = [path for path in kept if not _is_file(path)]
        for path in kept:
            self._add_tree(path)
        # A day of the log is compressed at any time: its other file is there before this one goes.
        for name in self._disk.names(place):
            if name.endswith(".jsonl.gz") and place / name not in kept:
                self._add_file(place / name)

    def _add_file(self, path: Path) -> None:
        if _is_file(path):
            self.add(str(path.relative_to(self._home)), self._disk.open(path))


def _copy(path: Path, target: Path) -> None:
    """Write a database to a new file, as it is at one moment. Whoever writes to it goes on meanwhile."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with (
        errors.as_storage_error(f"{path.name} cannot be copied", sqlite3.Error),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as db,
        closing(sqlite3.connect(target)) as copied,
    ):
        db.backup(copied)
        copied.execute("PRAGMA journal_mode = delete")
    if found := damage(target):
        raise errors.StorageError(f"{path.name} is damaged ({found}); nothing was written")


def _is_passing(name: str) -> bool:
    """True of locks, and of what a kill in a write left behind."""
    return name == jsonl.LOCK or (name.startswith(".") and name.endswith(".tmp"))


def _is_file(path: Path) -> bool:
    """True of a regular file; what has gone meanwhile is none."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _whole(file: OpenFile) -> int:
    """The size of a file of lines without a last one that is half written."""
    last = next(jsonl.lines_backwards(file), b"")
    return file.size if jsonl.loads(last) is not None else file.size - len(last)


class _Stream(io.RawIOBase):
    """An opened file, read on and on."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(self._at, size if size >= 0 else self._file.size - self._at)
        self._at += len(data)
        return data


def restore(
    source: Path, home: Path, *, disk: Disk, moved: bool, database: str | None = None, confirm: Confirm = len
) -> Backup:
    """Put a backup back into an empty `.ship`, and an empty `database`, whole or not at all, bring it up to date and make its index.
    One that was cut off once the database had all of it is brought to its end.

    `confirm` gets what it brings of rights and instructions, and raises where that may not come. What was open in it is closed, since
    it may have been finished after the backup; where the gateway has `moved`, and has not run since, it goes on. Raises
    `errors.Unavailable`, `errors.ConfigError` where something is there, `errors.StorageError` where the backup is damaged or of a newer
    version, and OSError.
    """
    instance.prepare_home(home)
    with instance.locked(home):
        found = _in_database(source, home, database) or _unpacked(
            source, home, disk=disk, moved=moved, database=database, confirm=confirm
        )
        scratch = home / instance.RESTORING
        for name in set(disk.names(scratch)) - {_SOURCE}:
            disk.rename(scratch / name, home / name)
        # Were it back after a power cut, restoring again would take what was said since.
        disk.rename(scratch, gone := home / f"{instance.RESTORING}.tmp")
        (gone / _SOURCE).unlink(missing_ok=True)
        gone.rmdir()
    return found


def _unpacked(
    source: Path, home: Path, *, disk: Disk, moved: bool, database: str | None, confirm: Confirm
) -> Backup:
    """Have everything in the folder of a restore, and in the database."""
    scratch = home / instance.RESTORING
    # While that is there nothing else comes from anywhere: a gateway does not start.
    ours = {scratch.name} if not scratch.exists() else set(disk.names(home))
    if there := set(disk.names(home)) - _MADE_BY_INIT - ours:
        raise errors.ConfigError(_not_empty(home, sorted(there)))
    # The mark goes last: without it what is left after a kill would count as whole.
    for name in sorted(ours - _MADE_BY_INIT, key=lambda one: one == scratch.name):
        _remove(home / name)
    scratch.mkdir(mode=0o700)
    with contextlib.ExitStack() as undo:
        undo.callback(_remove, scratch)
        found = _unpack(source, scratch)
        confirm(_brought(scratch, disk))
        if moved and found.running:
            raise errors.ConfigError(
                "--moved: found a backup of a running gateway, which has gone on after it; expected one that was taken "
                "after the gateway had stopped; leave --moved away, or take one"
            )
        if disk.size(scratch / LOG):
            _take_up(scratch / LOG, moved=moved)
        elif disk.size(scratch / JOURNAL):
            if database is not None:
                raise errors.ConfigError(
                    f"{source}: found a backup of Shipmate 0.1; expected none for PostgreSQL; restore it without that, start once, and "
                    "use `shipmate migrate`"
                )
            if not moved:
                disk.replace(scratch / RESTORED, b"")
        if database is not None and disk.size(scratch / LOG):
            from bot.cluster import transfer  # its library is there where it is wanted

            note = {"sha256": _sha256(source), **asdict(found)}
            disk.replace(scratch / _SOURCE, json.dumps(note).encode())
            os.sync()
            transfer.to_postgres(scratch / LOG, database, scratch / _MOVED)
        undo.pop_all()
    (scratch / _MOVED).unlink(missing_ok=True)
    os.sync()  # one file after the other would take minutes
    return found


def _take_up(path: Path, *, moved: bool) -> None:
    """Have the exports of a log written anew, and, unless its gateway has only `moved`, what is open in it closed by the first start."""
    with (
        errors.as_storage_error(f"{path.name} cannot be taken up", sqlite3.Error),
        closing(sqlite3.connect(path)) as db,
        db,
    ):
        db.executescript(SCHEMA)
        db.execute("DELETE FROM facts WHERE kind = ?", (CURSOR,))
        db.execute(FORGET, (RESTORED, RESTORED))
        if not moved:
            db.execute(FACT, (RESTORED, RESTORED, "{}"))
    if found := damage(path):
        raise errors.StorageError(f"{path.name} is damaged ({found}); nothing was restored")


def _brought(folder: Path, disk: Disk) -> list[str]:
    """A line for each right that a backup gives, and for each text that instructs."""
    lists = AccessList(folder / ACCESS, disk, SystemClock())
    told = [f"operator: {one}" for one in sorted(lists.operators())]
    told += [f"everybody on {channel} may talk to it: *" for channel in lists.open_channels()]
    for path in sorted(path for path in (folder / "instructions").rglob("*") if path.is_file()):
        told.append(f"{path.relative_to(folder)}: {text.preview(path.read_text('utf-8', 'replace'), 2_000)}")
    return told


def _not_empty(home: Path, names: list[str]) -> str:
    """Why nothing is restored into a folder: a conversation is kept there, or only what a gateway and an erasure have left."""
    kept = (path for name in _KEPT for path in (home / name, *(home / name).rglob("*")))
    if any(path.name != jsonl.LOCK for path in kept if path.is_file()):
        return (
            f"{home}: found a conversation that is kept there; expected an empty folder; restore into another project "
            "with --dir"
        )
    return (
        f"{home}: found {', '.join(names)}, and no conversation; expected an empty folder; move these out of it, or restore into "
        "another project with --dir"
    )


def _in_database(source: Path, home: Path, database: str | None) -> Backup | None:
    """The backup that a restore which was cut off has brought to the database; None where there is nothing of one."""
    scratch = home / instance.RESTORING
    if database is None or not (scratch / _SOURCE).exists():
        return None
    from bot.cluster import transfer

    note = json.loads((scratch / _SOURCE).read_bytes())
    if note.pop("sha256") != _sha256(source) or not transfer.was_moved(database, scratch, home):
        return None
    for name in (LOG, _MOVED):
        (scratch / name).unlink(missing_ok=True)
    return Backup(**note)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _as_foreign(source: Path) -> Iterator[None]:
    try:
        yield
    except gzip.BadGzipFile:
        raise errors.StorageError(
            f"{source} is no backup; expected a file that `shipmate backup` has written"
        ) from None


def _unpack(source: Path, folder: Path) -> Backup:
    files, size = 0, 0
    about: Json = {}
    with (
        errors.as_storage_error(
            f"{source} is no whole backup",
            *(tarfile.TarError, EOFError, zlib.error),
            ValueError,  # of facts in the head of a file that are none, and of a name that no file can have
        ),
        _as_foreign(source),
        gzip.open(source) as zipped,
    ):
        with tarfile.open(fileobj=zipped, mode="r|") as tar:
            for member in tar:
                data = tar.extractfile(member)
                if data is None or not member.isreg():
                    raise errors.StorageError(f"{source}: {member.name!r} is nothing that a backup has")
                if not about:
                    about = _about(source, member.name, data.read())
                    continue
                with _created(folder, member.name) as file:
                    shutil.copyfileobj(data, file)
                files += 1
                size += member.size
        while zipped.read(1 << 20):  # its end has the checksum
            pass
    if not about:
        raise errors.StorageError(f"{source} is no backup")
    return Backup(files, size, about.get("running") is not False)


def _about(source: Path, name: str, data: bytes) -> Json:
    about = jsonl.loads(data) if name == ABOUT else None
    if about is None or not isinstance(about.get("v"), int):
        raise errors.StorageError(f"{source} is no backup")
    if about["v"] > VERSION:
        raise errors.StorageError(
            f"{source} was made by Shipmate {about.get('shipmate')}, which is newer; use that"
        )
    return about


@contextlib.contextmanager
def _created(folder: Path, name: str) -> Iterator[io.BufferedWriter]:
    """A new file of a backup, which stays in the folder whatever its name is."""
    parts = PurePosixPath(name).parts
    bad = not parts or name.startswith("/") or not all(part.strip(".") for part in parts)
    if bad or parts[0] in _LEFT_OUT:
        raise errors.StorageError(f"{name!r} is no name that a backup has")
    path = folder.joinpath(*parts)
    for place in reversed(path.relative_to(folder).parents):
        (folder / place).mkdir(mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
