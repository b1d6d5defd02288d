"""Turns a server's results into text for the model."""

from __future__ import annotations

import json
from typing import Any

from bot import text
from bot.contracts.base import Json

LONGEST = 4_000_000
"""Characters of a result that are looked at; what does not fit the view goes into an artifact."""


def words_of(result: Json) -> str:
    """The text of a `CallToolResult`; what is no text is told of."""
    parts = [words for part in result.get("content") or () if (words := _part(part))]
    structured = result.get("structuredContent")
    if structured is not None and not parts:
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return text.clean(text.shorten_middle("\n\n".join(parts), LONGEST))


def _part(part: Any) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text") or "")
    if kind in {"image", "audio"}:
        size = len(str(part.get("data") or "")) * 3 // 4
        return f"[{kind}: {part.get('mimeType')}, {size:,} bytes, not shown]"
    if kind == "resource_link":
        return f"[resource: {part.get('name')}, {part.get('uri')}]"
    inner = part.get("resource") if kind == "resource" else None
    if isinstance(inner, dict):
        if isinstance(inner.get("text"), str):
            return f"[{inner.get('uri')}]\n{inner['text']}"
        return f"[resource: {inner.get('uri')}, {inner.get('mimeType')}, not shown]"
    return f"[{kind}: not shown]"
