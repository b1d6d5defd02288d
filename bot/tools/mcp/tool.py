"""Wraps a tool of an MCP server as one that the model may call, and turns its results into text."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pydantic

from bot import text
from bot.contracts.base import Json
from bot.contracts.tools import Effect
from bot.tools.catalog import ToolOffer
from bot.tools.mcp import definitions

Run = Callable[[str, Json], Awaitable[str]]
LAST_RESORT = 2 * 3_600.0
"""Seconds beyond its own limit, which the connection keeps and which stands still while a person is asked."""


class ServerTool:
    """A tool of a server. Its effects are unknown, whatever it says of itself: it may do anything."""

    effects: ClassVar[frozenset[Effect]] = frozenset({"read", "write", "run", "network", "message"})
    ages = True

    def __init__(self, offer: ToolOffer, run: Run, seconds: float, schema: Json, defined: str = "") -> None:
        self.offer = offer
        self.name = offer.name
        self.description = str(offer.definition["description"])
        self.timeout_seconds = seconds + LAST_RESORT
        self.defined = defined
        self._run = run
        self._schema = schema

    @functools.cached_property
    def input(self) -> type[pydantic.BaseModel]:
        return definitions.arguments(self._schema)

    async def run(self, args: Any) -> str:
        return await self._run(self.offer.title, args.root)


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
