"""Tests of the start and the end of a gateway."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot import app, config, discovery, errors
from bot import lifecycle as serving_module
from bot.composition import Gateway
from bot.contracts.channel import Channel, Health, Intake
from bot.core import operators as chores
from bot.core.services import Environment
from bot.dashboard.metrics import Metrics
from bot.instance import prepare_home
from bot.lifecycle import serving
from bot.llm.costs import PriceTable, Spending
from bot.llm.wrapper import ModelTrouble
from bot.system import SystemDisk
from bot.telemetry.log import JsonlLog
from bot.testing.disk import FaultyDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(SystemDisk())


@pytest.fixture
def gateway(tmp_path: Path, disk: FaultyDisk) -> Gateway:
    (tmp_path / "ship.json").write_text(json.dumps({"llm": {"provider": "demo"}}))
    settings = config.load(tmp_path, discovery.manifests(), {})
    prepare_home(settings.home)
    environment = Environment(disk=disk)
    log = JsonlLog(settings.home / "logs", clock=environment.clock, disk=SystemDisk(), ids=environment.ids)
    return Gateway(settings, environment, log, [], counted=None, spending=Spending(PriceTable()))


class Hanging:
    """A channel whose health a test sets. `stop` does nothing."""

    def __init__(self, inner: Channel) -> None:
        self.inner = inner
        self.state: Health | None = None
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def health(self) -> Health:
        return self.state or self.inner.health()

    async def pause(self) -> None:
        await self._end(self.inner.pause)

    async def stop(self) -> None:
        await self._end(self.inner.stop)

    async def _end(self, work: Callable[[], Any]) -> None:
        await work()
        while self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue  # a cancellation is ignored too


@pytest.fixture
def house(tmp_path: Path) -> Gateway:
    """Return a gateway with the web channel, which is wrapped."""
    (tmp_path / "ship.json").write_text(
        json.dumps({"llm": {"provider": "demo"}, "channels": {"web": {"port": 0}}, "dashboard": {"port": 0}})
    )
    settings = config.load(tmp_path, discovery.manifests(), {})
    prepare_home(settings.home)
    wrap: Any = Hanging
    environment = Environment(wrap_channel=wrap)
    log = JsonlLog(settings.home / "logs", clock=environment.clock, disk=SystemDisk(), ids=environment.ids)
    return Gateway(settings, environment, log, ["web"], counted=Metrics(), spending=Spending(PriceTable()))


def logged(gateway: Gateway) -> list[str]:
    gateway.services.log.close()
    files = (gateway.services.settings.home / "logs").glob("*.jsonl")
    return [json.loads(line)["message"] for file in files for line in file.read_text().splitlines()]


async def test_each_part_says_how_it_is(house: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(house, lambda _: None, asyncio.Event()):
        parts = house.parts()
        assert set(parts) == {"journal", "disk", "model", "memory", "web"}
        assert all(part.ok for part in parts.values())
        await house.memory.look()
        assert "of 1024 MB" in house.parts()["memory"].detail
        house.model.trouble = ModelTrouble("no route to host", of_account=False)
        house.memory.used = house.memory.limit + 1
        monkeypatch.setattr(house.watch, "silent", lambda _: 95.0)
        parts = house.parts()
        assert {name for name, part in parts.items() if not part.ok} == {"model", "memory", "web"}
        assert parts["model"].detail == "no route to host"
        assert parts["web"].detail == "silent for 95 s"
    logged(house)


async def test_a_channel_that_hangs_at_the_end_holds_nothing_up(
    house: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PAUSE_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(serving_module, name, 0.05)
    channel: Any = house.channels["web"]
    began = time.monotonic()
    async with serving(house, lambda _: None, asyncio.Event()):
        channel.hangs = True
    assert time.monotonic() - began < 60
    channel.hangs = False
    assert {"pause web: not done after 0.05 s", "stop web: not done after 0.05 s"} <= set(logged(house))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_an_end_that_is_cancelled_closes_everything_all_the_same(
    house: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, ending, go_on, stopped = house.channels["web"], asyncio.Event(), asyncio.Event(), asyncio.Event()
    pause, stop = channel.pause, channel.stop

    async def slow_pause() -> None:
        ending.set()
        await go_on.wait()
        await pause()

    async def noted_stop() -> None:
        await stop()
        stopped.set()

    monkeypatch.setattr(serving_module, "PAUSE_SECONDS", 90.0)
    monkeypatch.setattr(channel, "pause", slow_pause)
    monkeypatch.setattr(channel, "stop", noted_stop)

    async def live() -> None:
        async with serving(house, lambda _: None, asyncio.Event()):
            pass

    life = asyncio.create_task(live())
    async with asyncio.timeout(90):
        await ending.wait()
        life.cancel()
        go_on.set()
        await asyncio.wait([life])
    assert life.cancelled()
    assert stopped.is_set()
    house.services.log.close()


async def test_what_runs_is_looked_after_while_a_channel_cannot_be_reached(
    house: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, stop = asyncio.Event(), asyncio.Event()

    def read() -> int:
        looked.set()
        return 1

    async def unreachable(_: Intake) -> None:
        raise errors.ChannelUnreachable("no network")

    monkeypatch.setattr(chores, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(house.memory, "read", read)
    monkeypatch.setattr(house.channels["web"], "start", unreachable, raising=False)

    async def begun() -> None:
        async with serving(house, lambda _: None, stop):
            pass

    life = asyncio.create_task(begun())
    try:
        async with asyncio.timeout(90):
            await looked.wait()
        assert not life.done()
    finally:
        stop.set()
        await life
        house.services.log.close()


def test_all_that_an_end_may_take_is_less_than_ten_seconds() -> None:
    cut_short = 1.0  # the wait for cancelled turns
    module = serving_module
    bounds = (
        module.PAUSE_SECONDS,
        module.DRAIN_SECONDS,
        cut_short,
        module.CLOSE_SECONDS,
    )
    assert sum(bounds) + module.LOG_SECONDS < app.LAST_RESORT < 10


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        (
            "check",
            errors.ModelUnreachable("The provider cannot be reached: Connection refused."),
            "model: The provider cannot be reached: Connection refused. I go on and ask it again with each message.",
        ),
        (
            "facts",
            errors.ModelUnknown("404"),
            "warning: llm.model: found demo; the provider does not have it (404); name one that it has",
        ),
    ],
)
async def test_a_model_that_is_not_there_is_not_said_to_answer(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, asked: str, error: errors.ModelError, told: str
) -> None:
    async def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(gateway.model, asked, refuse)
    said: list[str] = []
    async with serving(gateway, said.append, asyncio.Event()):
        pass
    assert said == [told]
    gateway.services.log.close()
