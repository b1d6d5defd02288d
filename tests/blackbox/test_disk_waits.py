"""Tests of the two waits for the disk between a message and its answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.system import SystemDisk
from bot.testing.anthropic_script import Reply, pause, reply, tool_use
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually
from tests.torture.inside import Inside, environment, quick_ends

DASHBOARD = "dashboard token of 12 words"
OTHER = 3001


class Stuck:
    """A disk whose fsyncs do not return between `hold` and `let_go`."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.over = threading.Event()

    def wait(self) -> None:
        if self.held.is_set():
            assert self.over.wait(60)


class StuckDisk(SystemDisk):
    """A disk whose files can be written, but no fsync returns."""

    def __init__(self, stuck: Stuck) -> None:
        self.stuck = stuck

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        super().append(path, data, sync=sync)
        if sync and path.suffix == ".jsonl":
            self.stuck.wait()

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        if path.suffix == ".jsonl":
            self.stuck.wait()

    def sync(self, path: Path) -> None:
        super().sync(path)
        self.stuck.wait()


class CountedLog:
    """A chat log that counts the waits for it while the disk is stuck."""

    def __init__(self, inner: Any, stuck: Stuck) -> None:
        self._inner = inner
        self._stuck = stuck
        self.waits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def committed(self, *, patient: bool = True) -> None:
        self.waits += self._stuck.held.is_set()
        await self._inner.committed(patient=patient)


@pytest.mark.parametrize("sends", [True, False])
async def test_a_message_waits_for_the_disk_twice_before_it_is_answered(
    world: World, sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    world.only("telegram")

    def script(body: Any) -> Reply:
        words = body["messages"][-1]["content"][-1].get("text", "")
        return reply(tool_use("chat_send", {"text": f"to {words}"}) if sends else f"to {words}")

    world.model.script(script)
    stuck = Stuck()
    logs: list[CountedLog] = []

    def wrapped(made: Any) -> Any:
        logs.append(CountedLog(made, stuck))
        return logs[-1]

    with environment(world):
        life = await Inside(world, disk=StuckDisk(stuck), event_log=wrapped).start()
        try:
            world.telegram.say("first")  # a new person is greeted first
            await eventually(lambda: "to first" in world.texts())
            await world.sent()
            stuck.held.set()
            world.telegram.say("second")
            await eventually(lambda: "to second" in world.texts())
            assert logs[0].waits == 2
        finally:
            stuck.held.clear()
            stuck.over.set()
            await life.end()


async def test_a_log_that_cannot_be_written_stops_nothing_else_and_loses_no_answer(world: World) -> None:
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["dashboard"] = {"port": 0, "token": "${DASHBOARD_TOKEN}"}
    world.process.env["DASHBOARD_TOKEN"] = DASHBOARD
    gate = asyncio.Event()
    world.model.script(lambda _: pause(reply("The answer."), gate))
    await world.start("telegram")
    page = world.process.ready_line.split()[-1] + "/healthz"
    world.telegram.say("asked before")
    await world.model.until(lambda: len(world.model.requests) == 1, START_SECONDS)
    seen = 0
    with closing(sqlite3.connect(world.root / ".ship" / "shipmate.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        gate.set()
        world.telegram.say("asked meanwhile", chat_id=OTHER)
        async with asyncio.timeout(START_SECONDS):
            while not any("refuses the log" in line["message"] for line in world.log()):
                async with world.session.get(page) as answer:
                    assert answer.status == 200
                seen += 1
        assert world.texts(PERSON) == world.texts(OTHER) == []
    # If a shared thread waited for the database until the refusal, there would be only one response.
    assert seen > 5
    await eventually(lambda: world.texts(PERSON) == world.texts(OTHER) == ["The answer."])
    await world.sent()
    assert await world.process.stop() == 0
    assert world.texts(PERSON) == world.texts(OTHER) == ["The answer."]
