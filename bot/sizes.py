"""Estimates the memory of values, divides a size limit between several values, and formats sizes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

_OBJECT = 64  # bytes of a value other than text, without its parts


def size_of(value: Any) -> int:
    """Return the approximate number of bytes that a JSON value takes in memory. The time depends on the
    number of the value's parts, not on their length.
    """
    total = 0
    found = [value]
    for item in found:  # the list grows during the loop
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


def in_words(size: float) -> str:
    """Return a number of bytes as text: `12 MB`, `1.5 GB`. A kilobyte is 1,024 bytes."""
    if size < 1_000:
        return f"{size:.0f} {'byte' if round(size) == 1 else 'bytes'}"
    units = ["kB", "MB", "GB", "TB"]
    while (size := size / 1_024) >= 1_000 and len(units) > 1:
        units.pop(0)
    return f"{size:.1f} {units[0]}" if size < 10 else f"{size:,.0f} {units[0]}"


def fair_cap(loads: Sequence[int], room: int) -> int | None:
    """Return the max size per load with which all loads together fit into `room`, so that the largest loads
    are shortened first. Return None if all loads already fit.
    """
    if sum(loads) <= room:
        return None
    left, ordered = room, sorted(loads)
    for place, load in enumerate(ordered):
        share = left // (len(ordered) - place)
        if load > share:
            return max(0, share)
        left -= load
    return None
