"""Reserves disk space, so that running work can finish when the disk is full."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from bot import text
from bot.contracts.environment import Log

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
    """Bytes of a file system: `free` for this user, and `total`."""

    free: int
    total: int

    @property
    def share(self) -> float:
        return self.free / self.total if self.total else 1.0

    def __str__(self) -> str:
        return f"{text.byte_count(self.free)} of {text.byte_count(self.total)} are free ({self.share:.0%})"


def space_of(folder: Path) -> DiskSpace:
    """Return the space of the file system that contains a folder. This call blocks. Raises OSError."""
    space = os.statvfs(folder)
    free = space.f_bfree if os.geteuid() == 0 else space.f_bavail
    return DiskSpace(space.f_frsize * free, space.f_frsize * space.f_blocks)


@dataclass(eq=False)
class DiskReserve:
    """An empty file whose allocated blocks reserve disk space. When the disk refuses a write, pieces of the file are
    released. Once the free space is 1.5 times the reserve, the file is allocated again. Until then no new work should
    begin. Thread-safe.
    """

    path: Path
    log: Log
    most: int = MOST

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.space: DiskSpace | None = None
        """Space of the disk at the last check."""
        self.trouble = ""
        """Reason why no new work should begin; "" while there is enough space."""

    @property
    def left(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def look(self) -> None:
        """Check the disk, and restore the reserve if there is enough space. The call blocks and raises nothing."""
        with self._lock:
            try:
                self._set(self._restored())
            except OSError as error:
                self._set(f"the disk has no room for the reserve: {error.strerror}")

    def give(self) -> bool:
        """Release a piece of the reserve. Return False if the reserve is used up, or if the disk refuses the change."""
        with self._lock:
            self._set(self.trouble or "the disk is full")
            if not (left := self.left):
                return False
            try:
                os.truncate(self.path, max(0, left - PIECE))
            except OSError:
                return False
            if left <= PIECE:
                self.log.write("storage", "the reserve on the disk is used up", level="error")
            return True

    def _restored(self) -> str:
        """Restore the reserve. Return the reason if there is not enough space; otherwise ""."""
        self.space = space = space_of(self.path.parent)
        whole = min(self.most, space.total // SHARE or self.most)
        # Trouble ends only when 1.5 times the reserve is free. With one limit for begin and end, it could begin and
        # end again and again.
        besides = whole + whole // 2 if self.trouble else whole
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            left = os.fstat(handle).st_size
            if space.total and space.free < besides + whole - left:
                return f"the disk is full: {text.byte_count(space.free)} are free"
            try:
                if hasattr(os, "posix_fallocate") and left < whole:
                    os.posix_fallocate(handle, left, whole - left)
                else:
                    os.pwrite(handle, bytes(max(0, whole - left)), left)
            except OSError:
                os.ftruncate(handle, left)
                raise
            os.ftruncate(handle, whole)
        finally:
            os.close(handle)
        return ""

    def _set(self, trouble: str) -> None:
        before, self.trouble = self.trouble, trouble
        if trouble and not before:
            self.log.write("storage", f"{trouble}; nothing new is taken in", level="error", left=self.left)
        elif before and not trouble:
            self.log.write("storage", "the disk has room again")
