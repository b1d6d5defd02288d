"""Writes the folder `.ship` to one file, the backup, and restores a backup into an empty folder. A gateway may run
while a backup is written.

The files of a backup are read one after another. A snapshot of the log is read first, so that the files read later
contain everything that the log refers to. The archive and the search index are left out, because they can be made again
from the log. Of a file that consists of lines, the backup contains the lines that were complete when Shipmate opened the
file. All functions here block.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bot import errors, instance, invocation, text
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk
from bot.core.access import ACCESS_FILE, AccessList
from bot.core.event_log import CURSOR, FACT, FORGET, RESTORED
from bot.core.sqlite_log import FILE as LOG
from bot.core.sqlite_log import SCHEMA, damage
from bot.importing import JOURNAL
from bot.storage import jsonl
from bot.system import SystemClock

VERSION = 1
ABOUT = "backup.json"
"""Name of the first file in a backup. It contains the backup's version, time and origin."""
_DATABASES = (LOG, "requests.db", JOURNAL, "usage.db")
_LEFT_OUT = frozenset(
    {instance.LOCK, instance.PID, instance.RESTORING, "console.sock", "console.path", "reserve", RESTORED}
    | {".gitignore", "schema", "links", "shared.json", "commands.json", "exports.json", "index.db"}
)
"""Names of files that are not in a backup: files of the running process, and files that Shipmate can create again."""
_UNFINISHED = (".new", ".tmp", ".importing")
_MADE_BY_INIT = frozenset({".gitignore", "schema", instance.LOCK})


@dataclass(frozen=True, slots=True)
class Backup:
    """Description of a finished backup: the number of files, the total bytes, and whether a gateway was running."""

    files: int
    size: int
    running: bool


def write(home: Path, target: Path, *, disk: Disk, clock: Clock, database: str | None = None) -> Backup:
    """Write a backup of `home` atomically. A running gateway goes on, but no gateway can start during the backup. If `database`
    is given, the log and the shared files come from a snapshot of that database, and all other files from this host.

    Raises `errors.StorageError`, `errors.ConfigError` if an interrupted restore left `home` incomplete, and OSError.
    """
    instance.must_be_whole(home)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(instance.locked(home))
            running = False
        except errors.Unavailable:
            running = True
        folder = tempfile.TemporaryDirectory(prefix=".shipmate-backup-", dir=target.parent)
        scratch = Path(stack.enter_context(folder))
        homes = [home]
        if database is not None:
            from bot.cluster import leadership, transfer  # need the optional PostgreSQL library

            homes.insert(0, scratch / "shared")
            homes[0].mkdir()
            transfer.copy_out(database, homes[0])
            running = running or bool(leadership.hosts(database))
        now, files, total = clock.now(), 0, 0
        version, added = invocation.version_of("shipmate"), set[str]()
        with (scratch / "backup").open("wb") as raw:
            with (
                gzip.GzipFile("", "wb", 6, raw) as zipped,
                tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                about = {"v": VERSION, "ts": int(now * 1000), "shipmate": version, "running": running}
                data = jsonl.dumps(about)
                _add(tar, ABOUT, io.BytesIO(data), len(data), now)
                for one in homes:
                    for name, file in _contents(one, scratch, added):
                        with file:
                            size = os.fstat(file.fileno()).st_size
                            if name.endswith(".jsonl"):  # an incomplete last line is left out
                                file.seek(max(0, size - jsonl.PIECE))
                                size -= len(file.read(jsonl.PIECE).rpartition(b"\n")[2])
                            _add(tar, name, file, size, now)
                            files, total = files + 1, total + size
            raw.flush()
            os.fsync(raw.fileno())
        (scratch / "backup").chmod(0o600)
        disk.rename(scratch / "backup", target)
    return Backup(files, total, running)


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO, size: int, now: float) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(now)
    file.seek(0)
    tar.addfile(member, file)


