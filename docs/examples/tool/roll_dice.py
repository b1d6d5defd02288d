"""`roll_dice`: rolls dice."""

from __future__ import annotations

import secrets

from pydantic import Field

from bot.contracts.tools import ToolInput
from bot.tools.builtin import BuiltinTool


class RollDiceInput(ToolInput):
    count: int = Field(default=1, ge=1, le=20, description="Dice to roll.")
    sides: int = Field(default=6, ge=2, le=100, description="Sides of each.")


class RollDice(BuiltinTool):
    """Rolls dice with the system's source of randomness."""

    name = "roll_dice"
    description = "Roll dice and return the number that each shows."
    input = RollDiceInput
    timeout_seconds = 5.0

    async def run(self, args: RollDiceInput) -> str:
        shown = [secrets.randbelow(args.sides) + 1 for _ in range(args.count)]
        return f"{', '.join(map(str, shown))}; together {sum(shown)}"


TOOLS = (RollDice,)
