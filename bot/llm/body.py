"""The body of a request to the Messages API, byte for byte as it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

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


_MESSAGES = 32  # dumped at once
_TOOLS = IdentityCache[Sequence[Json], bytes](_dumps)
"""They are the same object in request after request, and the larger part of most."""


def wire(request: ModelRequest) -> bytes:
    """The bytes of that, as the provider's library writes them. Raises ValueError or TypeError for what is no JSON. Of a
    large one some messages at a time: on another thread it lets the event loop go on in between.
    """
    fields = [
        b'"tools":' + _TOOLS(request.tools)
        if key == "tools"
        else b'"messages":[' + b",".join(_several(value)) + b"]"
        if key == "messages"
        else _dumps({key: value})[1:-1]
        for key, value in body_of(request).items()
    ]
    return b"{" + b",".join(fields) + b"}"


def _several(messages: Sequence[Message]) -> Iterator[bytes]:
    for at in range(0, len(messages), _MESSAGES):
        yield _dumps(messages[at : at + _MESSAGES])[1:-1]


_DUMPED = IdentityCache[Sequence[Json], str](lambda tools: json.dumps(list(tools), ensure_ascii=False))


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Digest of what stands before the messages of a request: what is kept of it tells whether it has changed."""
    dumped = f"[{json.dumps(list(system), ensure_ascii=False)}, {_DUMPED(tools)}]"
    return hashlib.sha256(dumped.encode("utf-8", "replace")).hexdigest()[:16]
