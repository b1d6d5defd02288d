"""Provenance of project files that Shipmate has written. A text that was written while untrusted text was in the
model's context counts as untrusted when the file is read later.

A mark stores the provenance of the file at a path. The mark is removed when the file is completely rewritten without
untrusted text in the context, or when a person saves the file on the machine. Shipmate does not know which files a
command reads. Therefore a command marks every file that it changes if untrusted text is in the context, if it has
network access, or if it can read marked files. All functions here block.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import UserRef
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance, Taint, unpacked
from bot.file_access import is_hidden
from bot.system import SystemDisk

MOST = 2_000
"""Max number of files marked individually. Above it, marks cover the files' top-level folders, or the whole project."""
_SLACK = 50_000_000
"""Max nanoseconds by which the kernel's file timestamps may lag behind."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The provenance of a file's text, the channel that the ids in it belong to, and the file's mtime (ns)."""

    origin: Provenance
    channel: str
    saved: int


class FileProvenance:
    """The marked files of one project, stored in `file`. Without a `file`, the marks are only in memory. Text written
    by `operators` needs no mark.
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
        self._marks: dict[str, _Mark] = {}
        self._folders: set[str] = set()
        """Marked folders; a mark covers everything in the folder. "" is the project itself."""
        self._running: dict[str, int] = {}
        """Start time of each running command or write. The files that it changes must be marked."""
        self._inodes: dict[int, _Mark] = {}
        """Marks by inode, of the files that were marked when the newest command started. A command may move a folder
        with marked files. The inodes then identify these files.
        """
        self._load()

    def of(self, path: str, channel: str | None) -> Provenance:
        """Return the provenance of the text of a file. The path is relative to the project's folder."""
        with self._lock:
            if any(one in {"", path} or path.startswith(f"{one}/") for one in self._folders):
                return ANYBODYS
            return _united([self._marks[path]] if self._holds(path) else [], channel)

    def under(self, path: str, channel: str | None) -> Provenance:
        """Return the provenance of the names of the files at and below a path."""
        with self._lock:
            if self._folders:
                return ANYBODYS
            inner = f"{path}/" if path not in {"", "."} else ""
            named = [mark for one, mark in self._marks.items() if one.startswith(inner) and self._state(one)]
            return _united(named, channel)

    def whole(self, channel: str | None) -> Provenance:
        """Return the combined provenance of all files."""
        with self._lock:
            if self._folders or self._running:
                return ANYBODYS
            return _united([mark for path, mark in self._marks.items() if self._holds(path)], channel)

    def foreign_names(self) -> frozenset[str] | None:
        """Return the names at the top of the project that strangers may have chosen: marked files, and folders that
        contain only marked files. None means that strangers may have chosen any name.
        """
        with self._lock:
            if "" in self._folders or self._running:
                return None
            marked = {path for path in self._marks if self._holds(path)} | self._folders
            tops = {path.partition("/")[0] for path in marked}
            return frozenset(top for top in tops if all(path in marked for path in self._files(top)))

    @contextlib.contextmanager
    def writing(self, path: str, origin: Provenance, channel: str | None, *, whole: bool) -> Iterator[None]:
        """Mark a file that is written inside the `with` block, if the provenance requires a mark. If `whole` is True,
        the file is written completely. After a crash in the block, anybody counts as the author of the file. Raises
        OSError.
        """
        with self._lock:
            if not whole and (old := self._marks.get(path)) is not None:
                origin |= _united([old], channel)
            self.begin(path, origin, channel)
            marked = path in self._running
            try:
                yield
                self._marks.pop(path, None)
                if marked:
                    self._marks[path] = _Mark(origin, channel or "", (self._root / path).stat().st_mtime_ns)
            finally:
                self._running.pop(path, None)
                if marked or self._marks:
                    self._save()

    def begin(self, name: str, origin: Provenance, channel: str | None) -> None:
        """Record that a command starts, and the provenance of the text that the command may write. Raises OSError."""
        with self._lock:
            others = {one for one in origin.people if UserRef(channel or "", one) not in self._operators}
            if origin.taint < Taint.FOREIGN and not others:
                return
            for path, mark in self._marks.items():
                if (state := self._state(path)) is not None and state.st_mtime_ns == mark.saved:
                    self._inodes[state.st_ino] = mark
            self._running[name] = time.time_ns() - _SLACK
            self._save()

    def end(self, name: str, origin: Provenance, channel: str | None) -> None:
        """Record that a command has ended, and mark the files that it changed. Raises OSError."""
        with self._lock:
            if name in self._running:
                self._sweep(self._running[name], origin, channel)
                del self._running[name]
                if not self._running:
                    self._inodes.clear()
                self._save()

    def _holds(self, path: str) -> bool:
        """Return True if a path is marked and the file has not been saved again since."""
        mark, state = self._marks.get(path), self._state(path)
        return mark is not None and state is not None and mark.saved == state.st_mtime_ns

    def _state(self, path: str) -> os.stat_result | None:
        try:
            return (self._root / path).lstat()
        except OSError:
            return None

    def _sweep(self, since: int, origin: Provenance, channel: str | None) -> None:
        """Mark every file that was changed since this time, and every marked file that has a new name."""
        found: dict[str, _Mark] = {}
        for path in self._files(""):
            state = self._state(path)
            if state is not None and state.st_ctime_ns >= since:
                found[path] = _Mark(origin, channel or "", state.st_mtime_ns)
            elif state is not None and state.st_ino in self._inodes:
                found[path] = self._inodes[state.st_ino]
            if len(found) > MOST:
                self._folders |= {one.partition("/")[0] if "/" in one else "" for one in found}
                found.clear()
        self._marks = {path: mark for path, mark in self._marks.items() if os.path.lexists(self._root / path)}
        self._marks |= found
        if len(self._marks) > MOST:
            self._folders.add("")

    def _files(self, path: str) -> Iterator[str]:
        """Yield the file at a path, or all files below a folder. Empty folders are yielded too, because their names can
        carry text.
        """
        left = [path]
        while left:
            here = left.pop()
            try:
                with os.scandir(self._root / here) as found:
                    entries = [entry for entry in found if not is_hidden(entry.name)]
            except NotADirectoryError:
                entries = []
            except OSError:
                continue
            if not entries and here:
                yield here
            for entry in entries:
                inner = f"{here}/{entry.name}" if here else entry.name
                if entry.is_dir(follow_symlinks=False):
                    left.append(inner)
                else:
                    yield inner

    def _load(self) -> None:
        try:
            raw = self._disk.read(self._file) if self._file is not None else b""
            state: Json = json.loads(raw) if raw else {}
            self._marks = {
                path: _Mark(unpacked(mark["origin"]), str(mark["channel"]), int(mark["saved"]))
                for path, mark in state.get("files", {}).items()
            }
            self._folders = set(map(str, state.get("folders", ())))
            running = list(map(int, state.get("begun", ())))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            # The list of written files is lost, so every file may contain anybody's text.
            self._folders = {""}
            return
        if running:
            # A command was running when the process was killed.
            self._sweep(min(running), ANYBODYS, "")
            self._save()

    def _save(self) -> None:
        if self._file is not None:
            state = {
                "v": 1,
                "files": {
                    path: {"origin": mark.origin.packed(), "channel": mark.channel, "saved": mark.saved}
                    for path, mark in sorted(self._marks.items())
                },
                "folders": sorted(self._folders),
                "begun": sorted(self._running.values()),
            }
            self._disk.replace(self._file, json.dumps(state, ensure_ascii=False).encode() + b"\n")


def _united(marks: list[_Mark], channel: str | None) -> Provenance:
    """Return the combined provenance of several marks. Ids of another channel mean nothing on this channel. A mark with
    such ids counts as anybody's.
    """
    origin = NOBODYS
    for mark in marks:
        origin |= mark.origin if mark.channel == (channel or "") else ANYBODYS
    return origin
