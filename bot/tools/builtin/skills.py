"""`skills_list` and `skills_load`: instructions that operators have put into the project."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.tools.builtin import ToolPorts, tool


@tool("List the skills that can be loaded, with what each is for.")
async def skills_list(ports: ToolPorts) -> str:
    skills = await ports.skills.overview()
    return "\n".join(f"- {skill.name}: {skill.description}" for skill in skills) or "There are no skills."


@tool("Load the instructions of one skill by its exact name.", ages=False)
async def skills_load(
    ports: ToolPorts,
    *,
    name: Annotated[str, Field(min_length=1, max_length=64, description="The skill's exact name.")],
) -> str:
    return await ports.skills.load(name)


TOOLS = (skills_list, skills_load)
