"""The tool `roll_dice`."""

from __future__ import annotations

import secrets
from typing import Annotated

from pydantic import Field

from bot.tools.builtin import ToolPorts, tool


@tool("Roll dice and return the number that each shows.", timeout_seconds=5.0)
async def roll_dice(
    _ports: ToolPorts,
    *,
    count: Annotated[int, Field(ge=1, le=20, description="Dice to roll.")] = 1,
    sides: Annotated[int, Field(ge=2, le=100, description="Sides of each.")] = 6,
) -> str:
    """Roll dice with the system's source of randomness."""
    shown = [secrets.randbelow(sides) + 1 for _ in range(count)]
    return f"{', '.join(map(str, shown))}; together {sum(shown)}"


TOOLS = (roll_dice,)
