"""Checks the parts of ship.json that only the tools can judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bot.config.shape import ShipFile
from bot.tools import permissions
from bot.tools.mcp import findings as servers
from bot.tools.permissions.code import border


def warnings(root: Path) -> Iterator[str]:
    """Yield warnings about settings that work, but not as one might expect."""
    if border(root).closed:
        yield (
            "this folder is part of Shipmate's own code or holds it, so tools that write and commands are refused here; "
            "shipmate run --dir DIR takes another one"
        )


def wrong(file: ShipFile) -> Iterator[str]:
    """One line for each fault."""
    yield from permissions.wrong(file)
    yield from servers.wrong(file)
