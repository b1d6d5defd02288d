"""Anything that a caller hands to the log, as a JSON value of bounded size."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel as _to_camel

MAX_NODES = 5_000  # values in one line's details
MAX_DEPTH = 20

to_camel = lru_cache(maxsize=4_096)(_to_camel)  # names of arguments and fields: few, and in every line


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_NODES


def snapshot(details: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that the caller's later changes do not reach: containers copied, strings shared.

    Names of arguments, dataclass fields and model fields become camelCase; keys of mappings stay.
    """
    budget = _Budget()
    return {to_camel(key): _plain(value, budget, 1) for key, value in details.items()}


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    budget.left -= 1
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, str | int | float):
        return _scalar(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, BaseException):
        return describe(value)
    if budget.left <= 0 or depth > MAX_DEPTH:
        return "…"
    return _container(value, budget, depth + 1)


def _scalar(value: str | float | None) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # a subclass of str may speak otherwise
    if isinstance(value, int):
        return int(value) if value.bit_length() < 1_000 else "<huge number>"
    return float(value) if math.isfinite(value) else str(float(value))


def _container(value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        named = {field.alias or name: getattr(value, name) for name, field in fields.items()}
        return _mapping(named, budget, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {to_camel(item.name): getattr(value, item.name, None) for item in dataclasses.fields(value)}
        return _mapping(named, budget, depth)
    if isinstance(value, Mapping):
        return _mapping(value, budget, depth)
    if isinstance(value, list | tuple | AbstractSet):
        return _items(value, budget, depth)
    return f"<{type(value).__name__}>"


def _mapping(value: Mapping[Any, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    copied: dict[str, Any] = {}
    for key, item in list(value.items()):
        if budget.left <= 0:
            copied["…"] = f"{len(value) - len(copied)} more"
            break
        copied[key if isinstance(key, str) else f"{_plain(key, budget, MAX_DEPTH)}"] = _plain(
            item, budget, depth
        )
    return copied


def _items(value: Any, budget: _Budget, depth: int) -> list[Any]:
    copied: list[Any] = []
    for item in list(value):
        if budget.left <= 0:
            copied.append(f"… {len(value) - len(copied)} more")
            break
        copied.append(_plain(item, budget, depth))
    return copied


def describe(error: BaseException) -> str:
    """Type and text of an error, with the causes that are errors of their own."""
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


def _word(arg: object) -> str:
    # Whatever else an error carries may fail when it is asked to speak.
    return f"{arg}" if isinstance(arg, str | int | float) else f"<{type(arg).__name__}>"
