"""A browser saves a file that its chat was sent."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from bot.contracts.channel import Channel
from bot.contracts.outbound import OutgoingFile
from bot.http_server import Connections
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.testing.log import MemoryLog
from channels.web import routes
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import reply, surroundings
from tests.contracts.web_rig import Browser

BYTES = bytes(range(256)) * 80_000


@pytest.fixture
def connections(clock: FakeClock) -> Connections:
    return Connections(8, clock=clock, log=MemoryLog())


@pytest.fixture
async def channel(
    tmp_path: Path, clock: FakeClock, intake: RecordingIntake, connections: Connections
) -> AsyncIterator[Channel]:
    """A channel whose server goes by `clock`."""
    around = replace(surroundings(tmp_path, clock), serve=connections.server)
    channel = MANIFEST.build(WebSettings(port=0), around)
    await channel.start(intake)
    yield channel
    await channel.stop()


@pytest.fixture
async def place(channel: Channel, browser: Browser, intake: RecordingIntake) -> str:
    """The address of a file of 20 MB."""
    await browser.say("a table, please", "m1")
    message = replace(reply(intake.accepted[0], ""), file=OutgoingFile("table.csv", "text/csv", BYTES))
    sent = await channel.send(message)
    return f"{browser.url}/api/files/{sent.message_id}"


async def test_little_of_it_is_in_memory(browser: Browser, place: str) -> None:
    tracemalloc.start()
    try:
        async with asyncio.timeout(90), browser.http.get(place) as answer:
            assert await answer.content.read(1_000) == BYTES[:1_000]
            held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(held, most) < len(BYTES) / 4


async def test_who_takes_nothing_is_given_up(
    browser: Browser, place: str, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STALLED_SECONDS", 0.05)
    async with asyncio.timeout(90):
        answer = await browser.http.get(place)
        while any(one.connections for one in connections.servers):  # noqa: ASYNC110 - until the server has closed it
            await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_head_has_the_size_alone(browser: Browser, place: str) -> None:
    async with browser.http.head(place) as answer:
        assert (answer.content_length, await answer.read()) == (len(BYTES), b"")
