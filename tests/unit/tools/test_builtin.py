"""Every file in `builtin` is a tool, and together with the rules they stay small."""

from __future__ import annotations

import json
import pkgutil
import shutil
from pathlib import Path

from bot.context import prompt
from bot.context.assembly import Prompts
from bot.context.instructions import InstructionFiles
from bot.context.skills import SkillFolder
from bot.history.archive import ChatStore
from bot.history.artifacts import ArtifactStore
from bot.history.memory_files import MemoryStore
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.log import MemoryLog
from bot.tools import builtin
from bot.tools.project import Project
from bot.tools.registry import Registry, ToolPorts, builtin_tools


def registry(root: Path) -> Registry:
    log = MemoryLog()
    archive = ChatStore(root / "chats", disk=SystemDisk(), log=log)
    artifacts = ArtifactStore(
        root / "artifacts", disk=SystemDisk(), ids=UlidSource(), clock=SystemClock(), log=log
    )
    skills = SkillFolder(root, [], log)
    memory = MemoryStore(root / "memory", disk=SystemDisk())
    ports = ToolPorts(archive, artifacts, skills, SystemClock(), memory, Project(root))
    return Registry(builtin_tools(ports))


def test_every_module_is_a_tool_of_the_same_name(tmp_path: Path) -> None:
    assert registry(tmp_path).names() == sorted(
        module.name for module in pkgutil.iter_modules(builtin.__path__)
    )
    assert registry(tmp_path).names() == [
        "chat_load_history", "chat_send", "list_dir", "memory", "read_artifact", "read_file", "search_files",
        "skills_list", "skills_load",
    ]  # fmt: skip


def test_what_is_looked_up_ages_and_what_was_said_or_taught_does_not(tmp_path: Path) -> None:
    tools = registry(tmp_path)
    ages = {name: tool.ages for name in tools.names() if (tool := tools.get(name)) is not None}
    assert ages == {
        "chat_load_history": False,
        "chat_send": False,
        "list_dir": True,
        "memory": True,
        "read_artifact": True,
        "read_file": True,
        "search_files": True,
        "skills_list": True,
        "skills_load": False,
    }


async def test_the_first_request_is_at_most_12000_characters(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[3] / "Agent.md", tmp_path)
    log = MemoryLog()
    prompts = Prompts(
        tmp_path,
        skills=SkillFolder(tmp_path, [], log),
        instructions=InstructionFiles(tmp_path, encode=str, log=log),
        log=log,
        has_files=True,
    )
    frozen = await prompts.freeze("slack:chat:C1", "slack", "m", budget=60_000, size=len)
    facts = prompt.ChatFacts(tmp_path, "slack:chat:C1:thread:1.2", "slack", "C1", "group", "r" * 600)
    system = json.dumps(prompt.system_blocks(frozen.static, frozen.chat(facts)))
    assert "You are Shipmate" in system
    tools = json.dumps(registry(tmp_path).definitions)
    assert len(system) + len(tools) <= 12_000
