"""How many files and connections the process may have open, and a few that are kept back for what has to be written."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from pathlib import Path

MOST = 65_536
"""More are not asked for: programs that the process starts go through all that they might have."""
KEPT = 16
"""Descriptors that journal, archive and log get where there are no others."""
_OTHERS = 256
"""What channels, tools and files may need beside the connections of the two pages."""
_MOST_CONNECTIONS = 2_048


def raise_limit() -> None:
    """Raise the soft limit to the hard one, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """How many the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def connections(open_files: int) -> int:
    """How many connections of the pages go with a limit: at most half of what is left by everything else."""
    return max(8, min(_MOST_CONNECTIONS, (open_files - _OTHERS) // 2))


class DescriptorReserve:
    """Descriptors that are kept open for nothing, and given up one after the other where the process has no others. It is
    the process's own, as its limit is; threads may share it.
    """

    def __init__(self, count: int = KEPT) -> None:
        self._count = count
        self._kept: list[int] = []
        self._given = 0
        self._lock = threading.Lock()

    def fill(self) -> int:
        """Keep back what is missing; how many were given up since this was last called."""
        with self._lock:
            given, self._given = self._given, 0
            with contextlib.suppress(OSError):
                while len(self._kept) < self._count:
                    self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return given

    def open(self, path: str | Path, flags: int, mode: int = 0o600) -> int:
        """As `os.open`; where there is no descriptor left, with one that was kept back."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, mode)
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._give():
                    raise

    def _give(self) -> bool:
        with self._lock:
            if not self._kept:
                return False
            os.close(self._kept.pop())
            self._given += 1
            return True


RESERVE = DescriptorReserve()
