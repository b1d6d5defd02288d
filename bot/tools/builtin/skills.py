"""`skills_list` and `skills_load`: instructions that operators have put into the project."""

from __future__ import annotations

from pydantic import Field

from bot.contracts.tools import ToolInput
from bot.tools.builtin import BuiltinTool


class SkillsLoadInput(ToolInput):
    name: str = Field(min_length=1, max_length=64, description="The skill's exact name.")


class SkillsList(BuiltinTool):
    name = "skills_list"
    description = "List the skills that can be loaded, with what each is for."

    async def run(self, _: ToolInput) -> str:
        skills = await self.ports.skills.overview()
        return "\n".join(f"- {skill.name}: {skill.description}" for skill in skills) or "There are no skills."


class SkillsLoad(BuiltinTool):
    name = "skills_load"
    description = "Load the instructions of one skill by its exact name."
    input = SkillsLoadInput
    ages = False

    async def run(self, args: SkillsLoadInput) -> str:
        return await self.ports.skills.load(args.name)


TOOLS = (SkillsList, SkillsLoad)
