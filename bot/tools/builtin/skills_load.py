"""`skills_load`: loads the text of one skill."""

from __future__ import annotations

from pydantic import Field

from bot.contracts.tools import READS, ToolInput
from bot.tools.registry import ToolPorts


class SkillsLoadInput(ToolInput):
    name: str = Field(min_length=1, max_length=64, description="The skill's exact name.")


class SkillsLoad:
    """Returns the instructions of one skill, which operators put into the project."""

    name = "skills_load"
    description = "Load the instructions of one skill by its exact name."
    input = SkillsLoadInput
    effects = READS
    timeout_seconds = 30.0
    ages = False

    def __init__(self, ports: ToolPorts) -> None:
        self._skills = ports.skills

    async def run(self, args: SkillsLoadInput) -> str:
        return await self._skills.load(args.name)


def build(ports: ToolPorts) -> SkillsLoad:
    return SkillsLoad(ports)
