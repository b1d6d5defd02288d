"""Fixtures of the channel's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.testing.clock import FakeClock
from bot.testing.telegram import TelegramServer
from tests.unit.telegram.bed import Bed


@pytest.fixture
async def idle(tmp_path: Path) -> AsyncIterator[Bed]:
    """A bed whose channel is not started."""
    made = Bed(tmp_path)
    async with made.server:
        made.channel = made.build()
        yield made
        await made.channel.stop()


@pytest.fixture
async def bed(idle: Bed) -> Bed:
    await idle.channel.start(idle.intake)
    await idle.polling()
    return idle


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[TelegramServer]:
    async with TelegramServer(clock=clock) as running:
        yield running
