"""What is wrong with ship.json where only the tools know it."""

from __future__ import annotations

from collections.abc import Iterator

from bot.config.shape import ShipFile
from bot.tools import permissions
from bot.tools.mcp import findings as servers


def wrong(file: ShipFile) -> Iterator[str]:
    """One line for each fault."""
    yield from permissions.wrong(file)
    yield from servers.wrong(file)
