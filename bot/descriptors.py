"""Limit of open files and connections of the process."""

from __future__ import annotations

import contextlib
import resource

MOST = 65_536
"""More are not asked for: programs that the process starts go through all that they might have."""
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
