"""The body of a request to the Messages API, byte for byte as it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bot.contracts.base import Json
from bot.contracts.model import ModelRequest
from bot.identity_cache import IdentityCache, MessageFact
from bot.sizes import size_of

COMPACTION = "compact-2026-09-04"
"""The beta without which the provider knows nothing of its own summaries."""
FALLBACKS = "server-side-fallback-2026-07-01"
"""The beta with which another of its models may answer where one refuses."""


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
    if request.thinking is not None:
        body["thinking"] = request.thinking
    if request.effort is not None:
        body["output_config"] = {"effort": request.effort}
    if request.provider_fallbacks:
        body["fallbacks"] = "default"
    body["stream"] = True
    return body


def headers_of(request: ModelRequest) -> dict[str, str]:
    """The headers that a request needs besides the usual ones."""
    content = request.messages[0]["content"] if request.messages else ()
    begins = bool(content) and isinstance(content, list) and content[0].get("type") == "compaction"
    betas = [COMPACTION] if begins or request.summarize is not None else []
    betas += [FALLBACKS] if request.provider_fallbacks else []
    return {"anthropic-beta": ",".join(betas)} if betas else {}


ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _dumps(value: object) -> bytes:
    return ENCODER.encode(value).encode()


_TOOLS = IdentityCache[Sequence[Json], bytes](_dumps)
"""They are the same object in request after request, and the larger part of most."""


_LONG = 256 * 1024
"""Characters of a text that are dumped at once."""
_AT_ONCE = 32 * 1024
"""Bytes of a message in memory below which it is dumped at once."""
_DEEP = 8
"""Levels of a body that are dumped one value at a time: those down to the texts in the results of a tool."""


def wire(request: ModelRequest) -> bytes:
    """Return the bytes of that, as they are sent; made once. Raises ValueError or TypeError for what is no JSON."""
    if not request.wire:
        request.wire.append(b"".join(pieces(request)))
    return request.wire[0]


def pieces(request: ModelRequest) -> Iterator[bytes]:
    """The same, piece by piece: a body of 25 MB must not keep anybody waiting until all of it is dumped."""
    opening = b"{"
    for key, value in body_of(request).items():
        yield opening + _dumps(key) + b":"
        if key == "tools":
            yield _TOOLS(request.tools)
        elif isinstance(value, list):
            yield from _items(value)
        else:
            yield _dumps(value)
        opening = b","
    yield b"}"


def _items(values: Sequence[Json]) -> Iterator[bytes]:
    opening = b"["
    for value, short in zip(values, _SHORT.each(values), strict=True):
        dumped = [opening]
        if short:
            dumped.append(_dumps(value))
        else:
            _dump(value, dumped)
        yield b"".join(dumped)
        opening = b","
    yield b"]" if values else b"[]"


_SHORT = MessageFact[Json, bool](lambda value: size_of(value) < _AT_ONCE)
"""True if a message is dumped at once: looked at once, since that takes half as long as to dump it."""


def _dump(value: Any, dumped: list[bytes], deep: int = _DEEP) -> None:
    """Add the dump of a value, in pieces that are made at once."""
    if isinstance(value, dict) and value and deep:
        opening = b"{"
        for key, one in value.items():
            dumped += (opening, _dumps(key), b":")
            _dump(one, dumped, deep - 1)
            opening = b","
        dumped.append(b"}")
    elif isinstance(value, list) and value and deep:
        opening = b"["
        for one in value:
            dumped.append(opening)
            _dump(one, dumped, deep - 1)
            opening = b","
        dumped.append(b"]")
    elif isinstance(value, str) and len(value) > _LONG:
        dumped.append(b'"')
        dumped += (_dumps(value[at : at + _LONG])[1:-1] for at in range(0, len(value), _LONG))
        dumped.append(b'"')
    else:
        dumped.append(_dumps(value))


_DUMPED = IdentityCache[Sequence[Json], str](lambda tools: json.dumps(list(tools), ensure_ascii=False))


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Digest of what stands before the messages of a request: what is kept of it tells whether it has changed."""
    dumped = f"[{json.dumps(list(system), ensure_ascii=False)}, {_DUMPED(tools)}]"
    return hashlib.sha256(dumped.encode("utf-8", "replace")).hexdigest()[:16]
