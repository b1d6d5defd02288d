"""How much memory values take, near enough to keep caches within bounds."""

from __future__ import annotations

import sys
from typing import Any

_OBJECT = 64  # bytes of anything but text, before what it holds


def size_of(value: Any) -> int:
    """Bytes of a JSON value in memory. What it costs depends on the number of its parts, not on their length."""
    total = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        total += sys.getsizeof(item) if isinstance(item, str | bytes) else _OBJECT
        if isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            waiting.extend(item)
    return total
