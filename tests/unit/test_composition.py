"""What `composition` hands to several parts is one and the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from bot import composition, config, discovery
from bot.contracts.identity import ChatKey
from bot.contracts.tools import Effect
from bot.gateway.builder import build_agent_services
from bot.instance import prepare_home
from bot.lifecycle import Environment
from bot.system import SystemDisk
from bot.telemetry import JsonlLog
from bot.testing.model import tool_use
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.made_files import ANYWHERE, FileWriters
from bot.tools.registry import Registry
from tests.tool_calls import run_blocks


class Command(BaseModel):
    command: str


class Runs:
    """A tool that runs a program, and sees what another turn is told of it meanwhile."""

    name = "run_shell"
    description = "Runs."
    input = Command
    effects = frozenset[Effect]({"run"})
    timeout_seconds = 5.0
    ages = False

    def __init__(self, made: FileWriters) -> None:
        self.made = made
        self.seen = set[str]()

    async def run(self, _: Any) -> str:
        with tool_scope(turn("R2")), self.made.at_work("a.csv") as others:
            self.seen |= others
        return "ended well"


def turn(request_id: str) -> ToolExecutionContext:
    return ToolExecutionContext(ChatKey.parse("web:chat:1"), request_id, None, None, cast("Any", None))


async def test_what_runs_for_one_turn_is_known_where_another_ones_files_are_told(tmp_path: Path) -> None:
    rules = {"allow": ["run_shell"]}
    (tmp_path / "ship.json").write_text(json.dumps({"llm": {"provider": "demo"}, "permissions": rules}))
    settings = config.load(tmp_path, discovery.manifests(), {})
    prepare_home(settings.home)
    environment = Environment()
    log = JsonlLog(settings.home / "logs", clock=environment.clock, disk=SystemDisk(), ids=environment.ids)
    services = composition.build_services(settings, environment, log)
    gateway = build_agent_services(composition.gateway_deps(services, {}))
    ports = composition.build_tool_ports(
        services, gateway, composition.build_mcp(services, gateway.questions)
    )
    tool = Runs(ports.made)
    dispatcher = composition.build_dispatcher(services, Registry([tool]), gateway)
    with tool_scope(turn("R1")):
        (result,) = await run_blocks(dispatcher, [tool_use("run_shell", command="true")])
    assert result["content"] == "ended well"
    assert tool.seen == {ANYWHERE}
    log.close()
