"""Disk space and memory of the process. A reserve on the disk lets running work finish on a full disk. Close to the memory limit,
memory is freed; above the limit, files are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bot import text
from bot.contracts.environment import Clock, Log

MOST = 16 * 1024 * 1024
"""Max bytes of the reserve. On a disk smaller than 256 MB, the reserve is 1/`SHARE` of the disk."""
SHARE = 16
PIECE = 256 * 1024
"""Number of bytes released at once. The number is small, because the process that fills the disk may take the bytes."""
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
        # Trouble ends only when 1.5 times the reserve is free. With one limit for begin and end, trouble could begin and end
        # again and again.
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


SHRINK_ABOVE = 0.85  # Share of the memory limit above which memory is freed
LOOK_EVERY = 5.0  # Interval in seconds between two checks of the memory in use
FREEZE_SECONDS = 0.01
"""If a full collection takes longer than this, the objects that survived the collection are frozen (`gc.freeze`). Later
collections then scan only new objects.
"""
THAW_EVERY = 300.0
"""Min interval in seconds between two collections that include frozen objects. Such a collection may take 100 ms."""
THRESHOLDS = (20_000, 8, 1_000_000)
"""Thresholds of the interpreter's automatic garbage collection. Young objects are collected 30 times less often than by
default; only `look` collects old objects. With the default thresholds, garbage collection takes a sixteenth of the CPU
time of a message.
"""
FULL_EVERY = 60.0  # Interval in seconds between two full collections while memory use is normal
NEW = 60_000
"""Number of new objects that starts a full collection before `FULL_EVERY` has passed. Such a collection takes about 10 ms."""
_MB = 1024 * 1024
_M_ARENA_MAX = -8  # number of a parameter of mallopt(3)


def resident() -> int | None:
    """Return the resident memory of the process in bytes; None if the system does not report it (macOS)."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def trim() -> None:
    """Return freed memory to the system (glibc). The call blocks, but it releases the GIL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def one_heap() -> None:
    """Make all threads that start later share one heap (glibc). Otherwise a thread cannot use memory that another
    thread has freed, which wastes 4 MB in 100,000 events.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


@dataclass(eq=False)
class RssMonitor:
    """Runs full garbage collections on the event loop, because finalisers must run there. Above 85 % of the memory
    limit, each check also returns freed memory to the system.
    """

    limit_mb: int
    clock: Clock
    log: Log
    read: Callable[[], int | None] = resident
    give_back: Callable[[], object] = trim

    def __post_init__(self) -> None:
        self.limit = self.limit_mb * _MB
        self.used: int | None = None
        """Bytes of memory used at the last check; None if unknown."""
        self._thresholds = gc.get_threshold()
        self._collected = self.clock.monotonic()
        self._thawed = float("-inf")
        self._short = False

    @property
    def full(self) -> bool:
        """Return True while the process uses more memory than the limit. Callers then refuse files."""
        return self.used is not None and self.used > self.limit

    def start(self) -> None:
        """Make the interpreter's automatic collections rare."""
        gc.set_threshold(*THRESHOLDS)

    def stop(self) -> None:
        gc.set_threshold(*self._thresholds)

    async def look(self) -> None:
        """Measure the memory in use, and free memory if necessary."""
        was_full, now, self.used = self.full, self.clock.monotonic(), self.read()
        short = self.used is not None and self.used > self.limit * SHRINK_ABOVE
        if short:
            before = self.used
            if thaws := now - self._thawed >= THAW_EVERY:
                self._thawed = now
                gc.unfreeze()
            self._collect()
            await asyncio.to_thread(self.give_back)
            self.used = self.read()
            if not self._short:
                words = f"memory is short: {_words(before)}; garbage was collected, now {_words(self.used)}"
                self.log.write("memory", words, level="warn", full_collection=thaws)
        else:
            young, some, many = gc.get_count()
            first, second, _ = gc.get_threshold()
            new = young + first * (some + second * many)  # approximate number since the last full collection
            if now - self._collected >= FULL_EVERY or new >= NEW:
                self._collect()
        self._short = short
        if self.full != was_full:
            words = f"the process takes {_words(self.used)} of {_words(self.limit)} (memory.limitMb)"
            words += ": files are refused" if self.full else ": files are taken again"
            self.log.write("memory", words, level="error" if self.full else "info")

    def _collect(self) -> None:
        began = self.clock.monotonic()
        gc.collect()
        self._collected = self.clock.monotonic()
        if self._collected - began > FREEZE_SECONDS:
            gc.freeze()


def _words(used: int | None) -> str:
    return f"{(used or 0) / _MB:.0f} MB"
