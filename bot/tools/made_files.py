"""Files that a turn has made: what its file tools wrote, and new files that a command of its was to make.

A file is known by its inode, time and size. The kernel does not tell which program wrote one, so of what stands there after a
command only those files are its own that its call had named, that were not there before, and that nothing of another turn can have
written meanwhile. What each call has made is recorded with its step, so that a turn which goes on after a crash still has it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from bot import errors
from bot.contracts.base import Json
from bot.tools import context
from bot.tools.project import Project, ProjectPath

WROTE = "wrote"
ANYWHERE = ""
"""The path of what may write any file."""


@dataclass(slots=True, eq=False)
class _Work:
    """Something of a turn that writes at `path`; `others` are the paths at which those of other turns did meanwhile."""

    request_id: str
    path: str
    others: set[str] = field(default_factory=set)


class FileWriters:
    """Sees all that writes files for a turn; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Work] = set()

    @contextlib.contextmanager
    def at_work(self, path: str = ANYWHERE) -> Iterator[set[str]]:
        """The turn writes at a path in the block; what it yields comes to hold those at which other turns do meanwhile."""
        mine = _Work(context.request_id(), path)
        with self._lock:
            for other in self._running:
                if other.request_id != mine.request_id:
                    other.others.add(mine.path)
                    mine.others.add(other.path)
            self._running.add(mine)
        try:
            yield mine.others
        finally:
            with self._lock:
                self._running.remove(mine)


def new_places(project: Project, paths: Iterable[str]) -> list[ProjectPath]:
    """The places of files that a command is to make. Raises `errors.ToolError` for one that is there before, and OSError."""
    places = [project.place(path) for path in paths]
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            project.stat(place)
            raise errors.ToolError(
                f"Nothing was run: {place} is there already, and `makes` is for new files. Give it another name."
            )
    return places


def report_ran(project: Project, places: Iterable[ProjectPath], others: AbstractSet[str]) -> None:
    """A command that was to make files at these places has run, while those of other turns wrote at `others`."""
    for place in places:
        if not others & {ANYWHERE, str(place)}:
            _report(project, place)


def report_written(project: Project, place: ProjectPath, size: int) -> None:
    """A file tool has written a file of this size; where it has gone since, nothing was made."""
    _report(project, place, size)


def _report(project: Project, place: ProjectPath, size: int | None = None) -> None:
    with contextlib.suppress(OSError):
        found = project.stat(place)
        if size is None or found.st_size == size:
            context.report_made({WROTE: str(place), "state": _state(found)})


def is_made(made: Iterable[Json], place: ProjectPath, found: os.stat_result) -> bool:
    """True if one of these reports is of this file as it is now."""
    state = _state(found)
    return any((one.get(WROTE), one.get("state")) == (str(place), state) for one in made)


def _state(found: os.stat_result) -> list[int]:
    """Programs cannot set `st_ctime`."""
    return [found.st_ino, found.st_ctime_ns, found.st_size]
