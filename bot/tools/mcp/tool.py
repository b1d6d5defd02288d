"""Wraps a tool of an MCP server as one that the model may call."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pydantic

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
