"""A hangup ends nothing: neither SIGHUP nor a terminal that closes. What a first start leaves in a bare folder."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import termios
from pathlib import Path

from tests.blackbox.conftest import START_SECONDS, World, eventually


async def test_sighup_is_ignored_and_logged_and_turns_go_on(world: World) -> None:
    world.only("telegram")
    world.model.answer("Before.")
    world.model.answer("After.")
    await world.start()
    world.telegram.say("one")
    await world.heard("Before.")
    os.kill(world.process.pid, signal.SIGHUP)
    await eventually(lambda: any("SIGHUP" in line["message"] for line in world.log()))
    world.telegram.say("two")
    await world.heard("Before.", "After.")
    assert await world.process.stop() == 0


def _own_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests were started under
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


async def test_a_terminal_that_closes_takes_nothing_with_it(tmp_path: Path) -> None:
    config = {
        "llm": {"provider": "demo"},
        "channels": {"web": {"enabled": False}},
        "dashboard": {"enabled": False},
    }
    (tmp_path / "ship.json").write_text(json.dumps(config), encoding="utf-8")
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bot",
        "run",
        "--dir",
        str(tmp_path),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(theirs)
    said = b""
    async with asyncio.timeout(START_SECONDS):
        while b"\nready " not in said:
            said += await asyncio.to_thread(os.read, ours, 4096)
    os.close(ours)
    logs = tmp_path / ".ship" / "logs"
    await eventually(
        lambda: any("SIGHUP" in file.read_text(encoding="utf-8") for file in logs.glob("*.jsonl"))
    )
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(15):
        assert await process.wait() == 0


async def test_a_bare_start_writes_the_schemas(world: World) -> None:
    """`shipmate run` without `shipmate init`: editors and readers of the files find them all the same."""
    world.only("telegram")
    await world.start()
    names = {"ship.schema.json", "log-line.schema.json", "archive-line.schema.json"}
    folder = world.root / ".ship" / "schema"
    assert {path.name for path in folder.iterdir()} == names
    assert all(json.loads(path.read_text(encoding="utf-8"))["$schema"] for path in folder.iterdir())
    assert await world.process.stop() == 0
