"""Provenance of project files that tools or commands wrote while untrusted text was in the model's context.

A mark stores the provenance of the file at a path. A mark ends when the file is completely rewritten without untrusted
text in the context, or when a person saves the file on the machine. All methods block.
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
"""Max number of files marked individually. Above this number, marks cover the files' top-level folders, or the whole project."""
_SLACK = 50_000_000
"""Max nanoseconds by which the kernel's file timestamps may lag behind the clock."""
_Stamp = tuple[int, int]
"""Inode and mtime (ns) of a file. Inode and mtime stay the same when a command moves the file or a folder above it."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The provenance of a file's text, the channel that the ids in the provenance belong to, and the state of the file
    when it was marked. If `stamp` is None, the mark covers every state, and everything below the path.
    """

    origin: Provenance = ANYBODYS
    channel: str = ""
    stamp: _Stamp | None = None


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
        self._running: list[int] = []
        """Start times (ns) of the running commands that may write untrusted text."""
        self._load()

    def of(self, path: str, channel: str | None) -> Provenance:
        """Return the provenance of a file, or of all names and files below a folder. The path is relative to the
        project's folder; "" and "." are the project's folder.
        """
        path = "" if path == "." else path
        with self._lock:
            marks = [mark for one, mark in self._marks.items() if _below(path, one) and self._holds(one)]
            if self._running or any(
                one.stamp is None and _below(at, path) for at, one in self._marks.items()
            ):
                return ANYBODYS
        origin = NOBODYS
        for mark in marks:
            # Ids of another channel mean nothing on this channel, so the text counts as anybody's.
            origin |= mark.origin if mark.channel == (channel or "") else ANYBODYS
        return origin

    @contextlib.contextmanager
    def writing(self, path: str, origin: Provenance, channel: str | None, *, whole: bool) -> Iterator[None]:
        """Mark a file that is written inside the `with` block, if the provenance requires a mark. If `whole` is True,
        the file is written completely. After a crash in the block, anybody counts as the author of the file. Raises
        OSError.
        """
        with self._lock:
            old = self._marks.get(path)
            origin |= NOBODYS if whole else self.of(path, channel)
            if old is None and not self._must_be_marked(origin, channel):
                yield
                return
            self._marks[path] = _Mark()
            self._save()
            new = old
            try:
                yield
                marked = self._must_be_marked(origin, channel)
                new = _Mark(origin, channel or "", self._stamp(path)) if marked else None
            finally:
                del self._marks[path]
                self._marks |= {path: new} if new is not None else {}
                self._save()

    def begin(self, origin: Provenance, channel: str | None) -> int | None:
        """Record that a command starts, and the provenance of the text that the command may write. Return a value for
        `end`. Raises OSError.
        """
        if not self._must_be_marked(origin, channel):
            return None
        with self._lock:
            began = time.time_ns() - _SLACK
            self._running.append(began)
            self._save()
            return began

    def end(self, began: int | None, origin: Provenance, channel: str | None) -> None:
        """Record that a command has ended, and mark the files that it changed or moved. Raises OSError."""
        if began is not None:
            with self._lock:
                self._sweep(began, origin, channel)
                self._running.remove(began)
                self._save()

    def _must_be_marked(self, origin: Provenance, channel: str | None) -> bool:
        others = any(UserRef(channel or "", one) not in self._operators for one in origin.people)
        return others or origin.taint == Taint.FOREIGN

    def _stamp(self, path: str) -> _Stamp | None:
        with contextlib.suppress(OSError):
            found = (self._root / path).lstat()
            return found.st_ino, found.st_mtime_ns
        return None

    def _holds(self, path: str) -> bool:
        return self._marks[path].stamp in {None, self._stamp(path)}

    def _sweep(self, since: int, origin: Provenance, channel: str | None) -> None:
        """Mark every file that was changed after `since`, and every marked file that has a new name."""
        known = {mark.stamp: mark for mark in self._marks.values()}
        found: dict[str, _Mark] = {}
        for path in self._files(""):
            with contextlib.suppress(OSError):
                state = (self._root / path).lstat()
                stamp = state.st_ino, state.st_mtime_ns
                if state.st_ctime_ns >= since:
                    found[path] = _Mark(origin, channel or "", stamp)
                elif stamp in known:
                    found[path] = known[stamp]
        if len(found) > MOST:
            found = {path.partition("/")[0] if "/" in path else "": _Mark() for path in found}
        self._marks = {path: mark for path, mark in self._marks.items() if mark.stamp is None} | found

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
            for path, mark in state.get("files", {}).items():
                inode = (
                    mark["inode"] if "inode" in mark else (self._stamp(path) or (0,))[0]
                )  # Version 0.1 stored no inodes.
                stamp = (int(inode), int(mark["saved"]))
                self._marks[path] = _Mark(unpacked(mark["origin"]), str(mark["channel"]), stamp)
            self._marks |= {str(path): _Mark() for path in state.get("folders", ())}
            running = list(map(int, state.get("begun", ())))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            # The list of written files is lost, so every file may contain anybody's text.
            self._marks = {"": _Mark()}
            return
        if running:  # a command was running when the process was killed
            self._sweep(min(running), ANYBODYS, "")
            self._save()

    def _save(self) -> None:
        if self._file is not None:
            files = {
                path: {
                    "origin": one.origin.packed(),
                    "channel": one.channel,
                    "inode": one.stamp[0],
                    "saved": one.stamp[1],
                }
                for path, one in sorted(self._marks.items())
                if one.stamp is not None
            }
            folders = sorted(path for path, one in self._marks.items() if one.stamp is None)
            state = {"v": 1, "files": files, "folders": folders, "begun": sorted(self._running)}
            self._disk.replace(self._file, json.dumps(state, ensure_ascii=False).encode() + b"\n")


def _below(upper: str, lower: str) -> bool:
    return upper in {"", lower} or lower.startswith(f"{upper}/")
