"""Fixtures: tools with a real artifact store, in a turn of one chat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.storage.artifacts import ArtifactStore
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import FaultyDisk
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools.builtin import ToolPorts, read_artifact
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher, Registry
from tests.tool_calls import run_blocks

from .walls import CANARY, Desk

KEY = ChatKey.parse("telegram:chat:7:topic:2")


class Nothing(BaseModel):
    pass


class Says:
    """A tool that returns or raises a given answer."""

    description = "Says something."
    input = Nothing
    effects = frozenset({"read"})
    timeout_seconds = 5.0

    def __init__(self, name: str, answer: str | Exception, *, ages: bool = True) -> None:
        self.name = name
        self.answer = answer
        self.ages = ages
        self.asked = 0

    async def run(self, _: Any) -> str:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Workbench:
    """Runs `read_artifact` and other tools in a turn of one chat."""

    def __init__(self, root: Path) -> None:
        self.disk, self.log, clock = FaultyDisk(SystemDisk()), MemoryLog(), FakeClock()
        self.artifacts = ArtifactStore(root, disk=self.disk, ids=UlidSource(clock), clock=clock, log=self.log)
        self._clock, self.touched = clock, list[Path]()
        ports = cast("ToolPorts", type("Ports", (), {"artifacts": self.artifacts}))
        self._reader = read_artifact.read_artifact(ports)

    def dispatcher(self, *tools: Any, **more: Any) -> Dispatcher:
        registry = Registry([self._reader, *tools])
        return Dispatcher(registry, clock=self._clock, log=self.log, **{"artifacts": self.artifacts} | more)

    async def run(self, calls: Sequence[Json], *tools: Any, chat_key: ChatKey = KEY) -> list[Json]:
        turn = ToolExecutionContext(chat_key, "R1", None, None, None, touched=self.touched.append)
        with tool_scope(turn):
            return await run_blocks(self.dispatcher(*tools), calls)

    async def look(self, answer: str | Exception, *, ages: bool = True) -> Json:
        (result,) = await self.run([tool_use("look")], Says("look", answer, ages=ages))
        return result

    async def read(self, artifact_id: str, *, chat_key: ChatKey = KEY, **arguments: Any) -> Json:
        call = tool_use("read_artifact", id=artifact_id, **arguments)
        (result,) = await self.run([call], chat_key=chat_key)
        return result


@pytest.fixture
def tools(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path / "artifacts")


@pytest.fixture
def desk(tmp_path: Path, tools: Workbench, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    root = tmp_path / "project"
    for name in (
        ".env",
        "ship.json",
        ".ship/shipmate.db",
        ".git/config",
        "sub/.env.local",
        "sub/deep/.Git/x",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(CANARY)
    (root / "seen.txt").write_text("seen\n")
    (tmp_path / "outside.txt").write_text(CANARY)
    return Desk(root, tools)
