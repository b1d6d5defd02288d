"""The start and the end of a gateway, without channels."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import access_list, composition, config, discovery, errors, shutdown_signals
from bot import lifecycle as serving_module
from bot import maintenance as chores
from bot.contracts.agent import TurnRequest
from bot.contracts.channel import Channel, Health, Intake
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.model import ModelFacts, Usage
from bot.instance import prepare_home
from bot.lifecycle import Environment, Gateway, serving
from bot.llm.budgets import Account, Spending, day_of
from bot.llm.prices import PriceTable
from bot.llm.wrapper import ModelTrouble, WatchedModel
from bot.system import SystemDisk
from bot.telemetry import JsonlLog
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog

LATE = "7ZZZZZZZZZ0000000000000000"  # of the year 10889


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
    return composition.assemble(settings, environment, log, [], dashboard=False)


async def test_request_ids_go_on_after_those_of_the_last_process_though_the_clock_was_set_back(
    gateway: Gateway,
) -> None:
    await gateway.services.journal.receive(
        Inbound(
            channel="web",
            chat_id="1",
            chat_key="web:chat:1",
            chat_type="direct",
            user_id="1",
            keys=("k",),
            ts=1,
            target={},
            request_id=LATE,
        )
    )
    async with serving(gateway, lambda _: None, asyncio.Event()):
        assert gateway.services.environment.ids.ulid() > LATE
    gateway.services.log.close()


async def test_what_a_full_disk_refused_is_written_at_the_end_where_it_works_again(
    gateway: Gateway, disk: FaultyDisk
) -> None:
    async with serving(gateway, lambda _: None, asyncio.Event()):
        disk.fail(Failure(times=None))
        outcome = await gateway.agent.run(
            TurnRequest("01J0000000000000000000000A", ChatKey.parse("test:chat:1"), prompt="hello")
        )
        assert outcome.status == "done"
        assert await gateway.services.transcript.load(ChatKey.parse("test:chat:1")) == []
        disk.mend()
    lines = await gateway.services.transcript.load(ChatKey.parse("test:chat:1"))
    assert [lines[0].type, lines[-1].type] == ["turn_start", "turn_end"]
    await gateway.services.transcript.close()
    gateway.services.log.close()


class Hanging:
    """A channel that does nothing at its end, and of which a test says how it is."""

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
                continue  # not even that is heard


@pytest.fixture
def house(tmp_path: Path) -> Gateway:
    """A gateway with the web chat, wrapped."""
    (tmp_path / "ship.json").write_text(
        json.dumps({"llm": {"provider": "demo"}, "channels": {"web": {"port": 0}}, "dashboard": {"port": 0}})
    )
    settings = config.load(tmp_path, discovery.manifests(), {})
    prepare_home(settings.home)
    wrap: Any = Hanging
    environment = Environment(channel=wrap)
    log = JsonlLog(settings.home / "logs", clock=environment.clock, disk=SystemDisk(), ids=environment.ids)
    return composition.assemble(settings, environment, log, ["web"])


def logged(gateway: Gateway) -> list[str]:
    gateway.services.log.close()
    files = (gateway.services.settings.home / "logs").glob("*.jsonl")
    return [json.loads(line)["message"] for file in files for line in file.read_text().splitlines()]


async def test_each_part_says_how_it_is(house: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(house, lambda _: None, asyncio.Event()):
        parts = house.readiness.parts()
        assert set(parts) == {"journal", "disk", "model", "memory", "web"}
        assert all(part.ok for part in parts.values())
        await house.memory.look()
        assert "of 1024 MB" in house.readiness.parts()["memory"].detail
        monkeypatch.setattr(WatchedModel, "trouble", ModelTrouble("no route to host", of_account=False))
        house.memory.full = True
        parts = replace(house.readiness, silent=lambda _: 95.0).parts()
        assert {name for name, part in parts.items() if not part.ok} == {"model", "memory", "web"}
        assert parts["model"].detail == "no route to host"
        assert parts["web"].detail == "silent for 95 s"
    logged(house)


async def test_an_access_list_that_cannot_be_read_is_told_once_and_hinders_nothing(
    house: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_list, "LOOK_EVERY", 0.0)
    said: list[str] = []
    lines = serving_module.PartLines(house.readiness, said.append)
    lists = house.services.settings.home / access_list.FILE
    lists.write_text('{"v": 1, "chan', encoding="utf-8")
    for _ in range(2):
        await lines.look()
    part = house.readiness.parts()["access"]
    assert (part.ok, part.needed) == (False, False)
    lists.write_text('{"v": 1}', encoding="utf-8")
    await lines.look()
    broken, mended = said
    assert broken.startswith("access: .ship/access.json: found ")
    assert mended == "access: works again"
    house.services.log.close()


async def test_a_model_that_nobody_asked_yet_is_no_trouble(house: Gateway) -> None:
    part = house.readiness.parts()["model"]
    assert (part.ok, part.detail, part.heard) == (True, "not asked yet", None)
    house.services.log.close()


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
    monkeypatch.setattr(house.memory, "_read", read)
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
    cut_short = 1.0  # what lanes wait for turns that are cancelled
    module = serving_module
    bounds = (
        module.PAUSE_SECONDS,
        module.DRAIN_SECONDS,
        cut_short,
        module.FLUSH_SECONDS,
        module.CLOSE_SECONDS,
    )
    assert sum(bounds) + module.JOURNAL_SECONDS < shutdown_signals.LAST_RESORT < 10


async def test_what_was_learnt_of_the_model_is_kept_over_a_restart_and_a_larger_answer_than_it_gives_is_told(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts(model: str) -> ModelFacts:
        assert model in {"demo", "claude-haiku-5-5"}
        return ModelFacts(32_000, 4_000)

    monkeypatch.setattr(gateway.services.model, "facts", facts)
    said: list[str] = []
    async with serving(gateway, said.append, asyncio.Event()):
        assert gateway.services.windows.max_tokens("demo") == 4_000
    assert any("llm.maxTokens: found 8192; demo gives at most 4000" in line for line in said)
    again = composition.assemble(
        gateway.services.settings, gateway.services.environment, gateway.services.log, [], dashboard=False
    )
    assert (again.services.windows.window("demo"), again.services.windows.max_tokens("demo")) == (
        32_000,
        4_000,
    )
    gateway.services.log.close()


async def test_a_provider_that_does_not_say_what_its_model_takes_in_is_no_trouble(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts(model: str) -> ModelFacts:
        raise errors.RequestInvalid(f"no such page: {model}")

    monkeypatch.setattr(gateway.services.model, "facts", facts)
    said: list[str] = []
    async with serving(gateway, said.append, asyncio.Event()):
        assert gateway.services.windows.window("demo") is None
    assert [line.split(" (")[0] for line in said] == ["the built-in demo model is answering"]
    gateway.services.log.close()


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

    monkeypatch.setattr(gateway.services.model, asked, refuse)
    said: list[str] = []
    async with serving(gateway, said.append, asyncio.Event()):
        pass
    assert said == [told]
    gateway.services.log.close()


async def test_a_check_of_the_model_that_failed_by_chance_is_not_said_to_be_mended(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def limited() -> None:
        raise errors.RateLimited

    monkeypatch.setattr(gateway.services.model, "check", limited)
    monkeypatch.setattr(serving_module, "PART_SECONDS", 0.01)
    said: list[str] = []
    looked, look = asyncio.Semaphore(0), serving_module.PartLines.look

    async def counted(lines: serving_module.PartLines) -> None:
        await look(lines)
        looked.release()

    monkeypatch.setattr(serving_module.PartLines, "look", counted)
    async with serving(gateway, said.append, asyncio.Event()), asyncio.timeout(90):
        for _ in range(3):
            await looked.acquire()
    (told,) = said
    assert told.startswith("model: ")
    assert told.endswith("I go on and ask it again with each message.")
    gateway.services.log.close()


async def test_a_part_that_fails_and_one_that_works_again_are_one_line_each(
    house: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    lines = serving_module.PartLines(house.readiness, said.append)
    await lines.look()
    house.services.reserve.trouble = "the disk is full: 12 kB are free"
    monkeypatch.setattr(house.mcp, "troubles", lambda: {"files": "there is no program 'fils'"})
    for _ in range(2):
        await lines.look()
    house.services.reserve.trouble = ""
    for _ in range(2):
        await lines.look()
    assert said == [
        "disk: the disk is full: 12 kB are free",
        "mcp files: there is no program 'fils'",
        "disk: works again",
    ]
    house.services.log.close()


def test_what_today_has_cost_is_known_at_the_start_where_there_are_budgets(tmp_path: Path) -> None:
    def started(disk: FaultyDisk, budgets: dict[str, float]) -> tuple[Spending, list[str]]:
        (tmp_path / "ship.json").write_text(json.dumps({"llm": {"provider": "demo"}, "budgets": budgets}))
        settings = config.load(tmp_path, discovery.manifests(), {})
        log, spending = MemoryLog(), Spending(PriceTable())
        environment = Environment(clock=FakeClock(), disk=disk)
        composition.load_spending(spending, settings, environment, log)
        return spending, [entry.message for entry in log.at("error")]

    day = day_of(FakeClock().now())
    logs = tmp_path / ".ship" / "logs"
    logs.mkdir(parents=True)
    usage = {"inputTokens": 1, "outputTokens": 1, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    details = {"usage": usage, "costUsd": 0.5, "person": "telegram:7", "model": "m", "purpose": "turn"}
    line = {"kind": "llm_response", "chatKey": "telegram:chat:1:topic:2", "details": details}
    for at in (day, "2020-01-01"):
        said = json.dumps(line | {"timestamp": f"{at}T00:00:00.000Z"})
        free = line | {
            "details": details
            | {"costUsd": None, "model": "demo-2", "usage": usage | {"inputTokens": 50_000}}
        }
        unknown = json.dumps(free | {"timestamp": f"{at}T00:00:00.000Z", "chatKey": "telegram:chat:2"})
        (logs / f"{at}.jsonl").write_text(f"{said}\n{said}\n{unknown}\n")
    found, wrong = started(FaultyDisk(SystemDisk()), {"perChatUsdPerDay": 3})
    assert found.usd(Account(day, "chat", "telegram:chat:1")) == 1.0
    dearest = PriceTable().at_most("demo-2", Usage(50_000, 1))
    assert dearest > 0.5
    assert found.usd(Account(day, "chat", "telegram:chat:2")) == dearest, "its price is not known"
    assert found.usd(Account(day, "person", "telegram:7")) == 1.0 + dearest
    assert wrong == []
    assert not started(FaultyDisk(SystemDisk()), {})[0].above({"chat": 0.1})
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("size", times=None))
    found, wrong = started(disk, {"perUserUsdPerDay": 3})
    assert found.usd(Account(day, "person", "telegram:7")) == 0
    assert wrong == ["the cost of today is not known: budgets begin anew"]
