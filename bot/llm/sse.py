"""Server-sent events as a provider streams them, from bytes to JSON objects.

The provider's library has a decoder too; it drops frames without an `event:` line, which proxies send, and has no
limit. This one takes the name of an event from the object itself, is linear in the bytes, and ends.
"""

from __future__ import annotations

import json

from bot import errors
from bot.contracts.base import Json

MAX_BYTES = 64 * 1024 * 1024
"""Of one stream, with all its framing: some hundred bytes for each token of the largest answers there are."""


class EventStream:
    """Fed with chunks as they come; gives the events that became whole."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._left = max_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""

    def feed(self, chunk: bytes) -> list[Json]:
        """Raises `errors.StreamBroken` for what is no event of JSON, and where the stream is too long."""
        self._left -= len(chunk)
        if self._left < 0:
            raise endless("The answer is longer than any model's: given up.")
        events: list[Json] = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join((*self._line, end)).removesuffix(b"\r")
            self._line.clear()
            if line:
                self._field(line)
            elif self._data:
                events.extend(self._dispatch())
            else:
                self._name = ""
        if rest:
            self._line.append(rest)
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")

    def _dispatch(self) -> list[Json]:
        data, name = b"\n".join(self._data), self._name
        self._data.clear()
        self._name = ""
        if data == b"[DONE]":  # some proxies end like this
            return []
        try:
            event = json.loads(data.decode())
        except (ValueError, RecursionError):
            raise errors.StreamBroken("The provider streamed an event that is not JSON.") from None
        if not isinstance(event, dict):
            raise errors.StreamBroken("The provider streamed an event that is no JSON object.")
        if name:
            event.setdefault("type", name)
        return [event]


def endless(message: str) -> errors.StreamBroken:
    """A stream that would not end: asking again would cost as much again, so it is not retried."""
    error = errors.StreamBroken(message)
    error.retryable = False
    return error
