"""Checks the MCP servers in ship.json for what keeps them from working."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from bot.config.findings import finding
from bot.config.ship_file import ShipFile

LIBRARY = "mcp"


def mistakes(file: ShipFile) -> Iterator[str]:
    """Servers that are on, without the library that talks with them."""
    names = [name for name, server in file.mcp.servers.items() if server.enabled]
    if names and importlib.util.find_spec(LIBRARY) is None:
        yield finding(
            "mcp.servers",
            f"{len(names)} that are on, and no library for them",
            f"the Python package {LIBRARY}",
            "run `pip install 'shipmate[mcp]'`, or set enabled to false",
        )
