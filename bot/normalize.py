"""Converts any object to a JSON value of limited size. Placeholders replace parts that are too large or
cannot be converted.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
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

import regex
from pydantic import BaseModel
from pydantic.alias_generators import to_camel as _to_camel

from bot import text
from bot.sizes import fair_cap

NULL, CIRCULAR, UNREADABLE = "[null]", "[Circular]", "[Error accessing property]"
MORE = "..."
"""Key under which the number of omitted properties is stored."""
KEY = 200
"""Max characters of a key."""
LEAST = 120
"""Min bytes that remain of a shortened string. If strings would have to be shorter, the depth is reduced instead."""
_LARGEST = 64
"""Max bits of an integer that is converted to a number."""
_SPELLED = 1_000
"""Max bits of an integer whose digits are written out."""
# Errors that reading an attribute of a foreign object may raise.
_ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError, OSError)

to_camel = lru_cache(maxsize=4_096)(
    _to_camel
)  # there are few names of arguments and fields, and each is needed often


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the conversion. `values` limits the total number of values. Strings longer than `characters`
    are shortened; if `characters` is None, strings are not shortened and not copied. `null` replaces
    None.
    """

    depth: int = 3
    items: int = 100
    properties: int = 50
    values: int = 100_000
    characters: int | None = None
    null: str | None = NULL


