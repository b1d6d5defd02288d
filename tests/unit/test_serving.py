"""The start and the end of a gateway, without channels."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bot import app, config, discovery
from bot.contracts import Inbound, TurnRequest
from bot.instance import prepare_home
from bot.serving import Gateway, Outside, serving
from bot.system import SystemDisk
from bot.telemetry import JsonlLog
from bot.testing.disk import Failure, FaultyDisk

LATE = "7ZZZZZZZZZ0000000000000000"  # of the year 10889


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(SystemDisk())


@pytest.fixture
def gateway(tmp_path: Path, disk: FaultyDisk) -> Gateway:
    (tmp_path / "ship.json").write_text(json.dumps({"llm": {"provider": "demo"}}))
    settings = config.load(tmp_path, discovery.manifests(), {})
    prepare_home(settings.home)
    outside = Outside(disk=disk)
    log = JsonlLog(settings.home / "logs", clock=outside.clock, disk=SystemDisk(), ids=outside.ids)
    return app.assemble(settings, outside, log, [], dashboard=False)


async def test_request_ids_go_on_after_those_of_the_last_process_though_the_clock_was_set_back(
    gateway: Gateway,
) -> None:
    await gateway.journal.receive(
        Inbound(
            channel="web", chat_id="1", chat_key="web:chat:1", chat_type="direct", user_id="1", keys=("k",), ts=1,
            target={}, request_id=LATE,
        )
    )  # fmt: skip
    async with serving(gateway, lambda _: None, asyncio.Event()):
        assert gateway.outside.ids.ulid() > LATE
    gateway.log.close()


async def test_what_a_full_disk_refused_is_written_at_the_end_where_it_works_again(
    gateway: Gateway, disk: FaultyDisk
) -> None:
    async with serving(gateway, lambda _: None, asyncio.Event()):
        disk.fail(Failure(times=None))
        outcome = await gateway.agent.run(
            TurnRequest("01J0000000000000000000000A", "test:chat:1", prompt="hello")
        )
        assert outcome.status == "done"
        assert await gateway.transcript.load("test:chat:1") == []
        disk.mend()
    lines = await gateway.transcript.load("test:chat:1")
    assert [lines[0].type, lines[-1].type] == ["turn_start", "turn_end"]
    await gateway.transcript.close()
    gateway.log.close()
