"""Checks the parts of ship.json that only the tools can judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bot.config.ship_file import ShipFile
from bot.tools.mcp import findings as servers
from bot.tools.permissions import findings as rules
from bot.tools.permissions.protected_code import protected_code


def warnings(root: Path) -> Iterator[str]:
    """Yield warnings about settings that work, but not as one might expect."""
    if protected_code(root).closed:
        yield (
            "this folder is part of Shipmate's own code or holds it, so tools that write and commands are refused here; "
            "shipmate run --dir DIR takes another one"
        )


def mistakes(file: ShipFile) -> Iterator[str]:
    """One line for each fault."""
    yield from rules.mistakes(file)
    yield from servers.mistakes(file)
