"""The body of a request to the Messages API, byte for byte as it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from bot.contracts.base import Json
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


def _dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


_TOOLS = IdentityCache[Sequence[Json], bytes](_dumps)
"""They are the same object in request after request, and the larger part of most."""


def wire(request: ModelRequest) -> bytes:
    """The bytes of that, as the provider's library writes them. Raises ValueError or TypeError for what is no JSON."""
    body = body_of(request)
    if not request.tools:
        return _dumps(body)
    rest = {"messages", "compaction", "stream"}
    before = _dumps({key: body[key] for key in body if key not in {"tools", *rest}})
    after = _dumps({key: body[key] for key in body if key in rest})
    return b"".join((before[:-1], b',"tools":', _TOOLS(request.tools), b",", after[1:]))


_DUMPED = IdentityCache[Sequence[Json], str](lambda tools: json.dumps(list(tools), ensure_ascii=False))


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Digest of what stands before the messages of a request: what is kept of it tells whether it has changed."""
    dumped = f"[{json.dumps(list(system), ensure_ascii=False)}, {_DUMPED(tools)}]"
    return hashlib.sha256(dumped.encode("utf-8", "replace")).hexdigest()[:16]
