"""Fixtures: the Messages API with a clock that stands still, and a bare HTTP client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from bot.testing.anthropic import AnthropicServer
from bot.testing.clock import FakeClock
from tests.unit.testing.messages import Caller


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(clock=clock) as running:
        yield running


@pytest.fixture
async def caller(server: AnthropicServer) -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession() as session:
        yield Caller(server, session)
