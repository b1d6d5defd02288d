"""Sizes of values: estimates of memory, sizes as text, shares of a limit, and JSON copies of limited size."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import islice
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic.alias_generators import to_camel as _to_camel

from bot import text

DEEPEST = 20
"""Max levels of nesting in a JSON copy."""
MOST_VALUES = 5_000
"""Max values in a JSON copy."""
LEAST = 120
"""Min bytes to which `fitted` shortens a string."""
_LARGEST = 64  # max bits of an integer that is written as a number
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


_FORMS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((str, type(None)), lambda value: value),
    (int, lambda value: value if value.bit_length() <= _LARGEST else f"[int: {value.bit_length()} bits]"),
    (float, lambda value: value if math.isfinite(value) else f"[{value}]"),
    (BaseException, describe),
    ((date, time), lambda value: value.isoformat()),
    ((PurePath, Decimal, UUID, timedelta), str),
    ((bytes, bytearray), lambda value: f"[bytes: {len(value)}]"),
)
"""JSON form of each kind of value that has no parts."""


def json_copy(value: Any) -> Any:
    """Return a copy of a value as JSON. Names of fields become camelCase; keys of mappings do not change. A value
    that JSON does not have, or that is nested too deeply, is replaced by its type in brackets. Strings are not copied.
    """
    left = MOST_VALUES

    def copy(value: Any, levels: int) -> Any:
        nonlocal left
        left -= 1
        if isinstance(value, Enum):
            value = value.value
        for kinds, form in _FORMS:
            if isinstance(value, kinds):
                return form(value)
        members = _members(value)
        if members is None or levels == 0:
            return f"[{type(value).__name__}]"
        room = max(0, left)
        more = [f"... {len(members) - room} more"] if len(members) > room else []
        if isinstance(members, Mapping):
            shown = islice(members.items(), room)
            return {str(key): copy(item, levels - 1) for key, item in shown} | dict.fromkeys(more)
        return [copy(item, levels - 1) for item in islice(members, room)] + more

    return copy(value, DEEPEST)


def _members(value: Any) -> Collection[Any] | None:
    if isinstance(value, Mapping | list | tuple | AbstractSet):
        return value
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return {field.alias or to_camel(name): getattr(value, name) for name, field in fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {to_camel(one.name): getattr(value, one.name) for one in dataclasses.fields(value)}
    return None


def fitted(value: Any, most: int) -> Any | None:
    """Return a JSON value of at most `most` bytes in compact UTF-8. The longest strings are shortened. Return None if
    that is not enough.
    """
    if (total := _size(value)) <= most:
        return value
    loads = [_size(words) for words in _strings(value)]
    share = fair_cap(loads, most - (total - sum(loads)))
    return None if share is None or share < LEAST else _cut(value, share)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, list):
        return [_cut(item, most) for item in value]
    if isinstance(value, dict):
        return {key: _cut(item, most) for key, item in value.items()}
    shown, characters = value, len(value) if isinstance(value, str) else 0
    while isinstance(value, str) and (taken := _size(shown)) > most:
        characters = min(characters * most // taken, characters - 1)
        shown = text.shorten_middle(value, characters)
    return shown
