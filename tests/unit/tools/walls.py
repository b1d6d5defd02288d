"""A sandbox in a project with secrets."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from bot.contracts.base import Json
from bot.testing.model import tool_use
from bot.tools.builtin import ToolPorts, run_shell
from bot.tools.isolation import Isolation
from bot.tools.project import Project

if TYPE_CHECKING:
    from .conftest import Workbench

CANARY = "canary-77aa-secret"


def bubblewrap_works() -> bool:
    program = shutil.which("bwrap")
    trial = [program or "", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return program is not None and subprocess.run(trial, capture_output=True, check=False).returncode == 0


isolated = pytest.mark.skipif(
    not bubblewrap_works(), reason="bubblewrap is not installed, or does not work here"
)


class Desk:
    def __init__(self, root: Path, tools: Workbench) -> None:
        self.root, self._bench = root, tools
        self.isolation = Isolation(root)

    async def call(self, command: str, **more: Any) -> Json:
        tool = run_shell.run_shell(
            cast(
                "ToolPorts",
                SimpleNamespace(
                    isolation=self.isolation,
                    project=Project(self.isolation.root),
                ),
            )
        )
        (result,) = await self._bench.run([tool_use("run_shell", command=command, **more)], tool)
        return result

    async def said(self, command: str, **more: Any) -> str:
        result = await self.call(command, **more)
        assert "is_error" not in result, result["content"]
        return str(result["content"])

    async def failed(self, command: str, **more: Any) -> str:
        result = await self.call(command, **more)
        assert result["is_error"], result["content"]
        return str(result["content"])


MARK = str(10_000_000 + os.getpid())
"""Seconds that only commands of this process sleep."""


async def all_ended() -> None:
    """Wait until no command of these tests sleeps any more. The kernel needs a moment to remove a killed process."""
    ps = ["ps", "-eo", "args"]
    async with asyncio.timeout(90):
        while (
            f"sleep {MARK}"
            in (await asyncio.to_thread(subprocess.run, ps, capture_output=True, text=True)).stdout
        ):
            pass