def _contents(home: Path, scratch: Path, added: set[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the name and the opened file of everything in `home` that belongs in a backup. Skip the names in `added`, which an
    earlier call took from another folder; add new names to `added`. Snapshots of databases come first.
    """
    for name in _DATABASES:
        if name not in added and (home / name).is_file() and (home / name).stat().st_size:
            _copy(home / name, copy := scratch / f"{name}.copy")
            added.add(name)
            yield name, copy.open("rb")
    beside = tuple(f"{one}-" for one in (*_DATABASES, "index.db"))
    known = {*_LEFT_OUT, *_DATABASES, *added, *(["chats"] if LOG in added else [])}
    for place in sorted(home.iterdir()):
        name = place.name
        left_out = name in known or name.startswith(beside) or name.endswith(_UNFINISHED)
        if left_out or place.is_symlink():
            continue
        added.add(name)
        # The files of the folder `memory` change together, so they are copied under a lock.
        with jsonl.locked(place, shared=True) if name == "memory" else contextlib.nullcontext():
            inside = [Path(folder, one) for folder, _, names in os.walk(place) for one in names]
            for path in sorted(inside) or [place]:
                temporary = path.name.startswith(".") and path.name.endswith(".tmp")
                if path.name == jsonl.LOCK or temporary:
                    continue
                # A log file may be compressed and deleted at any time. The compressed file exists before the deletion.
                for one in (path, path.with_name(f"{path.name}.gz")):
                    with contextlib.suppress(FileNotFoundError):
                        if stat.S_ISREG(one.lstat().st_mode):
                            yield str(one.relative_to(home)), one.open("rb")
                        break
    # The first `home` contains these two folders completely, so later calls for another `home` must skip them.
    added |= {"memory", "artifacts"}


def _copy(path: Path, target: Path) -> None:
    """Copy a snapshot of a database to a new file. The copy does not block writers."""
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


def restore(
    source: Path,
    home: Path,
    *,
    disk: Disk,
    moved: bool,
    database: str | None = None,
    confirm: Callable[[list[str]], object] = lambda _: None,
) -> Backup:
    """Restore a backup atomically into an empty `.ship` and, if given, into an empty `database`.

    `confirm` gets a list of the rights and instruction files in the backup. `confirm` raises an error to refuse the restore.
    After a normal restore, the first start closes turns and questions that are open in the backup, because they may have ended
    after the backup. Set `moved` to True if the gateway has not run since the backup; open work then continues. Raises
    `errors.Unavailable`, `errors.ConfigError` if the folder is not empty, `errors.StorageError` if the backup is damaged or
    newer than this version, and OSError.
    """
    instance.prepare_home(home)
    scratch = home / instance.RESTORING
    with instance.locked(home), contextlib.ExitStack() as undo:
        # No gateway can start while the scratch folder exists, so no other process writes.
        interrupted = set(disk.names(home)) if scratch.exists() else {scratch.name}
        if there := set(disk.names(home)) - _MADE_BY_INIT - interrupted:
            raise errors.ConfigError(
                f"{home}: found {', '.join(sorted(there))}; expected an empty folder without a conversation; move these out of it, or "
                "restore into another project with --dir"
            )
        # The scratch folder is removed last. Without it, the remaining files would count as a complete restore.
        for name in sorted(interrupted - _MADE_BY_INIT, key=lambda one: one == scratch.name):
            _remove(home / name)
        scratch.mkdir(mode=0o700)
        undo.callback(_remove, scratch)
        found = _unpack(source, scratch)
        lists = AccessList(scratch / ACCESS_FILE, disk, SystemClock())
        rights = [f"operator: {one}" for one in sorted(lists.operators())]
        rights += [f"everybody on {channel} may talk to it: *" for channel in lists.open_channels()]
        for path in sorted(path for path in (scratch / "instructions").rglob("*") if path.is_file()):
            words = text.preview(path.read_text("utf-8", "replace"), 2_000)
            rights.append(f"{path.relative_to(scratch)}: {words}")
        confirm(rights)
        if moved and found.running:
            raise errors.ConfigError(
                "--moved: found a backup of a running gateway, which has continued after it; expected one of a stopped gateway; omit "
                "--moved, or make one"
            )
        _prepare_log(source, scratch, disk, moved=moved, database=database)
        undo.pop_all()
        os.sync()  # a sync of each file would take minutes
        for name in disk.names(scratch):
            disk.rename(scratch / name, home / name)
        # After the rename, no restore can be repeated. A repeated restore would delete all later messages.
        disk.rename(scratch, gone := home / f"{instance.RESTORING}.tmp")
        gone.rmdir()
    return found


def _prepare_log(source: Path, scratch: Path, disk: Disk, *, moved: bool, database: str | None) -> None:
    """In a restored log, reset the exports' positions and, unless `moved`, end open work. Copy the log to `database`."""
    log = scratch / LOG
    if disk.size(log):
        with (
            errors.as_storage_error(f"{LOG} cannot be updated", sqlite3.Error),
            closing(sqlite3.connect(log)) as db,
            db,
        ):
            db.executescript(SCHEMA)
            db.execute("DELETE FROM facts WHERE kind = ?", (CURSOR,))
            db.execute(FORGET, (RESTORED, RESTORED))
            if not moved:
                db.execute(FACT, (RESTORED, RESTORED, "{}"))
        if found := damage(log):
            raise errors.StorageError(f"{LOG} is damaged ({found}); nothing was restored")
        if database is not None:
            from bot.cluster import transfer  # needs the optional PostgreSQL library

            aside = log.with_name(f"{LOG}.moved")
            transfer.to_postgres(log, database, aside)
            aside.unlink()
    elif disk.size(scratch / JOURNAL):
        if database is not None:
            raise errors.ConfigError(
                f"{source}: found a backup of Shipmate 0.1; expected a later one for PostgreSQL; restore it without PostgreSQL, start "
                "once, and use `shipmate migrate`"
            )
        if not moved:
            disk.replace(scratch / RESTORED, b"")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _unpack(source: Path, folder: Path) -> Backup:
    files, size = 0, 0
    about: Json = {}
    with (
        errors.as_storage_error(
            f"{source} is not a complete backup",
            *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile),
            ValueError,  # raised for invalid values in a file's header, and for an invalid name
        ),
        gzip.open(source) as zipped,
    ):
        with tarfile.open(fileobj=zipped, mode="r|") as tar:
            for member in tar:
                data = tar.extractfile(member)
                if data is None or not member.isreg():
                    raise errors.StorageError(f"{source}: {member.name!r} does not belong in a backup")
                if about:
                    with _created(folder, member.name) as file:
                        shutil.copyfileobj(data, file)
                    files, size = files + 1, size + member.size
                    continue
                about = (jsonl.loads(data.read()) if member.name == ABOUT else None) or {}
                version, made_by = about.get("v"), about.get("shipmate")
                if not isinstance(version, int):
                    raise errors.StorageError(f"{source} is not a backup")
                if version > VERSION:
                    raise errors.StorageError(
                        f"{source} was made by Shipmate {made_by}, which is newer; use that"
                    )
        while zipped.read(1 << 20):  # reading to the end verifies the checksum
            pass
    if not about:
        raise errors.StorageError(f"{source} is not a backup")
    return Backup(files, size, about.get("running") is not False)


def _created(folder: Path, name: str) -> io.BufferedWriter:
    parts = PurePosixPath(name).parts
    bad = not parts or name.startswith("/") or not all(part.strip(".") for part in parts)
    if bad or parts[0] in _LEFT_OUT:
        raise errors.StorageError(f"{name!r} does not belong in a backup")
    path = folder.joinpath(*parts)
    for place in reversed(path.relative_to(folder).parents):
        (folder / place).mkdir(mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(handle, "wb")
