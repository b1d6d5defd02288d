"""How much memory values take, near enough to keep caches within bounds."""

from __future__ import annotations

from typing import Any

_OBJECT = 64  # bytes of anything, before what it holds


def size_of(value: Any) -> int:
    """Bytes of a JSON value in memory. Strings count as CPython keeps them: as wide as their widest character."""
    total = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        total += _OBJECT
        if isinstance(item, str):
            total += _text(item)
        elif isinstance(item, bytes):
            total += len(item)
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            waiting.extend(item)
    return total


def _text(words: str) -> int:
    if words.isascii():
        return len(words)
    widest = ord(max(words))
    return len(words) * (1 if widest < 0x100 else 2 if widest < 0x10000 else 4)
