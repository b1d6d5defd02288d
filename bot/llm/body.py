"""The body of a request to the Messages API, byte for byte."""

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
"""The beta for summaries made by the provider."""
FALLBACKS = "server-side-fallback-2026-07-01"
"""The beta that lets another model of the provider answer where one refuses."""
SMALL_BYTES = 32 * 1024
"""Max size in memory of a value that is encoded in one piece."""
LONG = 256 * 1024
"""Max characters of a text that are encoded in one piece: a megabyte takes 15 ms."""

ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def body_of(request: ModelRequest) -> Json:
    """The body as an object. Equal requests make equal bytes."""
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
    """The headers for the betas that a request needs."""
    content = request.messages[0]["content"] if request.messages else ()
    summarized = bool(content) and isinstance(content, list) and content[0].get("type") == "compaction"
    betas = [COMPACTION] if summarized or request.summarize is not None else []
    betas += [FALLBACKS] if request.provider_fallbacks else []
    return {"anthropic-beta": ",".join(betas)} if betas else {}


def wire(request: ModelRequest) -> bytes:
    """Return the bytes of a request, encoded once. Raises ValueError or TypeError for what JSON cannot hold."""
    if not request.wire:
        request.wire.append(b"".join(pieces(request)))
    return request.wire[0]


def pieces(request: ModelRequest) -> Iterator[bytes]:
    """Encode a request piece by piece, so that other tasks can run in between: a body may have 25 MB."""
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
"""Tools are the same object in each request, and the larger part of most."""
_SMALL = MessageFact[Json, bool](lambda message: size_of(message) < SMALL_BYTES)
"""True if a message is encoded in one piece. Remembered: measuring takes half as long as encoding."""


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Digest of what precedes the messages of a request. It is recorded, and shows whether that has changed."""
    # Surrogates, which a request cannot have, are replaced.
    dumped = json.dumps(list(system), ensure_ascii=False).encode("utf-8", "replace")
    return hashlib.sha256(dumped + _TOOLS(tools)).hexdigest()[:16]
