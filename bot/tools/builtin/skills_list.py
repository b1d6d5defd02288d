"""`skills_list`: lists the available skills."""

from __future__ import annotations

from bot.contracts.tools import READS, ToolInput
from bot.tools.registry import ToolPorts


class SkillsList:
    """Lists the available skills."""

    name = "skills_list"
    description = "List the skills that can be loaded, with what each is for."
    input = ToolInput
    effects = READS
    timeout_seconds = 30.0
    ages = True

    def __init__(self, ports: ToolPorts) -> None:
        self._skills = ports.skills

    async def run(self, _: ToolInput) -> str:
        skills = await self._skills.overview()
        if not skills:
            return "There are no skills."
        return "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)


def build(ports: ToolPorts) -> SkillsList:
    return SkillsList(ports)
