"""All configured MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from bot.config.ship_file import Mcp
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.tools import Tool
from bot.tools.context import Questions
from bot.tools.mcp.server import Server
from bot.tools.registry import ToolOffer


class McpServers:
    """The `tools.registry.ToolCatalog` of the MCP servers in ship.json. The gateway's start does not wait for
    servers. Servers ask the person of the turn through `questions`.
    """

    def __init__(
        self,
        settings: Mcp,
        *,
        questions: Questions,
        root: Path,
        clock: Clock,
        log: Log,
        redact: Redact,
    ) -> None:
        self.servers = {
            name: Server(name, one, questions=questions, root=root, clock=clock, log=log, redact=redact)
            for name, one in sorted(settings.servers.items())
            if one.enabled
        }
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start connecting to all servers at the same time."""
        self._running = [
            asyncio.create_task(server.run(), name=f"mcp {name}") for name, server in self.servers.items()
        ]

    async def close(self) -> None:
        """Stop all servers. Calling `close` twice, or before `start`, does no harm."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []

    def get(self, name: str) -> Tool | None:
        return next((tool for one in self.servers.values() if (tool := one.tools.get(name))), None)

    def offers(self) -> Sequence[ToolOffer]:
        return [offer for server in self.servers.values() for offer in server.offers()]

    def sources(self) -> Mapping[str, str]:
        return {name: _state(server) for name, server in self.servers.items()}

    def troubles(self) -> Mapping[str, str]:
        """Return the failure of each server for operators; "" for a server without a failure."""
        return {name: server.trouble for name, server in self.servers.items()}

    def lasting(self, seconds: float) -> Mapping[str, str]:
        """Return the failures that have lasted at least `seconds`; "" for all other servers."""
        return {
            name: server.trouble if server.away > seconds else "" for name, server in self.servers.items()
        }


def _state(server: Server) -> str:
    if server.state == "ready":
        return f"{len(server.tools)} tools"
    return "not running" if server.state == "down" else "starting"
