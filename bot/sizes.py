"""Sizes of values: estimates of memory, shares of a limit, sizes as text, and JSON copies of limited size."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
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

NULL, CIRCULAR, UNREADABLE = "[null]", "[Circular]", "[Error accessing property]"
MORE = "..."
"""Key in a JSON copy. Its value is the number of omitted properties."""
KEY = 200
"""Max characters of a key in a JSON copy."""
LEAST = 120
"""Min bytes to which a string is shortened. If that is not enough, nested values are omitted."""
_LARGEST = 64
"""Max bits of an integer that is written as a number."""
# Errors that reading an attribute of a foreign object may raise.
_ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, OSError)
to_camel = lru_cache(maxsize=4_096)(_to_camel)
_OBJECT = 64  # bytes of a value other than text, without its parts


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
    """Return a max size for each load with which all loads together fit into `room`. Only the largest loads are then
    shortened. Return None if all loads already fit.
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


# ------------------------------------------------------------ JSON copies


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a JSON copy. `values` is the max number of values in total. Strings longer than `characters` are
    shortened. If `characters` is None, strings are neither shortened nor copied. `null` replaces None.
    """

    depth: int = 3
    items: int = 100
    properties: int = 50
    values: int = 100_000
    characters: int | None = None
    null: str | None = NULL


def plain_details(details: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Return a JSON copy of named values. The limits apply to all values together. No name is omitted. Names of fields
    become camelCase; keys of mappings stay as they are. No method of a foreign object is called.
    """
    walk = _Walk(bounds)
    return {to_camel(name): walk.value(value, 1) for name, value in details.items()}


def normalize_to_size(value: Any, max_bytes: int = 100_000, bounds: Bounds = Bounds()) -> Any:
    """Return a copy of a value as JSON of at most `max_bytes` (at least 2) in compact UTF-8. Strings are shortened
    first, the longest ones most. If that is not enough, deeply nested values are omitted.
    """
    depth = bounds.depth
    while True:
        walk = _Walk(replace(bounds, depth=depth, values=max_bytes, characters=max_bytes))
        made = walk.value(value, 0)
        shrunk = _shrunk(made, max_bytes)
        if shrunk is not None:
            return shrunk[0]
        depth = min(depth, walk.deepest) - 1


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def describe(error: BaseException) -> str:
    """Return the type and text of an error and of up to four of the error's causes."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < 5:
        # `str` of an object of another type may fail.
        words = " ".join(
            f"{arg}" if isinstance(arg, str | int | float) else f"<{type(arg).__name__}>"
            for arg in cause.args
        )
        if isinstance(cause, OSError) and isinstance(cause.filename, str):
            words = f"{words} ({cause.filename})"
        parts.append(f"{type(cause).__name__}: {words}" if words else type(cause).__name__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return " ← ".join(parts)


class _Walk:
    """State of one conversion: the containers around the current value, and the number of values that may still be
    converted.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.values
        self._open: set[int] = set()
        self.deepest = 0

    def value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, str | int | float):
            return self._scalar(value)
        if (named := _leaf(value)) is not None:
            return self._scalar(named)
        if id(value) in self._open:
            return CIRCULAR
        if depth >= self._bounds.depth or self._left <= 0:
            return _placeholder(value)
        self.deepest = max(self.deepest, depth + 1)
        self._open.add(id(value))
        try:
            return self._container(value, depth + 1)
        except _ODD:
            return UNREADABLE
        finally:
            self._open.discard(id(value))

    def _scalar(self, value: str | float | None) -> Any:
        if value is None:
            return self._bounds.null
        if isinstance(value, str):
            most = self._bounds.characters
            return value if most is None else text.clean(text.shorten_middle(value, most))
        if isinstance(value, int):
            bits = value.bit_length()
            return value if bits <= _LARGEST else f"[BigInt: {bits} bits]"
        if math.isfinite(value):
            return value
        return "[NaN]" if math.isnan(value) else "[Infinity]" if value > 0 else "[-Infinity]"

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, list | tuple | AbstractSet):
            copied: list[Any] = []
            for item in islice(value, self._bounds.items + 1):
                if len(copied) == self._bounds.items or self._left <= 0:
                    return [*copied, f"... {len(value) - len(copied)} more items"]
                copied.append(self.value(item, depth))
            return copied
        members = value.items() if isinstance(value, Mapping) else _fields(value)
        found: dict[str, Any] = {}
        for key, item in islice(members, self._bounds.properties + 1):
            if len(found) == self._bounds.properties or self._left <= 0:
                return found | {MORE: f"{len(members) - len(found)} more properties"}
            name = key if isinstance(key, str) else _leaf(key) or f"{key}"
            found[name if self._bounds.characters is None else text.clean(text.head(name, KEY))] = self.value(
                item, depth
            )
        return found


def _fields(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return [(field.alias or to_camel(name), getattr(value, name)) for name, field in fields.items()]
    return [(to_camel(one.name), getattr(value, one.name)) for one in dataclasses.fields(value)]


_LEAVES: tuple[tuple[tuple[type, ...], Callable[[Any], str]], ...] = (
    ((bytes, bytearray, memoryview), lambda value: f"[bytes: {memoryview(value).nbytes}]"),
    ((PurePath, Decimal, UUID, timedelta), str),
    ((date, time), lambda value: value.isoformat()),
    ((BaseException,), describe),
    ((type,), lambda value: f"[Class: {value.__name__}]"),
)


_PARTS = (list, tuple, AbstractSet, Mapping, BaseModel, int, float, type(None))


def _leaf(value: Any) -> str | None:
    for kinds, words in _LEAVES:
        if isinstance(value, kinds):
            return words(value)
    if isinstance(value, _PARTS) or dataclasses.is_dataclass(value):
        return None
    name = getattr(value, "__name__", None) if callable(value) else None
    return f"[Function: {name}]" if isinstance(name, str) else f"[{type(value).__name__}]"


def _placeholder(value: Any) -> str:
    if isinstance(value, list | tuple | AbstractSet):
        return f"[Array({len(value)})]"
    return "[Object]" if isinstance(value, Mapping) else f"[{type(value).__name__}]"


def _shrunk(made: Any, room: int) -> tuple[Any] | None:
    """Return a JSON value whose strings are shortened so that it fits. Return None if a string would become shorter
    than `LEAST` bytes.
    """
    total = size(made)
    if total <= room:
        return (made,)
    if not isinstance(made, list | dict):
        return (_cut(str(made), room),)
    loads = [size(words) for words in _strings(made)]
    share = fair_cap(loads, room - (total - sum(loads)))
    return None if share is None or share < LEAST else (_cut(made, share),)


def _strings(made: Any) -> Iterable[str]:
    if isinstance(made, str):
        yield made
    elif isinstance(made, list | dict):
        for item in made.values() if isinstance(made, dict) else made:
            yield from _strings(item)


def _cut(made: Any, most: int) -> Any:
    if isinstance(made, list):
        return [_cut(item, most) for item in made]
    if isinstance(made, dict):
        return {key: _cut(item, most) for key, item in made.items()}
    shown = made
    characters = len(made) if isinstance(made, str) else 0
    while isinstance(made, str) and (taken := size(shown)) > most:
        characters = min(characters * most // taken, characters - 1)
        shown = text.shorten_middle(made, characters)
    return shown
