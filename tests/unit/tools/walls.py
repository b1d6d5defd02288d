"""`run_shell` in a folder with secrets, behind either wall."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from bot.contracts.base import Json
from bot.testing.model import tool_use
from bot.tools import isolation
from bot.tools.builtin import run_shell
from bot.tools.command_limits import CommandLimits
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation, PathMasks
from bot.tools.project import Project
from bot.tools.registry import ToolPorts

if TYPE_CHECKING:
    from .conftest import Workbench

CANARY = "canary-77aa-secret"
NOTHING = PathMasks()


def bubblewrap_works() -> bool:
    program = shutil.which("bwrap")
    trial = [program or "", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return program is not None and subprocess.run(trial, capture_output=True, check=False).returncode == 0


def landlock_works(tmp: Path) -> bool:
    return confined(tmp, ["true"]).returncode == 0


def confined(
    root: Path, words: Sequence[str], found: PathMasks = NOTHING, read: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Words behind the second wall, which may read a few things more."""
    handles = [os.open(os.devnull, os.O_WRONLY)]
    before = isolation.confinement(root, found, handles, CommandLimits(), network=False)
    spec = json.loads(os.pread(handles[1], 1_000_000, 0))
    spec["read"] += read
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(spec).encode())
        file.seek(0)
        done = subprocess.run(
            [*before[:-1], str(file.fileno()), *words],
            pass_fds=[handles[0], file.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    for handle in handles:
        os.close(handle)
    return done


isolated = pytest.mark.parametrize("desk", ["bubblewrap", "landlock"], indirect=True)
"""What holds behind each of the walls."""


class Desk:
    def __init__(self, root: Path, tools: Workbench) -> None:
        self.root, self._bench = root, tools
        self.isolation = Isolation(root)

    async def call(self, command: str, **more: Any) -> Json:
        tool = run_shell.build(
            cast(
                "ToolPorts",
                SimpleNamespace(
                    isolation=self.isolation,
                    project=Project(self.isolation.root),
                    origins=FileProvenance(self.isolation.root),
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
    """Wait until no command sleeps any more: a killed process is there until the kernel has taken it down."""
    ps = ["ps", "-eo", "args"]
    async with asyncio.timeout(90):
        while (
            f"sleep {MARK}"
            in (await asyncio.to_thread(subprocess.run, ps, capture_output=True, text=True)).stdout
        ):
            pass
