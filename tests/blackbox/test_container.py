"""The process as in the container: without root, on a read-only root file system."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import PERSON, World

DOCKERFILE = Path(__file__).parents[2] / "deploy" / "Dockerfile"
WALLS = (
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--unshare-user",
    "--uid",
    "10001",
    "--gid",
    "10001",
    "--cap-drop",
    "ALL",
)


def _walled() -> bool:
    bwrap = shutil.which("bwrap")
    return (
        bwrap is not None
        and not subprocess.run([bwrap, *WALLS, "true"], check=False, capture_output=True).returncode
    )


@pytest.mark.skipif(not _walled(), reason="bubblewrap is not installed, or may not make name spaces")
async def test_it_serves_where_the_project_and_tmp_alone_can_be_written_to(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scratch = tmp_path_factory.mktemp("tmp")
    world.only("telegram")
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["permissions"] = {"allow": ["write_file"]}
    world.config["dashboard"] = {"enabled": True, "port": 0}
    world.process.env |= {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "XDG_RUNTIME_DIR": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    binds = [word for path in (world.root, scratch) for word in ("--bind", str(path), str(path))]
    world.process.before = ["bwrap", *WALLS, "--die-with-parent", *binds]
    world.model.answer(tool_use("write_file", {"path": "a.txt", "content": "written"}))
    world.model.answer("Hello.")
    await world.start()
    world.telegram.say("hi")
    await world.heard("Hello.")
    assert (world.root / "a.txt").read_text(encoding="utf-8") == "written"
    (address,) = re.findall(r"http://127\.0\.0\.1:\d+", world.process.ready_line)
    # Run the image's health check against the port of this test.
    check = re.search(r"HEALTHCHECK .*\\\n\s*CMD (\[.*\])", DOCKERFILE.read_text(encoding="utf-8"))
    assert check is not None
    _, *words = json.loads(check[1].replace("http://127.0.0.1:3001", address))
    assert await _code(sys.executable, *words) == 0
    # Signal the gateway itself, not the programs that started it.
    os.kill(int((world.root / ".ship" / "pid").read_text(encoding="ascii")), signal.SIGTERM)
    assert await world.process.ended() == 0
    assert await _code(sys.executable, *words) == 1


async def _code(*words: str) -> int | None:
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
    await process.wait()
    return process.returncode
