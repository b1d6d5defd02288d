"""Limit of file descriptors of the process."""

from __future__ import annotations

import contextlib
import resource

MOST = 65_536
"""Max limit that is set: some programs that the process starts loop over all possible descriptors."""
_RESERVED = 256
"""Descriptors for channels, tools and files."""
_MOST_CONNECTIONS = 2_048


def raise_limit() -> None:
    """Raise the soft limit to the hard one, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """The soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def connections(limit: int) -> int:
    """Max connections to the HTTP servers for a limit of descriptors: half of what is not reserved."""
    return max(8, min(_MOST_CONNECTIONS, (limit - _RESERVED) // 2))
