"""A start without `shipmate init`, from the environment alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path

from tests.blackbox.conftest import PERSON, World


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
