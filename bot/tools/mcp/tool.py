"""Presents a tool of an MCP server as a tool that the model can call, and converts the tool's results into text."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pydantic

from bot import text
from bot.contracts.base import Json
from bot.contracts.tools import Effect, Pictured
from bot.tools.mcp import definitions
from bot.tools.registry import ToolOffer

Run = Callable[[str, Json], Awaitable[Pictured]]
LAST_RESORT = 2 * 3_600.0
"""Extra seconds in the time limit that dispatch enforces. The connection enforces the tool's own limit,
which is suspended while a person is being asked.
"""


class ServerTool:
    """A tool of an MCP server. The tool's effects are unknown, so all effects are assumed."""

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

    async def run(self, args: Any) -> Pictured:
        return await self._run(self.offer.title, args.root)


LONGEST = 4_000_000
"""Max characters of a result. A result that does not fit in the model's context becomes an artifact."""
MOST_PARTS = 1_000
"""Max parts of a result."""
MOST_VALUES = 200_000
"""Max objects and lists in a message; parsing more would block the event loop."""
LEFT_OUT = "shipmate/leftOut"
"""Key in `_meta` of a list of tools. The value contains the tools that cannot be declared, with reasons."""


def mended(raw: bytes) -> bytes:
    """Return a server's message with invalid tools and result parts repaired or omitted. The SDK would
    reject the whole message. Raises OverflowError for too many values.
    """
    words = raw.decode("utf-8", "replace")
    if words.count("{") + words.count("[") > MOST_VALUES:
        raise OverflowError(f"an answer of more than {MOST_VALUES:,} values")
    try:
        message = json.loads(words)
    except (ValueError, RecursionError):
        return raw
    result = message.get("result") if isinstance(message, dict) else None
    if isinstance(result, dict) and isinstance(result.get("tools"), list):
        result["tools"], left_out = _tools(result["tools"])
        result["_meta"] = {LEFT_OUT: left_out}
    elif isinstance(result, dict) and {"content", "structuredContent"} & result.keys():
        parts = result.get("content")
        result["content"] = parts = parts[:MOST_PARTS] if isinstance(parts, list) else [parts]
        data = (part.get("data") for part in parts if isinstance(part, dict) and part.get("type") == "image")
        pictures = [{"type": "image", "data": one, "mimeType": ""} for one in data if isinstance(one, str)]
        result["content"] = [{"type": "text", "text": words_of(result)}, *pictures]
        result["isError"] = result.get("isError") is True
        result.pop("structuredContent", None)
    return text.clean(json.dumps(message, ensure_ascii=False)).encode()


def _tools(defined: list[Any]) -> tuple[list[Json], list[str]]:
    """Return the tools that can be declared, and the reasons why the other tools cannot."""
    tools, left_out = [], []
    for one in defined:
        try:
            tools.append(definitions.declared(one))
        except definitions.UndeclarableTool as error:
            name = one.get("name") if isinstance(one, dict) else one
            left_out.append(f"{definitions.line(str(name), 80)}: {error}")
    return tools, left_out


def words_of(result: Json) -> str:
    """Return a `CallToolResult` as text, with notes in place of content that is not text."""
    parts = [words for part in result.get("content") or () if (words := _part(part))]
    structured = result.get("structuredContent")
    if structured is not None and not parts:
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return text.clean(text.shorten_middle("\n\n".join(parts), LONGEST))


def _part(part: Any) -> str:
    part = part if isinstance(part, dict) else {}
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text") or "")
    if kind in {"image", "audio"}:
        size = len(str(part.get("data") or "")) * 3 // 4
        return f"[{kind}: {part.get('mimeType')}, {size:,} bytes]"
    if kind == "resource_link":
        return f"[resource: {part.get('name')}, {part.get('uri')}]"
    inner = part.get("resource") if kind == "resource" else None
    if isinstance(inner, dict):
        if isinstance(inner.get("text"), str):
            return f"[{inner.get('uri')}]\n{inner['text']}"
        return f"[resource: {inner.get('uri')}, {inner.get('mimeType')}, not shown]"
    return f"[{kind}: not shown]"
