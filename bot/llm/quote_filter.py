"""Removes quotes of the conversation from provider errors before operators read them.

A provider's sentence about a request may quote it, and operators can switch the logging of messages off: then no error
may carry them either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bot.contracts.model import ModelRequest

WITHHELD = "(the provider's words repeat the conversation and are withheld)"
WINDOW = 16
"""A run of this many characters that stands in both is no accident."""
STRIDE = 4
SHORT = 4
LOOKED_AT = 2_000_000  # characters of a conversation


def withhold_quotes(line: str, request: ModelRequest, secrets: Iterable[str] = ()) -> str:
    """The line, without secrets and without words that repeat the request's messages."""
    for secret in secrets:
        if len(secret) >= 8:
            line = line.replace(secret, "…")
    head, mark, words = line.partition(": ")
    if not mark:
        return line
    pieces = {words[at : at + WINDOW] for at in range(0, max(1, len(words) - WINDOW + 1), STRIDE)}
    left = LOOKED_AT
    for said in _texts(request):
        if left <= 0:
            break
        seen = said[:left]
        left -= len(seen)
        short = seen.strip()
        if (SHORT <= len(short) < WINDOW + STRIDE and short in words) or any(
            piece in seen for piece in pieces
        ):
            return f"{head}: {WITHHELD}"
    return line


def _texts(request: ModelRequest) -> Iterator[str]:
    """Texts of people, the model and tools, newest first."""
    for message in reversed(request.messages):
        yield from _strings(message.get("content"))


def _strings(value: object, depth: int = 8) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > 0 and isinstance(value, dict):
        for key, item in value.items():
            if key not in _NOT_SAID:
                yield from _strings(item, depth - 1)
    elif depth > 0 and isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item, depth - 1)


_NOT_SAID = frozenset(
    {"type", "role", "id", "tool_use_id", "name", "signature", "data", "cache_control", "media_type"}
)
