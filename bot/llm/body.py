"""Builds the exact bytes of a request body for the Messages API."""

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
"""Name of the beta in which the provider summarises conversations."""
FALLBACKS = "server-side-fallback-2026-07-01"
"""Name of the beta in which the provider lets another of its models answer if the requested model refuses."""
SMALL_BYTES = 32 * 1024
"""Max bytes in memory of a value that is encoded in one piece."""
LONG = 256 * 1024
"""Max characters of a text that are encoded in one piece. Encoding a megabyte takes 15 ms."""

ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def body_of(request: ModelRequest) -> Json:
    """Return the request body as an object. Equal requests give equal bytes."""
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
    """Return the headers that enable the betas a request needs."""
    content = request.messages[0]["content"] if request.messages else ()
    summarized = bool(content) and isinstance(content, list) and content[0].get("type") == "compaction"
    betas = [COMPACTION] if summarized or request.summarize is not None else []
    betas += [FALLBACKS] if request.provider_fallbacks else []
    return {"anthropic-beta": ",".join(betas)} if betas else {}


def wire(request: ModelRequest) -> bytes:
    """Return the encoded bytes of a request; each request is encoded once. Raises ValueError or TypeError if
    JSON cannot represent a value.
    """
    if not request.wire:
        request.wire.append(b"".join(pieces(request)))
    return request.wire[0]


def pieces(request: ModelRequest) -> Iterator[bytes]:
    """Yield the encoded request in pieces, so that other tasks can run in between. A body can be 25 MB long."""
    opening = b"{"
    for key, value in body_of(request).items():
        yield opening + _encoded(key) + b":"
        if key == "tools":
            yield _TOOLS(request.tools)
        elif key == "messages":
            yield from _messages(value)
        else:
            yield _encoded(value)
        opening = b","
    yield b"}"


def _messages(messages: Sequence[Json]) -> Iterator[bytes]:
    yield b"["
    for at, (message, small) in enumerate(zip(messages, _SMALL.each(messages), strict=True)):
        yield b"," if at else b""
        if small:
            yield _encoded(message)
        else:
            yield from _value(message)
    yield b"]"


def _value(value: Any) -> Iterator[bytes]:
    if isinstance(value, str) and len(value) > LONG:
        yield b'"'
        yield from (_encoded(value[at : at + LONG])[1:-1] for at in range(0, len(value), LONG))
        yield b'"'
    elif not isinstance(value, dict | list) or size_of(value) < SMALL_BYTES:
        yield _encoded(value)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield b"," if at else b"["
            yield from _value(one)
        yield b"]"
    else:
        for at, (key, one) in enumerate(value.items()):
            yield (b"," if at else b"{") + _encoded(key) + b":"
            yield from _value(one)
        yield b"}"


def _encoded(value: object) -> bytes:
    return ENCODER.encode(value).encode()


_TOOLS = IdentityCache[Sequence[Json], bytes](_encoded)
"""Cache of encoded tools. All requests share the same tool objects, which are the larger part of most requests."""
_SMALL = MessageFact[Json, bool](lambda message: size_of(message) < SMALL_BYTES)
"""Cache that tells whether a message is small enough to be encoded in one piece. The result is cached
because measuring a message takes half as long as encoding it.
"""


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Return a digest of everything that precedes the messages of a request. The digest is recorded and
    shows whether that prefix has changed.
    """
    # Surrogates are replaced, because a request cannot contain them.
    dumped = json.dumps(list(system), ensure_ascii=False).encode("utf-8", "replace")
    return hashlib.sha256(dumped + _TOOLS(tools)).hexdigest()[:16]
