"""Limit of open files and connections of the process, and a few descriptors in reserve for writes that must succeed."""

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
"""Descriptors that the log of the chats, its exports and the operator's log get where there are no others."""
_OTHERS = 256
"""Descriptors for channels, tools and files beside the connections of the two pages."""
_MOST_CONNECTIONS = 2_048


def raise_limit() -> None:
    """Raise the soft limit to the hard one, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Most open descriptors of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def connections(open_files: int) -> int:
    """Most connections of the pages under a limit: half of what everything else leaves."""
    return max(8, min(_MOST_CONNECTIONS, (open_files - _OTHERS) // 2))


class DescriptorReserve:
    """Idle descriptors, released one by one when the process has no others. The reserve belongs to the process, as its
    limit does; threads may share it.
    """

    def __init__(self, count: int = KEPT) -> None:
        self._count = count
        self.kept: list[int] = []
        self._given = 0
        self._lock = threading.Lock()

    def fill(self) -> int:
        """Keep back what is missing; how many were given up since this was last called."""
        with self._lock:
            given, self._given = self._given, 0
            with contextlib.suppress(OSError):
                while len(self.kept) < self._count:
                    self.kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
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
            if not self.kept:
                return False
            os.close(self.kept.pop())
            self._given += 1
            return True


RESERVE = DescriptorReserve()
