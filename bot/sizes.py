"""How much memory values take, near enough to keep caches within bounds."""

from __future__ import annotations

import sys
from typing import Any

_OBJECT = 64  # bytes of anything but text, before what it holds


def size_of(value: Any) -> int:
    """Bytes of a JSON value in memory. What it costs depends on the number of its parts, not on their length."""
    total = 0
    found = [value]
    for item in found:  # which grows meanwhile
        kind = type(item)
        if kind is str or kind is bytes:
            total += sys.getsizeof(item)
            continue
        total += _OBJECT
        if kind is dict:
            found += item
            found += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            found += item
    return total
