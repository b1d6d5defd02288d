"""SIGHUP reloads the configuration, and a closed terminal has no effect. Also: files of a first start in an empty
folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import termios
from pathlib import Path
from typing import Any

from bot.testing.anthropic_script import pause, reply, tool_use
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually


async def hung_up(world: World, words: str) -> dict[str, Any]:
    """Send SIGHUP, and return the log line of the reload."""
    before = len([line for line in world.log() if line["kind"] == "reload"])
    os.kill(world.process.pid, signal.SIGHUP)
    await eventually(lambda: len([line for line in world.log() if line["kind"] == "reload"]) > before)
    line = [line for line in world.log() if line["kind"] == "reload"][-1]
    assert words in line["message"]
    return line


async def test_sighup_gives_a_changed_configuration_to_new_turns(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["permissions"] = {"allow": ["write_file"]}
    gate = asyncio.Event()
    write = {"content": "written"}
    answers = [
        pause(reply(tool_use("write_file", write | {"path": "before.txt"})), gate),
        reply("Before."),
        reply(tool_use("write_file", write | {"path": "after.txt"})),
        reply("After."),
        reply("Still."),
    ]
    world.model.script(lambda _: answers[len(world.model.requests) - 1])
    await world.start("telegram")
    world.telegram.say("one")
    await world.model.until(lambda: len(world.model.requests) == 1)
    world.config["llm"]["model"] = "claude-opus-5-5"
    world.config["permissions"] = {"deny": ["write_file"]}
    world.config["log"] = {"maxMb": 999}
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    line = await hung_up(world, "turns that begin from now on have the changed configuration")
    assert line["details"]["changed"] == ["llm.model", "permissions.allow", "permissions.deny"]
    assert line["details"]["restart"] == ["log.maxMb"]
    gate.set()
    await world.heard("Before.")
    # The running turn used the old configuration until its end.
    assert (world.root / "before.txt").read_text(encoding="utf-8") == "written"
    assert [body["model"] for body in world.model.bodies] == ["claude-sonnet-5-5"] * 2
    world.telegram.say("two")
    await world.heard("Before.", "After.")
    assert not (world.root / "after.txt").exists()
    assert [body["model"] for body in world.model.bodies[2:]] == ["claude-opus-5-5"] * 2
    assert "Before." in json.dumps(world.model.bodies[-1]["messages"])

    (world.root / "ship.json").write_text('{"llm": {"model": 5}}', encoding="utf-8")
    line = await hung_up(world, "the one before holds: llm.model")
    await eventually(lambda: line["message"] in world.process.lines)
    world.telegram.say("three")
    await world.heard("Before.", "After.", "Still.")
    assert world.model.bodies[-1]["model"] == "claude-opus-5-5"
    assert await world.process.stop() == 0


def _own_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the shell that started the tests may ignore SIGHUP
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
        env={**os.environ},
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
    async with asyncio.timeout(90):
        assert await process.wait() == 0


async def test_a_bare_start_writes_the_schemas(world: World) -> None:
    """`shipmate run` without `shipmate init` writes the schemas, so that editors find them."""
    await world.start("telegram")
    names = {"ship.schema.json", "log-line.schema.json", "archive-line.schema.json"}
    folder = world.root / ".ship" / "schema"
    assert {path.name for path in folder.iterdir()} == names
    assert all(json.loads(path.read_text(encoding="utf-8"))["$schema"] for path in folder.iterdir())
    assert await world.process.stop() == 0
