"""Two gateways never share a folder or a token. A stop works in every phase of the start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from bot.testing.anthropic_script import reply
from tests.blackbox.conftest import Process, World, eventually


async def in_another_folder(world: World, folder: Path) -> Process:
    """Start a second Shipmate with the same tokens."""
    folder.mkdir()
    config = {**world.config, "dashboard": {"enabled": False}}
    (folder / "ship.json").write_text(json.dumps(config), encoding="utf-8")
    second = Process(folder, world.process.env)
    return await second.start(wait=False)


async def test_a_second_gateway_with_the_same_token_is_refused_with_the_pid_even_if_the_first_is_frozen(
    world: World, tmp_path: Path
) -> None:
    await world.start("telegram")
    os.kill(world.process.pid, signal.SIGSTOP)
    try:
        second = await in_another_folder(world, tmp_path / "elsewhere")
        assert await second.ended() == 75
        assert "channels.telegram.botToken: this token is used by process" in second.stderr
        assert f"process {world.process.pid} in {world.root}" in second.stderr
        assert world.process.env["TELEGRAM_BOT_TOKEN"] not in second.stderr
        here = Process(world.root, world.process.env)
        await here.start(wait=False)
        assert await here.ended() == 75
        assert f"held by process {world.process.pid};" in here.stderr
    finally:
        os.kill(world.process.pid, signal.SIGCONT)
    await world.ask("are you still there?", 1)
    assert await world.process.stop() == 0


async def test_after_a_kill_token_and_folder_are_free_at_once(world: World, tmp_path: Path) -> None:
    await world.start("telegram")
    await world.process.kill()
    second = await in_another_folder(world, tmp_path / "elsewhere")
    await eventually(lambda: any(line.startswith("ready ") for line in second.lines))
    assert (second.root / ".ship" / "pid").read_text().strip() == str(second.pid)
    assert await second.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_stop_while_it_drains_changes_nothing(world: World, number: int) -> None:
    await world.start("telegram")
    gate = asyncio.Event()
    world.model.script(lambda _: reply("Just in time.", hold=gate))
    world.telegram.say("你好")
    await world.model.until(lambda: len(world.model.requests) == 1)
    os.kill(world.process.pid, number)
    await eventually(lambda: any(line.startswith("stopping") for line in world.process.lines))
    os.kill(world.process.pid, number)
    gate.set()
    assert await world.process.ended() == 0
    assert world.texts() == ["Just in time."]


async def test_a_stop_before_anything_can_be_reached_ends_at_once(world: World) -> None:
    await world.telegram.stop()
    with socket.socket() as taken:  # otherwise another process might listen on this port
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", world.telegram.port))
        await world.start("telegram", wait=False)
        await eventually(lambda: any("cannot be reached" in line for line in world.process.lines))
        assert await world.process.stop() == 0


async def test_a_stop_while_libraries_are_imported_exits_with_0(world: World) -> None:
    world.process.fresh = True
    await world.start("telegram", "slack", wait=False)
    await eventually((world.root / ".ship" / "pid").exists)
    assert await world.process.stop() == 0
    world.process.fresh = False
    await world.start()
    assert await world.process.stop() == 0
