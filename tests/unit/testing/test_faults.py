"""Failpoints, and a clock that tests can advance."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.system import SystemDisk
from bot.testing import run
from bot.testing.clock import FakeClock, SteeredClock
from bot.testing.faults import Fault, Faults


class Platform:
    """A minimal channel."""

    name = "slack"

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, words: str) -> str:
        self.sent.append(words)
        return words


async def test_the_second_send_fails_before_or_after_it_was_made() -> None:
    for when, made in (("before", ["一"]), ("after", ["一", "二"])):
        faults, platform = Faults(), Platform()
        channel = faults.channel(platform)
        faults.arm(Fault("channel", "send", 2, when, "error"))  # type: ignore[arg-type]
        assert channel.name == "slack"
        assert await channel.send("一") == "一"
        with pytest.raises(errors.DeliveryUncertain):
            await channel.send("二")
        assert platform.sent == made
        assert await channel.send("三") == "三"


async def test_a_fault_that_lasts_ends_when_it_is_mended(tmp_path: Path) -> None:
    faults = Faults([Fault("disk", "write", then="error", error="EDQUOT", times=None)])
    disk = faults.disk(SystemDisk())
    for _ in range(3):
        with pytest.raises(OSError, match="quota"):
            disk.append(tmp_path / "file", b"x")
    faults.mend()
    disk.append(tmp_path / "file", b"x")
    assert disk.read(tmp_path / "file") == b"x"


async def test_an_end_comes_at_its_place_and_every_operation_is_seen(tmp_path: Path) -> None:
    ends: list[int] = []
    seen: list[Any] = []
    faults = Faults(
        [Fault("disk", "write", 2, "after")], die=lambda: ends.append(1), seen=lambda *what: seen.append(what)
    )
    disk = faults.disk(SystemDisk())
    disk.append(tmp_path / "file", b"one")
    with pytest.raises(OSError, match="file"):
        disk.append(tmp_path / "file", b"two")
    assert ends == [1]
    assert disk.read(tmp_path / "file") == b"onetwo"
    assert seen == [("disk", "append", "file")] * 2 + [("disk", "read", "file")]


async def test_a_steered_clock_jumps_without_waking_and_passes_with_waking() -> None:
    inner = FakeClock()
    clock = SteeredClock(inner)
    now, monotonic = clock.now(), clock.monotonic()
    sleeping = asyncio.create_task(clock.sleep(3_600))
    await asyncio.sleep(0)
    clock.jump(-86_400)
    assert clock.now() == now - 86_400
    assert clock.monotonic() == monotonic
    await asyncio.sleep(0)
    assert not sleeping.done()
    clock.advance(3_599)
    await asyncio.sleep(0)
    assert not sleeping.done()
    clock.advance(1)
    await sleeping
    assert clock.monotonic() == monotonic + 3_600
    other = asyncio.create_task(clock.sleep(5))
    while not inner.sleeping:  # noqa: ASYNC110 - a turn of the loop is what is waited for
        await asyncio.sleep(0)
    await inner.advance(5)
    await other


async def test_a_running_gateways_clock_is_moved_over_a_socket(tmp_path: Path) -> None:
    clock = SteeredClock(FakeClock(now=1_000))
    server = await asyncio.start_unix_server(lambda *ends: run.steer(clock, *ends), tmp_path / "clock")
    async with server:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "clock")
        writer.write(b'{"jump": 10}\n{"pass": 5}\n')
        assert json.loads(await reader.readline()) == {"now": 1_010}
        assert json.loads(await reader.readline()) == {"now": 1_015}
        writer.close()
        await writer.wait_closed()
    assert clock.monotonic() == 5
