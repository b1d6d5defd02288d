"""All built-in tools together: their names, their schemas and the size of the first request."""

from __future__ import annotations

import json
import shutil
from datetime import UTC
from pathlib import Path

from bot import errors
from bot.config.ship_file import WebSearch
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.contracts.model import ModelReply, ModelRequest
from bot.core import view
from bot.core.archive_files import ChatStore
from bot.core.prompt import InstructionFiles, Prompts
from bot.core.view import render
from bot.llm.messages_api import body_of
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.system import SystemClock, SystemDisk, UlidSource, read_link
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools.builtin import Search, ToolPorts, builtin_tools
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher, Registry
from bot.tools.file_guard import FileGuard
from bot.tools.isolation import Isolation
from bot.tools.permissions.patterns import ARGUMENTS, Paths
from bot.tools.permissions.rules import CORE, Rules
from bot.tools.policy import Policy
from bot.tools.project import Project
from bot.tools.skills import SkillFolder
from channels.slack.manifest import MANIFEST
from tests.tool_calls import run_blocks


async def no_model(request: ModelRequest) -> ModelReply:
    raise errors.ModelUnreachable(request.model)


def registry(root: Path) -> Registry:
    log = MemoryLog()
    archive = ChatStore(root / "chats", disk=SystemDisk(), log=log)
    artifacts = ArtifactStore(
        root / "artifacts", disk=SystemDisk(), ids=UlidSource(), clock=SystemClock(), log=log
    )
    guard = FileGuard(root)
    skills = SkillFolder(root, [], log, guard)
    memory = NoteStore(root / "memory", disk=SystemDisk())
    clock, project, isolation = SystemClock(), Project(root), Isolation(root)
    search = Search(WebSearch(), "", no_model)
    ports = ToolPorts(
        archive.search, artifacts, skills, clock, memory, project, isolation, guard, search=search
    )
    return Registry(builtin_tools(ports))


def test_rules_may_name_every_tool_that_is_built_in(tmp_path: Path) -> None:
    assert set(registry(tmp_path).names()) == set(CORE)
    assert set(ARGUMENTS) <= set(CORE)


def test_schemas_are_flat_and_take_what_they_took(tmp_path: Path) -> None:
    tools = registry(tmp_path)
    for one in tools.definitions:
        told = json.dumps(one["input_schema"])
        for noise in ("anyOf", '"null"', ": null", "$ref", "$defs", "maxLength", "title"):
            assert noise not in told, one["name"]
    load = next(one for one in tools.definitions if one["name"] == "chat_load_history")["input_schema"]
    assert load["properties"]["role"]["enum"] == ["user", "assistant"]
    assert load["properties"]["limit"] | {"description": ""} == {
        "default": 30,
        "description": "",
        "maximum": 200,
        "minimum": 1,
        "type": "integer",
    }
    tool = tools.get("chat_load_history")
    assert tool is not None
    assert tool.input.model_validate({"keyword": None}) == tool.input.model_validate({})


async def test_without_a_rule_and_without_anybody_to_ask_nothing_with_effects_runs(tmp_path: Path) -> None:
    tools, paths, log = registry(tmp_path), Paths(str(tmp_path), read_link), MemoryLog()
    policy = Policy(tools, Rules(paths), paths, frozenset(), UTC, SystemClock(), log, FileGuard(tmp_path))
    runner = Dispatcher(tools, clock=SystemClock(), log=log, around=policy)
    calls = [
        tool_use("write_file", path="x", content="y"),
        tool_use("edit_file", path="Agent.md", old_str="a", new_str="b"),
        tool_use("web_fetch", url="https://example.org/"),
        tool_use("run_shell", command="touch x"),
    ]
    with tool_scope(ToolExecutionContext("web:chat:1", "R", "U1", None, None)):  # type: ignore[arg-type]
        results = await run_blocks(runner, calls)
    assert ["needs an approval" in result["content"] for result in results] == [True] * len(calls)
    assert not (tmp_path / "x").exists()


async def test_the_first_request_is_at_most_12000_characters(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[3] / "Agent.md", tmp_path)
    log, key = MemoryLog(), ChatKey.parse("slack:chat:C01234567:thread:1700000000.000100")
    guard = FileGuard(tmp_path)
    prompts = Prompts(
        name="Shipmate",
        skills=SkillFolder(tmp_path, [], log, guard),
        instructions=InstructionFiles(tmp_path, log, guard),
    )
    frozen = await prompts.freeze(key, "slack", "m", budget=60_000, size=len)
    inbound = Inbound(
        channel="slack",
        chat_id="C01234567",
        chat_key=key,
        chat_type="group",
        user_id="U01234567",
        user_name="Ana",
        keys=("k",),
        ts=1,
        target={},
        text="Hi, who are you?",
        request_id=UlidSource().ulid(),
    )
    system = frozen.system(tmp_path, inbound, MANIFEST.rules)
    assert "You are Shipmate" in system[0]["text"]
    message = view.build(inbound, 0, "0" * 8)
    asked = render(
        model="claude-sonnet-5-5",
        max_tokens=8_192,
        system=system,
        tools=registry(tmp_path).definitions,
        history=(),
        injected=(),
        current=(message,),
    )
    assert len(json.dumps(body_of(asked))) <= 12_000
