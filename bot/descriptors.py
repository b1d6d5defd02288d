"""The process's limit of open file descriptors."""

from __future__ import annotations

import contextlib
import resource

MOST = 65_536
"""Max limit that is set. Some programs that the process starts loop over all possible descriptors, which
takes long if the limit is high.
"""
_RESERVED = 256
"""Number of descriptors reserved for channels, tools and files."""
_MOST_CONNECTIONS = 2_048


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Return the soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def connections(limit: int) -> int:
    """Return the max number of connections to the HTTP servers: half of the descriptors that are not reserved."""
    return max(8, min(_MOST_CONNECTIONS, (limit - _RESERVED) // 2))
