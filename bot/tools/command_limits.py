"""Limits of one command. The kernel's rlimits cover memory, processes, file size and processor time. A usage
check covers what rlimits do not: the number of root's processes, and disk space.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = 512
_ROOM = 'for one in {}; do ulimit ${{one%=*}} ${{one#*=}} 2>/dev/null; done; exec "$@"'
"""Shell line that sets the limits. Errors are ignored, because a limit that cannot be set is already lower."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Limits of a command. Per process: memory (data segment), processor time and file size. Per command:
    number of processes and disk space. There is also a size limit for each of `/tmp` and `/dev/shm`. None
    means that Shipmate sets no limit.
    """

    memory_mb: int | None = 4_096
    processes: int | None = 512
    file_mb: int | None = 1_024
    cpu_seconds: int | None = 600
    disk_mb: int | None = 4_096
    tmp_mb: int | None = 512

    def around(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command wrapped so that it runs within these limits."""
        wanted = {
            "-d": self.memory_mb and self.memory_mb * 1024,
            "-f": self.file_mb and self.file_mb * 1024 * 1024 // _BLOCK,
            "-t": self.cpu_seconds,
            # The `ulimit` option for the number of processes has different letters in bash and dash.
            "-u": self.processes,
            "-p": self.processes,
            "-c": 0,
        }
        given = " ".join(f"{letter}={most}" for letter, most in wanted.items() if most is not None)
        return ["/bin/sh", "-c", _ROOM.format(given), "sh", *words]


_MB = 1024 * 1024
_SHARE = 2
"""Divisor of the free bytes and inodes: a command may use at most 1/_SHARE of each."""
FILES = 500_000
"""Max files that one command may create."""
SEARCH = 1.0
"""Timeout in seconds for finding out whether this command filled the disk."""


@dataclass(slots=True)
class CommandUsage:
    """Measures the resources that one command uses, starting when the object is created. All methods block."""

    root: Path
    limits: CommandLimits
    _began: float = field(init=False)
    _free: int = field(init=False)
    _places: int = field(init=False)
    _looked: int = field(init=False, default=0)
    """Number of bytes that the command had written when its files were last searched."""

    def __post_init__(self) -> None:
        self._began = time.time()
        self._free, self._places = free_space(self.root)

    def __call__(self, pid: int) -> str | None:
        """Return the limit that the command exceeds, or None. See `processes.LimitCheck`."""
        most = self.limits.processes
        if most is not None and _more_than(most, pid):
            return f"it had more than {most} processes"
        if self.limits.disk_mb is None:
            return None
        room = min(self.limits.disk_mb * _MB, self._free // _SHARE)
        places = min(FILES, self._places // _SHARE) if self._places else FILES
        free, left = free_space(self.root)
        if self._places - left > places:
            return f"it had made more than {places:,} files"
        filled = self._free - free > room
        written = _written(pid)
        if filled or written - self._looked > room:
            # Space that other programs freed would hide what this command filled. Its write counters show when to search its files.
            self._looked = written
            if self._wrote(room, pid, unsure=filled):
                return f"it had written more than {max(1, room // _MB):,} MB"
        return None

    def _wrote(self, room: int, pid: int, *, unsure: bool) -> bool:
        """Return True if the files changed by this command, plus its open files without a name, exceed
        `room` bytes. Returns `unsure` if the search times out.
        """
        until = time.monotonic() + SEARCH
        for size in self._changed(pid):
            room -= size
            if room < 0:
                return True
            if time.monotonic() > until:
                return unsure
        return False

    def _changed(self, pid: int) -> Iterator[int]:
        for found in _open(pid):
            if not found.st_nlink and found.st_ctime >= self._began - 1:
                yield _size(found)
        for folder, _, names in os.walk(self.root):
            yield 0
            for name in names:
                with contextlib.suppress(OSError):
                    found = os.lstat(f"{folder}/{name}")
                    if stat.S_ISREG(found.st_mode) and found.st_ctime >= self._began - 1:
                        yield _size(found)


def _size(found: os.stat_result) -> int:
    return found.st_blocks * 512


def free_space(root: Path) -> tuple[int, int]:
    """Return the free bytes and the free inodes of a file system."""
    found = os.statvfs(root)
    return found.f_bavail * found.f_frsize, found.f_favail


def _more_than(most: int, pid: int) -> bool:
    """Return True if a process has more than `most` descendants. Threads count as descendants."""
    return any(number >= most for number, _ in enumerate(_threads(pid), -_OURS))


_OURS = 4
"""Max processes that the sandbox itself needs."""


def _threads(pid: int) -> Iterator[tuple[int, int]]:
    """Return the threads of a process and of its descendants."""
    left = [pid]
    while left:
        one = left.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                yield one, int(thread.name)
                with contextlib.suppress(OSError):
                    children = (thread / "children").read_bytes()
                    left += map(int, children.split())


def _written(pid: int) -> int:
    """Return the number of bytes written by a process and its descendants to files, pipes and terminals.
    Descendants that have ended are included.
    """
    total = 0
    for one in dict.fromkeys(process for process, _ in _threads(pid)):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one}/io").read_text(encoding="ascii").splitlines()
            counts = dict(line.split(": ") for line in lines)
            total += max(int(counts["wchar"]), int(counts["write_bytes"]))
    return total


def _open(pid: int) -> Iterator[os.stat_result]:
    """Return the regular files that a process and its descendants have open."""
    for one in dict.fromkeys(process for process, _ in _threads(pid)):
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{one}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found = handle.stat()
                    if stat.S_ISREG(found.st_mode):
                        yield found
