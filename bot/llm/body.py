"""The body of a request to the Messages API, byte for byte as it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.identity_cache import IdentityCache

COMPACTION = {"anthropic-beta": "compact-2026-09-04"}
"""The header without which the provider knows nothing of its own summaries."""


def body_of(request: ModelRequest) -> Json:
    """The request as it is sent. Equal requests make equal bytes."""
    body: Json = {"model": request.model, "max_tokens": request.max_tokens}
    if request.system:
        body["system"] = list(request.system)
    if request.tools:
        body["tools"] = list(request.tools)
    body["messages"] = list(request.messages)
    if request.summarize is not None:
        body["compaction"] = {"type": "summarize", "instructions": request.summarize}
    body["stream"] = True
    return body


def headers_of(request: ModelRequest) -> dict[str, str]:
    """The headers that a request needs besides the usual ones."""
    content = request.messages[0]["content"] if request.messages else ()
    begins = bool(content) and isinstance(content, list) and content[0].get("type") == "compaction"
    return dict(COMPACTION) if begins or request.summarize is not None else {}


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _dumps(value: object) -> bytes:
    return _ENCODER.encode(value).encode()


_TOOLS = IdentityCache[Sequence[Json], bytes](_dumps)
"""They are the same object in request after request, and the larger part of most."""


def wire(request: ModelRequest) -> bytes:
    """Return the bytes of that, as the provider's library writes them. Raises ValueError or TypeError for what is no JSON.
    Dumps one block at a time: on another thread, a body of 25 MB must not keep the interpreter from the event loop.
    """
    return b"".join(
        _fields(body_of(request), {"tools": lambda _: [_TOOLS(request.tools)], "messages": _messages})
    )


def _fields(value: Json, dumped: Mapping[str, Callable[[Any], Iterable[bytes]]]) -> Iterator[bytes]:
    """Yield an object in pieces; the values of some of its keys are `dumped` in a way of their own."""
    opening = b"{"
    for key, one in value.items():
        yield opening + _dumps(key) + b":"
        yield from dumped[key](one) if key in dumped else (_dumps(one),)
        opening = b","
    yield b"}"


def _messages(messages: Iterable[Message]) -> Iterator[bytes]:
    return _items(_message(one) for one in messages)


def _message(message: Message) -> Iterable[bytes]:
    content = message.get("content")
    if isinstance(content, list) and len(content) > 1:
        return _fields(message, {"content": lambda blocks: _items((_dumps(one),) for one in blocks)})
    return (_dumps(message),)


def _items(items: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    opening = b"["
    for item in items:
        yield opening
        yield from item
        opening = b","
    yield b"]" if opening == b"," else b"[]"


_DUMPED = IdentityCache[Sequence[Json], str](lambda tools: json.dumps(list(tools), ensure_ascii=False))


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Digest of what stands before the messages of a request: what is kept of it tells whether it has changed."""
    dumped = f"[{json.dumps(list(system), ensure_ascii=False)}, {_DUMPED(tools)}]"
    return hashlib.sha256(dumped.encode("utf-8", "replace")).hexdigest()[:16]
