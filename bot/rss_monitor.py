"""Limits the process's memory. Close to the limit, memory is freed. Above the limit, files are refused."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bot.contracts.environment import Clock, Log
from bot.words import Sentence, sentence

SHRINK_ABOVE = 0.85
"""Share of the memory limit above which memory is freed."""
LOOK_EVERY = 5.0
"""Interval in seconds between two checks."""
LONGEST_PAUSE = 0.04
"""Max seconds for which a full garbage collection may block. After a collection that took longer, only young objects
are collected.
"""
LEFT_OUT_ABOVE = 0.01
"""If a full collection takes more seconds than this, the objects that survived it are frozen. The next collection then
scans only new objects.
"""
PAUSED_FOR = 300.0
"""Interval in seconds before a full collection is tried again, after one that took too long."""
THRESHOLDS = (20_000, 8, 1_000_000)
"""Thresholds of the interpreter's automatic garbage collection. Young objects are collected 30 times less often than by
default; only `maintain` collects old objects. With the default thresholds, garbage collection takes a sixteenth of the
CPU time of a message.
"""
FULL_EVERY = 60.0
"""Interval in seconds between two full collections while memory use is normal."""
NEW = 60_000
"""Number of new objects that starts a full collection before `FULL_EVERY` has passed. It takes about 10 ms then."""
_MB = 1024 * 1024
_STATM = Path("/proc/self/statm")
_M_ARENA_MAX = -8  # of mallopt(3)


def resident(statm: Path = _STATM) -> int | None:
    """Return the resident memory of the process in bytes; None if the system does not report it (macOS)."""
    try:
        return int(statm.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


class GarbageCollector:
    """Runs full garbage collections, as long as they are short.

    They run on the event loop, because finalisers must run there. A separate thread would block the interpreter too.
    Each collection is timed, including the interpreter's automatic ones.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0.0
        self._ended = clock.monotonic()
        self._took = 0.0
        self._thresholds = gc.get_threshold()
        self._frozen = False

    def start(self) -> None:
        """Measure collections, and make the interpreter's automatic collections rare."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._timed)

    def stop(self) -> None:
        if self._timed in gc.callbacks:
            gc.callbacks.remove(self._timed)
            gc.set_threshold(*self._thresholds)

    def maintain(self) -> None:
        """Run a full collection once a minute, or earlier if there are many new objects. If it took long, freeze the
        surviving objects.
        """
        if self._clock.monotonic() - self._ended < FULL_EVERY and new_objects() < NEW:
            return
        gc.collect()
        if self._took > LEFT_OUT_ABOVE:
            gc.freeze()
            self._frozen = True

    def collect(self) -> bool:
        """Run a full collection that includes frozen objects, if this is quick. Otherwise collect only young objects.
        Return True for a full collection.
        """
        quick = self._took <= LONGEST_PAUSE or self._clock.monotonic() - self._ended > PAUSED_FOR
        if quick and self._frozen:
            gc.unfreeze()
            self._frozen = False
        gc.collect(2 if quick else 1)
        return quick

    def _timed(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != 2:
            return
        now = self._clock.monotonic()
        if phase == "start":
            self._began = now
        else:
            self._ended, self._took = now, now - self._began


def new_objects() -> int:
    """Return the approximate number of new objects since the last full collection."""
    young, some, many = gc.get_count()
    first, second, _ = gc.get_threshold()
    return young + first * (some + second * many)


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


class TroubleReporter(Protocol):
    """Receives a report when trouble begins and when it ends (`bot.core.operators.OperatorAlerts`)."""

    def begin(self, subject: str, words: Sentence) -> object: ...
    def end(self, subject: str, words: Sentence) -> object: ...


class RssMonitor:
    """Watches the memory limit. Above 85 % of it, garbage is collected and freed memory is returned to the system.
    Above the limit, `full` is True, and callers refuse files.
    """

    def __init__(
        self,
        limit_mb: int,
        *,
        reports: TroubleReporter,
        clock: Clock,
        log: Log,
        read: Callable[[], int | None] = resident,
        give_back: Callable[[], object] = trim,
    ) -> None:
        self.limit = limit_mb * _MB
        self._reports = reports
        self._log = log
        self._read = read
        self._give_back = give_back
        self._collector = GarbageCollector(clock)
        self._tight = False
        self.full = False
        """True while the process uses more memory than the limit."""
        self.used: int | None = None
        """Bytes of memory used at the last check."""

        self.start, self.stop = self._collector.start, self._collector.stop

    async def look(self) -> None:
        """Measure the memory in use, and free memory if necessary."""
        self.used = self._read()
        if self.used is not None and self.used > self.limit * SHRINK_ABOVE:
            before = self.used
            everything = self._collector.collect()
            await asyncio.to_thread(self._give_back)
            self.used = self._read() or before
            if not self._tight:
                words = f"garbage was collected, now {self._words(self.used)}"
                words = f"memory is short: {self._words(before)}; {words}"
                self._log.write("memory", words, level="warn", full_collection=everything)
            self._tight = True
        else:
            self._tight = False
            self._collector.maintain()
        full = self.used is not None and self.used > self.limit
        if full == self.full:
            return
        self.full = full
        used, limit = self._words(self.used), f"{self.limit // _MB} MB"
        state = f"the process takes {used} of {limit} (memory.limitMb)"
        if full:
            self._log.write("memory", f"{state}: files are refused", level="error")
            self._reports.begin("memory", sentence("operators.memory", used=used, limit=limit))
        else:
            self._log.write("memory", f"{state}: files are taken again")
            self._reports.end("memory", sentence("operators.memory_again", used=used, limit=limit))

    @staticmethod
    def _words(used: int | None) -> str:
        return f"{(used or 0) / _MB:.0f} MB"
