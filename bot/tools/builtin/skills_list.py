"""`skills_list`: lists the skills."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from bot.contracts.tools import Effect
from bot.tools.registry import ToolPorts


class SkillsListInput(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SkillsList:
    """The overview, as it is now."""

    name = "skills_list"
    description = "List the skills that can be loaded, with what each is for."
    input = SkillsListInput
    effects: ClassVar[frozenset[Effect]] = frozenset({"read"})
    timeout_seconds = 30.0
    ages = True

    def __init__(self, ports: ToolPorts) -> None:
        self._skills = ports.skills

    async def run(self, _: SkillsListInput) -> str:
        skills = await self._skills.overview()
        if not skills:
            return "There are no skills."
        return "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)


def build(ports: ToolPorts) -> SkillsList:
    return SkillsList(ports)
