"""Provenance of project files that Shipmate has written: text written while foreign text was in view comes back as
foreign, not as the project's own.

A file is recognised by its path, or by its inode under another name, until it changes: a change from outside of
Shipmate makes it the project's own. A command's reads and writes are not known: while it runs with foreign text in
view, with a network, or beside such files, everything it changes counts as foreign. Everything here is blocking.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance, Taint, unpacked
from bot.hidden_paths import is_hidden
from bot.system import SystemDisk
from bot.tools import context
from bot.tools.permissions import taint

MOST = 2_000
"""Files that are known one by one; where there are more, their folders are, with all that is in them."""
VISITS = 500_000
"""Entries of the project that are looked at after a command."""
SLACK = 50_000_000
"""Nanoseconds by which a file may seem older than it is: the kernel's clock for files is a coarse one."""
_V, _FILES, _FOLDERS, _BEGUN = "v", "files", "folders", "begun"


@dataclass(frozen=True, slots=True)
class _Mark:
    """Provenance of a file, the channel of its people's ids, and the state of the file."""

    origin: Provenance
    channel: str
    inode: int
    mtime: int
    size: int

    def fits(self, found: os.stat_result) -> bool:
        return (self.mtime, self.size) == (found.st_mtime_ns, found.st_size)


class FileProvenance:
    """The marks of one project, kept in `file`; without one, in memory alone. The words of `operators`
    need no mark.
    """

    def __init__(
        self,
        root: Path,
        file: Path | None = None,
        operators: Collection[UserRef] = frozenset(),
        disk: Disk | None = None,
    ) -> None:
        self._root = root.resolve()
        self._disk = disk or SystemDisk()
        self._file = file
        self._operators = operators
        self._lock = threading.RLock()
        self._files: dict[str, _Mark] = {}
        self._folders: set[str] = set()
        self._begun: dict[str, int] = {}
        self._loaded = False

    def of(self, path: str, channel: str | None, found: os.stat_result | None = None) -> Provenance:
        """Provenance of a file, or of a folder's name, by its path below the project's folder."""
        with self._ready():
            if any(one in {"", path} or path.startswith(f"{one}/") for one in self._folders):
                return ANYBODYS
            if found is None:
                found = self._stat(path)
            marks = [
                mark for mark in self._files.values() if found is not None and mark.inode == found.st_ino
            ]
            if path in self._files:
                marks.append(self._files[path])
            return _united([mark for mark in marks if found is not None and mark.fits(found)], channel)

    def under(self, path: str, channel: str | None) -> Provenance:
        """Provenance of the names on this path and below it."""
        with self._ready():
            inner = f"{path}/" if path not in {"", "."} else ""
            if self._folders:
                return ANYBODYS
            names = [name for name in self._files if name.startswith(inner) and self._stat(name) is not None]
            return _united([self._files[name] for name in names], channel)

    def whole(self, channel: str | None) -> Provenance:
        """Provenance of all files that are unchanged since they were written."""
        with self._ready():
            if self._folders or self._begun:
                return ANYBODYS
            known = ((mark, self._stat(path)) for path, mark in self._files.items())
            return _united([mark for mark, found in known if found is not None and mark.fits(found)], channel)

    def named(self) -> frozenset[str] | None:
        """The paths whose names may be words of others: files that are still as they were left, and folders in which nothing
        else is. None where that may be any.
        """
        with self._ready():
            if "" in self._folders or self._begun:
                return None
            found = ((path, mark, self._stat(path)) for path, mark in self._files.items())
            theirs = {path for path, mark, state in found if state is not None and mark.fits(state)}
            theirs |= self._folders
            around = {str(one) for path in theirs for one in Path(path).parents} - {"."}
            for folder in sorted(around, key=lambda one: -one.count("/")):
                with contextlib.suppress(OSError), os.scandir(self._root / folder) as entries:
                    if all(f"{folder}/{entry.name}" in theirs for entry in entries):
                        theirs.add(folder)
            return frozenset(theirs)

    @contextlib.contextmanager
    def writing(self, path: str, origin: Provenance, channel: str | None, *, whole: bool) -> Iterator[None]:
        """Record that the block writes a file with words of this origin; `whole`: it replaces the file. After a crash
        within the block the file counts as anybody's. Raises OSError.
        """
        with self._ready():
            if not whole and (old := self._files.get(path)) is not None:
                origin |= old.origin if old.channel == (channel or "") else ANYBODYS
            self.begin(path, origin, channel)
            try:
                yield
                found = self._stat(path)
                if self._clean(origin, channel) or found is None:
                    self._files.pop(path, None)
                else:
                    self._files[path] = _mark(origin, channel, found)
            finally:
                if self._begun.pop(path, None) is not None or self._files:
                    self._save()

    def begin(self, name: str, origin: Provenance, channel: str | None) -> None:
        """A command of this name begins; what it changes has words of this origin. Raises OSError."""
        with self._ready():
            if not self._clean(origin, channel):
                # The time as files have it.
                self._begun[name] = self._save()
                self._save()

    def end(self, name: str, origin: Provenance, channel: str | None) -> None:
        """It has ended. Raises OSError."""
        with self._ready():
            if name in self._begun:
                self._sweep(self._begun[name], origin, channel)
                del self._begun[name]
                self._save()

    # ------------------------------------------------------------ inside

    def _clean(self, origin: Provenance, channel: str | None) -> bool:
        others = {one for one in origin.people if UserRef(channel or "", one) not in self._operators}
        return origin.taint < Taint.FOREIGN and not others

    @contextlib.contextmanager
    def _ready(self) -> Iterator[None]:
        with self._lock:
            if not self._loaded:
                self._load()
                self._loaded = True
            yield

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return (self._root / path).lstat()
        except OSError:
            return None

    def _sweep(self, since: int, origin: Provenance, channel: str | None) -> None:
        """Mark what was changed since then, or has another name now."""
        moved = {mark.inode: mark for mark in self._files.values()}
        found: dict[str, _Mark] = {}
        folders: set[str] = set()
        for path, facts in self._walk():
            if facts.st_ctime_ns >= since - SLACK:
                found[path] = _mark(origin, channel, facts)
            elif facts.st_ino in moved and moved[facts.st_ino].fits(facts):
                found[path] = moved[facts.st_ino]
            if len(found) > MOST:
                folders |= {name.partition("/")[0] if "/" in name else "" for name in found}
                found.clear()
        self._files = {path: mark for path, mark in self._files.items() if self._stat(path) is not None}
        self._files |= found
        if len(self._files) > MOST:
            folders.add("")
        self._folders |= folders

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        left, seen = [""], 0
        while left:
            folder = left.pop()
            try:
                with os.scandir(self._root / folder) as found:
                    entries = list(found)
                if not entries and folder:
                    # Its name is all that there is of it; any other stands in the paths below it.
                    yield folder, (self._root / folder).lstat()
            except OSError:
                continue  # gone meanwhile, or not to be read
            for entry in entries:
                seen += 1
                if is_hidden(entry.name):
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                if seen > VISITS:
                    self._folders.add("")
                    return
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        left.append(path)
                    else:
                        yield path, entry.stat(follow_symlinks=False)

    def _load(self) -> None:
        try:
            raw = self._disk.read(self._file) if self._file is not None else b""
            about: Json = json.loads(raw) if raw else {}
            self._files = {path: _read(facts) for path, facts in about.get(_FILES, {}).items()}
            self._folders = set(map(str, about.get(_FOLDERS, ())))
            begun = list(map(int, about.get(_BEGUN, ())))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError):
            # Nobody knows any more what was written: all of it may be anybody's.
            self._folders = {""}
            return
        if begun:
            # A command was cut off.
            self._sweep(min(begun), ANYBODYS, "")
            self._save()

    def _save(self) -> int:
        """Write the marks down; when that was, as the disk has it."""
        if self._file is None:
            return time.time_ns()
        about = {
            _V: 1,
            _FILES: {path: _written(mark) for path, mark in sorted(self._files.items())},
            _FOLDERS: sorted(self._folders),
            _BEGUN: sorted(self._begun.values()),
        }
        self._disk.replace(self._file, json.dumps(about, ensure_ascii=False).encode() + b"\n")
        return self._file.stat().st_ctime_ns


def provenance_in_view() -> Provenance:
    """Provenance of the messages that the running turn has in view, and so of all that it writes."""
    return taint.seen(context.view())


def _mark(origin: Provenance, channel: str | None, found: os.stat_result) -> _Mark:
    return _Mark(origin, channel or "", found.st_ino, found.st_mtime_ns, found.st_size)


def _united(marks: list[_Mark], channel: str | None) -> Provenance:
    """Their words together; ids of another channel say nothing here."""
    origin = NOBODYS
    for mark in marks:
        origin |= mark.origin if mark.channel == (channel or "") else ANYBODYS
    return origin


def _written(mark: _Mark) -> Json:
    return {
        "origin": mark.origin.packed(),
        "channel": mark.channel,
        "state": [mark.inode, mark.mtime, mark.size],
    }


def _read(facts: Mapping[str, object]) -> _Mark:
    state = facts["state"]
    if not isinstance(state, list):
        raise TypeError("no state")
    inode, mtime, size = map(int, state)
    return _Mark(unpacked(facts["origin"]), str(facts["channel"]), inode, mtime, size)
