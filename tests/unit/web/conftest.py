from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.contracts.channel import Channel
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import surroundings
from tests.contracts.web_rig import Browser

TOKEN = "correct horse battery staple"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def intake() -> RecordingIntake:
    return RecordingIntake()


@pytest.fixture
async def channel(tmp_path: Path, clock: FakeClock, intake: RecordingIntake) -> AsyncIterator[Channel]:
    channel = MANIFEST.build(WebSettings(port=0), surroundings(tmp_path, clock))
    await channel.start(intake)
    yield channel
    await channel.stop()


@pytest.fixture
async def browser(channel: Channel) -> AsyncIterator[Browser]:
    async with Browser(channel) as browser:
        yield browser


@pytest.fixture
async def locked(tmp_path: Path, clock: FakeClock, intake: RecordingIntake) -> AsyncIterator[Channel]:
    """A channel that requires a token."""
    channel = MANIFEST.build(WebSettings(port=0, token=TOKEN), surroundings(tmp_path, clock))
    await channel.start(intake)
    yield channel
    await channel.stop()


@pytest.fixture
async def stranger(locked: Channel) -> AsyncIterator[Browser]:
    """A browser without the token."""
    async with Browser(locked) as browser:
        yield browser
