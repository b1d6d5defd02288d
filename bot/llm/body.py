"""The body of a request to the Messages API, byte for byte as it is sent."""

from __future__ import annotations

import hashlib
import json

from bot.contracts import Json, ModelRequest

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


def wire(request: ModelRequest) -> bytes:
    """The bytes of that, as the provider's library writes them. Raises ValueError or TypeError for what is no JSON."""
    return json.dumps(body_of(request), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def digest(request: ModelRequest) -> str | None:
    """What tells these bytes from all others; None for what cannot be sent."""
    try:
        return hashlib.sha256(wire(request)).hexdigest()
    except (ValueError, TypeError):
        return None
