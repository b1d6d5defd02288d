"""Reserves disk space, so that running work can finish when the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.environment import Log
from bot.sizes import in_words

MOST = 16 * 1024 * 1024
"""Max bytes of the reserve. On a disk smaller than 256 MB, the reserve is 1/`SHARE` of the disk."""
SHARE = 16
PIECE = 256 * 1024
"""Number of bytes that are released at once. It is small, because the process that fills the disk may take the released
bytes.
"""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Free and total bytes of a file system, limited to those that this user may use. `total` is 0 if the file system
    does not report it.
    """

    free: int
    total: int

    @property
    def share(self) -> float:
        return self.free / self.total if self.total else 1.0

    def __str__(self) -> str:
        return f"{in_words(self.free)} of {in_words(self.total)} are free ({self.share:.0%})"


def space_of(folder: Path) -> DiskSpace:
    """Return the space of the file system that contains a folder. This call blocks. Raises OSError."""
    space = os.statvfs(folder)
    free = space.f_bfree if os.geteuid() == 0 else space.f_bavail
    return DiskSpace(space.f_frsize * free, space.f_frsize * space.f_blocks)


class DiskReserve:
    """An empty file whose allocated blocks reserve disk space. When the disk refuses a write, pieces of the file are
    released. Once the free space is 1.5 times the reserve, the file is allocated again. Until then no new work should
    begin. Thread-safe. If `path` is None, there is no reserve and `trouble` stays empty.
    """

    def __init__(self, path: Path | None, log: Log, *, most: int = MOST) -> None:
        self._path = path
        self._log = log
        self._most = most
        self._lock = threading.Lock()
        self._left = 0
        self.space: DiskSpace | None = None
        """Space of the disk at the last check."""
        self.trouble = ""
        """Reason why no new work should begin; "" while there is enough space."""

    @property
    def left(self) -> int:
        return self._left

    def look(self) -> bool:
        """Check the disk, and restore the reserve if there is enough space. Return True if the trouble has ended. The
        call blocks and raises nothing.
        """
        if self._path is None:
            return False
        with self._lock:
            try:
                trouble = self._mended(self._path)
            except OSError as error:
                trouble = f"the disk has no room for the reserve: {error.strerror}"
                with contextlib.suppress(OSError):
                    self._left = self._path.stat().st_size
            before, self.trouble = self.trouble, trouble
            if bool(trouble) != bool(before):
                self._tell(trouble)
            return bool(before and not trouble)

    def give(self) -> bool:
        if self._path is None:
            return False
        with self._lock:
            if not self.trouble:
                self.trouble = "the disk is full"
                self._tell(self.trouble)
            if not self._left:
                return False
            try:
                os.truncate(self._path, left := max(0, self._left - PIECE))
            except OSError:
                return False
            self._left = left
            if not left:
                self._log.write("storage", "the reserve on the disk is used up", level="error")
            return True

    def _mended(self, path: Path) -> str:
        self.space = space = space_of(path.parent)
        # Some file systems do not report their size.
        whole = min(self._most, space.total // SHARE or self._most)
        # Trouble ends only with more free space than it began with. Otherwise it could begin and end again and again.
        besides = whole + whole // 2 if self.trouble else whole
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._left = os.fstat(handle).st_size
            if self._left > whole:
                os.ftruncate(handle, whole)
            elif space.total and space.free < besides + (whole - self._left):
                return f"the disk is full: {in_words(space.free)} are free"
            elif self._left < whole:
                _allocate(handle, self._left, whole)
            self._left = whole
        finally:
            os.close(handle)
        return ""

    def _tell(self, trouble: str) -> None:
        if trouble:
            self._log.write("storage", f"{trouble}; nothing new is taken in", level="error", left=self._left)
        else:
            self._log.write("storage", "the disk has room again")


def _allocate(handle: int, begin: int, end: int) -> None:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, begin, end - begin)
            return
        for at in range(begin, end, PIECE):
            os.pwrite(handle, bytes(min(PIECE, end - at)), at)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, begin)
        raise