def plain_details(details: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Return a JSON copy of named values. The limits apply to all values together, and no name is omitted.
    Names of fields become camelCase; keys of mappings are kept. No method of a foreign object is called.
    """
    walk = _Walk(bounds)
    return {to_camel(name): walk.value(value, 1) for name, value in details.items()}


def normalize_to_size(value: Any, max_bytes: int = 100_000, bounds: Bounds = Bounds()) -> Any:
    """Return a copy of a value as JSON of at most `max_bytes` (2 or more) as compact UTF-8.

    Long strings are shortened first, the longest most. Then the depth is reduced until the rest fits.
    """
    if max_bytes < 2:
        raise ValueError("no JSON value but a digit has less than two bytes")
    depth = bounds.depth
    while True:
        walk = _Walk(replace(bounds, depth=depth, values=max_bytes, characters=max_bytes))
        made = walk.value(value, 0)
        shrunk = _shrunk(made, max_bytes)
        if shrunk is not None:
            return shrunk[0]
        depth = min(depth, walk.deepest) - 1


def size(value: Any) -> int:
    """Return the number of bytes of a value as compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def describe(error: BaseException) -> str:
    """Return the type and text of an error and of up to four of the error's causes."""
    parts: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen and len(parts) < 5:
        seen.add(id(cause))
        words = " ".join(_word(arg) for arg in cause.args)
        if isinstance(cause, OSError) and isinstance(cause.filename, str):
            words = f"{words} ({cause.filename})"
        parts.append(f"{type(cause).__name__}: {words}" if words else type(cause).__name__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return " ← ".join(parts)


class _Walk:
    """State of one conversion: the containers around the current value, and the number of values that may
    still be visited.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.values
        self._open: set[int] = set()
        self.deepest = 0

    def value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if type(value) is str:
            return self._string(value)
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, str | int | float):
            return self._scalar(value)
        named = _leaf(value)
        if named is not None:
            return self._string(named)
        if id(value) in self._open:
            return CIRCULAR
        if depth >= self._bounds.depth or self._left <= 0:
            return _placeholder(value)
        self.deepest = max(self.deepest, depth + 1)
        self._open.add(id(value))
        try:
            return self._container(value, depth + 1)
        finally:
            self._open.discard(id(value))

    def _scalar(self, value: str | float | None) -> Any:
        if value is None or isinstance(value, bool):
            return self._bounds.null if value is None else value
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, int):
            bits = int.bit_length(value)
            return int(value) if bits <= _LARGEST else f"[BigInt: {_digits(value, bits)}]"
        if math.isfinite(value):
            return float(value)
        return "[NaN]" if math.isnan(value) else "[Infinity]" if value > 0 else "[-Infinity]"

    def _string(self, value: str) -> str:
        words = value if type(value) is str else str.__str__(value)  # a subclass may override `__str__`
        most = self._bounds.characters
        return words if most is None else text.clean(text.shorten_middle(words, most))

    def _container(self, value: Any, depth: int) -> Any:
        try:
            if isinstance(value, list | tuple | AbstractSet):
                return self._items(value, depth)
            if isinstance(value, Mapping):
                members = list(islice(value.items(), self._bounds.properties + 1))
                return self._properties(members, len(value), depth)
            return self._properties(fields := _fields(value), len(fields), depth)
        except _ODD:
            return UNREADABLE

    def _items(self, value: Any, depth: int) -> list[Any]:
        copied: list[Any] = []
        for item in list(islice(value, self._bounds.items + 1)):
            if len(copied) == self._bounds.items or self._left <= 0:
                copied.append(f"... {len(value) - len(copied)} more items")
                break
            copied.append(self.value(item, depth))
        return copied

    def _properties(self, members: list[tuple[Any, Any]], total: int, depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, item in members:
            if len(copied) == self._bounds.properties or self._left <= 0:
                copied[_free(MORE, copied)] = f"{total - len(copied)} more properties"
                break
            copied[_free(self._key(key), copied)] = self.value(item, depth)
        return copied

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            words = str.__str__(key)
            return words if self._bounds.characters is None else text.clean(text.head(words, KEY))
        if key is None or isinstance(key, int | float):
            return f"{key}" if key is None or isinstance(key, bool) else f"{self._scalar(key)}"
        return text.head(_leaf(key) or _placeholder(key), KEY)


class _Missing:
    """Marks a field that an object does not have."""


def _fields(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return [(field.alias or to_camel(name), getattr(value, name)) for name, field in fields.items()]
    names = [field.name for field in dataclasses.fields(value)]
    found = ((name, getattr(value, name, _Missing)) for name in names)
    return [(to_camel(name), UNREADABLE if item is _Missing else item) for name, item in found]


_LEAVES: tuple[tuple[tuple[type, ...], Callable[[Any], str]], ...] = (
    ((bytes, bytearray, memoryview), lambda value: f"[bytes: {memoryview(value).nbytes}]"),
    ((PurePath, Decimal, UUID, timedelta), str),
    ((date, time), lambda value: value.isoformat()),
    (
        (re.Pattern, regex.Pattern),
        lambda value: value.pattern if isinstance(value.pattern, str) else "[bytes pattern]",
    ),
    ((BaseException,), describe),
    ((type,), lambda value: f"[Class: {value.__name__}]"),
)


def _leaf(value: Any) -> str | None:
    """Return a value without parts as text; None for a container."""
    if isinstance(value, dict | list | tuple):
        return None
    for kinds, words in _LEAVES:
        if isinstance(value, kinds):
            return words(value)
    if isinstance(value, AbstractSet | Mapping | BaseModel) or dataclasses.is_dataclass(value):
        return None
    name = getattr(value, "__name__", None) if callable(value) else None
    return f"[Function: {name}]" if isinstance(name, str) else f"[{type(value).__name__}]"


def _placeholder(value: Any) -> str:
    if isinstance(value, list | tuple | AbstractSet):
        return f"[Array({len(value)})]"
    return "[Object]" if isinstance(value, Mapping) else f"[{type(value).__name__}]"


def _free(key: str, taken: Mapping[str, Any]) -> str:
    """Return a key that is not in `taken`. Several shortened keys may begin with the same characters."""
    number, free = 1, key
    while free in taken:
        number += 1
        free = f"{key}~{number}"
    return free


def _shrunk(made: Any, room: int) -> tuple[Any] | None:
    """Return a JSON value whose strings are shortened until the value fits. Return None if a string would
    become shorter than `LEAST` bytes.
    """
    total = size(made)
    if total <= room:
        return (made,)
    if isinstance(made, str):
        return (_cut(made, room),)
    if not isinstance(made, list | dict):
        return (_cut(str(made), room),)
    loads = [size(words) for words in _strings(made)]
    share = fair_cap(loads, room - (total - sum(loads)))
    if share is None or share < LEAST:
        return None
    return (_with_cut(made, share),)


def _strings(made: Any) -> Iterable[str]:
    if isinstance(made, str):
        yield made
    elif isinstance(made, list | dict):
        for item in made.values() if isinstance(made, dict) else made:
            yield from _strings(item)


def _with_cut(made: Any, most: int) -> Any:
    if isinstance(made, str):
        return _cut(made, most)
    if isinstance(made, list):
        return [_with_cut(item, most) for item in made]
    if isinstance(made, dict):
        return {key: _with_cut(item, most) for key, item in made.items()}
    return made


def _cut(words: str, most: int) -> str:
    """Remove the middle of a string so that the rest takes at most `most` bytes as JSON."""
    shown, characters = words, len(words)
    while (taken := size(shown)) > most:
        characters = min(characters * most // taken, characters - 1)
        shown = text.shorten_middle(words, characters)
    return shown


def _digits(value: int, bits: int) -> str:
    return f"{int(value)}n" if bits <= _SPELLED else f"{bits} bits"


def _word(arg: object) -> str:
    # `str` of any other object may fail.
    return f"{arg}" if isinstance(arg, str | int | float) else f"<{type(arg).__name__}>"
