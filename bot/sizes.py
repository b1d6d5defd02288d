"""Sizes of values: estimates of memory, sizes as text and shares of a limit. Also JSON copies of values for the log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from pydantic.alias_generators import to_camel as _to_camel
from pydantic_core import to_jsonable_python

_OBJECT = 64  # bytes of a value other than text, without its parts
to_camel = lru_cache(maxsize=4_096)(_to_camel)


def size_of(value: Any) -> int:
    """Return the approximate number of bytes that a JSON value takes in memory. The time depends on the number of
    parts, not on their length.
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
    """Return the max size of one load. All loads together fit into `room` if the larger ones are cut to this size.
    Return None if all loads fit uncut.
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


def describe(error: BaseException) -> str:
    """Return the type and text of an error and of up to four of the error's causes."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < 5:
        # Arguments of other types are not converted to text, because that may fail.
        words = " ".join(
            f"{arg}" if isinstance(arg, str | int | float) else f"<{type(arg).__name__}>"
            for arg in cause.args
        )
        if isinstance(cause, OSError) and isinstance(cause.filename, str):
            words = f"{words} ({cause.filename})"
        parts.append(f"{type(cause).__name__}: {words}" if words else type(cause).__name__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return " ← ".join(parts)


def json_copy(value: Any) -> Any:
    """Return a copy of a value as JSON. An object that JSON cannot represent is replaced by its type in brackets. So is a
    whole value that contains itself or is nested too deeply. Strings are not copied.
    """
    try:
        return to_jsonable_python(value, fallback=_replaced)
    except (ValueError, RecursionError):
        return _replaced(value)


def _replaced(value: Any) -> str:
    if isinstance(value, BaseException):
        return describe(value)
    return str(value) if isinstance(value, PurePath) else f"[{type(value).__name__}]"
