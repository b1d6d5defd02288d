"""Each run begins and ends with a log line. The first line says how the previous run ended."""

from __future__ import annotations

import platform
from typing import Any

from tests.blackbox.conftest import World, eventually


async def test_a_run_says_how_it_began_and_how_the_one_before_ended(world: World) -> None:

    def of(kind: str) -> list[dict[str, Any]]:
        return [line["details"] for line in world.log() if line["kind"] == kind and line["level"] == "info"]

    await world.start("telegram")
    await eventually(lambda: len(of("ready")) == 1)
    (first,) = of("start")
    assert first["lastRun"] == "none"
    assert first["python"] == platform.python_version()
    assert (first["pid"], first["channels"]) == (world.process.pid, ["telegram"])
    assert of("ready") == [{"channels": ["telegram"]}]
    await world.process.kill()
    await world.start()
    assert await world.process.stop() == 0
    assert of("stop") == [{"ended": "stopped"}]
    assert world.log()[-1]["kind"] == "stop"
    world.config["name"] = "other"
    await world.start()
    assert await world.process.stop() == 0
    begun = of("start")
    assert [one["lastRun"] for one in begun] == ["none", "killed", "ended"]
    assert begun[0]["configuration"] == begun[1]["configuration"] != begun[2]["configuration"]


async def test_a_run_that_cannot_begin_says_so_at_its_end(world: World) -> None:
    world.process.env["TELEGRAM_BOT_TOKEN"] = "123456:no-such-token-no-such-token-no-such"
    await world.start("telegram", wait=False)
    assert await world.process.ended() == 78
    assert [(line["kind"], line["details"].get("ended")) for line in world.log()[-2:]] == [
        ("error", None),
        ("stop", "failed"),
    ]
