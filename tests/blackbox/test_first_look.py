"""A start without `shipmate init`: from the environment alone, and from a bare `shipmate` on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

from tests.blackbox.conftest import PERSON, START_SECONDS, World


async def test_without_ship_json_the_environment_suffices(world: World, tmp_path: Path) -> None:
    world.process.env |= {"SHIPMATE_OPERATORS": f"telegram:{PERSON}, slack:U0ANN"}
    world.process.env |= {"SLACK_BOT_TOKEN": "", "SLACK_APP_TOKEN": ""}
    checked = await world.process.start(command=("check", "--defaults", "--json"), wait=False)
    assert await checked.ended() == 0
    (found,) = map(json.loads, checked.lines)
    assert (found["provider"], found["operators"]) == ("anthropic", ["slack:U0ANN", f"telegram:{PERSON}"])
    assert {name for name, one in found["channels"].items() if one["on"]} == {"console", "telegram", "web"}
    refused = await world.process.start(command=("check",), wait=False)
    assert await refused.ended() == 78
    assert not (tmp_path / "ship.json").exists()


async def test_operators_of_the_environment_are_checked_and_ship_json_wins(
    world: World, tmp_path: Path
) -> None:
    world.process.env |= {"SHIPMATE_OPERATORS": "bob"}
    wrong = await world.process.start(command=("run", "--defaults"), wait=False)
    assert await wrong.ended() == 78
    assert 'operators[0]: found "bob"' in wrong.stderr
    (tmp_path / "ship.json").write_text("{}", encoding="utf-8")
    checked = await world.process.start(command=("check", "--defaults", "--json"), wait=False)
    assert await checked.ended() == 0
    assert json.loads(checked.lines[0])["operators"] == []


async def test_a_port_that_is_taken_ends_no_start_that_did_not_name_it(world: World, tmp_path: Path) -> None:
    held = [socket.socket(), socket.socket()]
    for port, one in zip((3000, 3001), held, strict=True):
        with contextlib.suppress(OSError):  # another process may have the port; the test works then too
            one.bind(("127.0.0.1", port))
            one.listen()
    world.config = {"llm": {"provider": "demo"}, "channels": {"console": {"enabled": False}}}
    world.process.env = {}
    await world.start()
    ports = {int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", "\n".join(world.process.lines))}
    assert len(ports) == 2
    assert min(ports) > 3001
    await world.process.stop()
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    for key, section in (("channels.web", world.config["channels"]), ("dashboard", world.config)):
        section[key.rpartition(".")[2]] = {"port": port}
        refused = await world.start(wait=False)
        assert await refused.ended() == 75
        (said,) = [line for line in refused.stderr.splitlines() if f"{key}.port" in line]
        assert (
            f"{port} on 127.0.0.1 is in use by process {os.getpid()}; stop it, or set {key}.port to another"
            in said
        )
        del section[key.rpartition(".")[2]]
    for one in (*held, taken):
        one.close()


async def test_a_bare_shipmate_on_a_terminal_is_a_running_demo(tmp_path: Path) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    (data / "shipmate").mkdir(parents=True)
    free = {"dashboard": {"port": 0}, "channels": {"web": {"port": 0}}}
    (data / "shipmate" / "ship.json").write_text(json.dumps(free), encoding="utf-8")
    ours, theirs = os.openpty()
    env = {name: value for name, value in os.environ.items() if "TOKEN" not in name and "KEY" not in name} | {
        "XDG_DATA_HOME": str(data),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", cwd=here, stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    said = b""
    async with asyncio.timeout(START_SECONDS):
        while b"\nready " not in said:
            said += await asyncio.to_thread(os.read, ours, 4096)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(90):
        assert await process.wait() == 0
    os.close(ours)
    assert b"A first look, in " in said
    assert b"the built-in demo model is answering" in said
    assert b"costs, conversations and errors are shown at http://127.0.0.1:" in said
    assert list(here.iterdir()) == []
    assert any((data / "shipmate" / ".ship").glob("*.db"))
