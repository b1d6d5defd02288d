"""Files that a turn has made: what its file tools wrote, and what its commands changed while no other turn did anything.

A file tool's file is known by its inode, time and size. What a command writes is not known; a file counts as its own where it
was last changed while that ran (by `st_ctime`, which programs cannot set) and neither a command nor a file tool of another turn
was at work. What each call has made is recorded with its step, so that a turn which goes on after a crash still has it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from bot.contracts.base import Json
from bot.tools import context
from bot.tools.project import Project, ProjectPath, Stamp, stamp

SLACK = 20_000_000
"""Nanoseconds by which the kernel's clock for files may be behind."""
WROTE, RAN = "wrote", "ran"


class MadeFiles:
    """Sees the writes and commands of all turns; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, tuple[str, int]] = {}
        self._past: list[tuple[str, int, int]] = []
        self._last = 0

    @contextlib.contextmanager
    def at_work(self, request_id: str) -> Iterator[list[tuple[int, int]]]:
        """Something of a turn writes in the block; after it, the list has the times in which nothing of another turn did."""
        alone: list[tuple[int, int]] = []
        with self._lock:
            self._last += 1
            mine = self._last
            self._running[mine] = (request_id, time.time_ns() - SLACK)
        try:
            yield alone
        finally:
            with self._lock:
                _, begun = self._running.pop(mine)
                ended = time.time_ns()
                others = [(b, e) for other, b, e in self._past if other != request_id]
                others += [(b, ended) for other, b in self._running.values() if other != request_id]
                alone.extend(without((begun, ended), others))
                self._past.append((request_id, begun, ended))
                oldest = min((b for _, b in self._running.values()), default=ended)
                self._past = [one for one in self._past if one[2] >= oldest]


def without(time: tuple[int, int], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a stretch of time that lie outside of others."""
    left = [time]
    for begun, ended in others:
        parts = [part for b, e in left for part in ((b, min(e, begun)), (max(b, ended), e))]
        left = [(b, e) for b, e in parts if b < e]
    return left


def report_written(project: Project, place: ProjectPath, size: int) -> None:
    """A file tool has written a file of this size; where it has gone since, nothing was made."""
    with contextlib.suppress(OSError):
        found = project.stat(place)
        if found.st_size != size:
            return
        context.report_made({WROTE: str(place), "stamp": list(stamp(found))})


def report_ran(alone: Sequence[tuple[int, int]]) -> None:
    """A command has run, in these times alone."""
    context.report_made({RAN: [list(one) for one in alone]})


def is_made(made: Iterable[Json], place: ProjectPath, found: os.stat_result) -> bool:
    """True if one of these reports is of this file as it is now."""
    state: Stamp = stamp(found)
    for one in made:
        if one.get(WROTE) == str(place) and tuple(one.get("stamp", ())) == state:
            return True
        if any(begun <= found.st_ctime_ns <= ended for begun, ended in one.get(RAN, ())):
            return True
    return False
