"""Keeps the process's memory under a limit: drops caches near it, refuses files above it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from bot.contracts.environment import Clock, Log
from bot.words import Sentence, sentence

SHRINK_ABOVE = 0.85
"""The share of the limit above which caches go."""
LOOK_EVERY = 5.0
"""Seconds between two looks."""
LONGEST_PAUSE = 0.04
"""Seconds that a full collection may stop everything for. Where the last one took longer, the interpreter's own
collections have to do.
"""
LEFT_OUT_ABOVE = 0.01
"""Seconds from which on what has survived a full collection is left out of the next ones, so that each looks through what is new."""
PAUSED_FOR = 300.0
"""Seconds after which a full collection that was too long is tried again: there may be less to look through now."""
THRESHOLDS = (20_000, 8, 1_000_000)
"""Of the interpreter's own collections: the young are looked at 30 times more rarely than by default, and the old by `tend`
alone. They took a sixteenth of a message's CPU.
"""
FULL_EVERY = 60.0
"""Seconds between two full collections while there is room."""
NEW = 60_000
"""Objects that have come since the last full collection and are still there: with so many, some 10 ms of work, the next one does not
wait for its minute. 2,000 chats within a minute took 54 ms at its end.
"""
_MB = 1024 * 1024
_STATM = Path("/proc/self/statm")
_TASK_INFO = 4  # PROC_PIDTASKINFO of macOS
_TASK_INFO_SIZE = 96
_M_ARENA_MAX = -8  # of mallopt(3)


def resident(statm: Path = _STATM) -> int | None:
    """Bytes of memory that the process takes now; None where the system does not tell."""
    try:
        return int(statm.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return darwin_footprint() if sys.platform == "darwin" else None


def darwin_footprint(library: Any = None) -> int | None:
    """Resident bytes on macOS. (`getrusage` knows only the peak, which never falls.)"""
    buffer = ctypes.create_string_buffer(_TASK_INFO_SIZE)
    try:
        ask = (library or ctypes.CDLL(None)).proc_pidinfo
    except (OSError, AttributeError):
        return None
    got = ask(os.getpid(), _TASK_INFO, ctypes.c_uint64(0), buffer, _TASK_INFO_SIZE)
    return int(struct.unpack_from("=QQ", buffer)[1]) if got == _TASK_INFO_SIZE else None


class GarbageCollector:
    """Runs full garbage collections while they are short.

    They run on the event loop, where they are requested: finalisers belong to it, and another thread would hold the
    interpreter all the same. The time of each collection is measured, the interpreter's own included.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0.0
        self._ended = clock.monotonic()
        self._took = 0.0
        self._thresholds = gc.get_threshold()
        self._frozen = False

    def start(self) -> None:
        """Begin to take the time, and have the interpreter collect rarely by itself."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._timed)

    def stop(self) -> None:
        if self._timed in gc.callbacks:
            gc.callbacks.remove(self._timed)
            gc.set_threshold(*self._thresholds)

    def tend(self) -> None:
        """Collect everything, once a minute, or where much has come. Where that takes too long, what has survived it is left out of the next ones:
        those take as long as there is new to look through.
        """
        if self._clock.monotonic() - self._ended < FULL_EVERY and new_objects() < NEW:
            return
        gc.collect()
        if self._took > LEFT_OUT_ABOVE:
            gc.freeze()
            self._frozen = True

    def collect(self) -> bool:
        """Collect what is young, and all of it where that is quick; True where it was all. What was left out comes back for
        that.
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
    """About how many objects have come since the last full collection, by what the interpreter counts for its own."""
    young, some, many = gc.get_count()
    first, second, _ = gc.get_threshold()
    return young + first * (some + second * many)


def trim() -> None:
    """Give what was freed back to the system, where the C library keeps it (glibc). Blocking, without the GIL."""
    try:
        give_back = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    give_back(0)


def one_heap() -> bool:
    """Have all threads share one heap, where the C library gives each its own (glibc); True where it has heard of it.

    What one thread frees in its heap no other can use, and the holes add up: 4 MB in 100,000 events. Threads that were
    begun before keep theirs.
    """
    try:
        option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(option(_M_ARENA_MAX, 1))


class TroubleReporter(Protocol):
    """Receives spells of trouble (`bot.core.operators.OperatorAlerts`)."""

    def begin(self, subject: str, words: Sentence) -> bool: ...
    def end(self, subject: str, words: Sentence) -> bool: ...


class Cache(Protocol):
    """Memory that can be released and rebuilt."""

    def shrink(self) -> None: ...


class RssMonitor:
    """Keeps the process under a limit: above 85 % of it caches go, above it `full` says that files must be refused.

    `caches` give up what can be had again from disk. `read` is asked at each `look`.
    """

    def __init__(
        self,
        limit_mb: int,
        caches: Iterable[Cache],
        *,
        reports: TroubleReporter,
        clock: Clock,
        log: Log,
        read: Callable[[], int | None] = resident,
        give_back: Callable[[], object] = trim,
    ) -> None:
        self.limit = limit_mb * _MB
        self._caches = tuple(caches)
        self._reports = reports
        self._log = log
        self._read = read
        self._give_back = give_back
        self._collector = GarbageCollector(clock)
        self._tight = False
        self.full = False
        """True while the process is over its limit."""
        self.used: int | None = None
        """Bytes at the last look."""

    def start(self) -> None:
        self._collector.start()

    def stop(self) -> None:
        self._collector.stop()

    async def look(self) -> None:
        """See how much memory is used and give back what can be given back."""
        self.used = self._read()
        if self.used is not None and self.used > self.limit * SHRINK_ABOVE:
            before = self.used
            for cache in self._caches:
                cache.shrink()
            everything = self._collector.collect()
            await asyncio.to_thread(self._give_back)
            self.used = self._read() or before
            self._say_tight(before, everything=everything)
        else:
            self._tight = False
            self._collector.tend()
        self._judge()

    def _say_tight(self, before: int, *, everything: bool) -> None:
        """Once for each time that it gets tight, not every five seconds."""
        if not self._tight:
            self._tight = True
            self._log.write(
                "memory",
                f"memory is short: {self._words(before)}; caches were given up, now {self._words(self.used)}",
                level="warn",
                full_collection=everything,
            )

    def _judge(self) -> None:
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
