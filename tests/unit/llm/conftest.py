from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.llm.client import AnthropicModel, Timeouts
from bot.system import SystemClock
from bot.testing.anthropic import KEY, AnthropicServer


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running


@pytest.fixture
async def model(server: AnthropicServer) -> AsyncIterator[AnthropicModel]:
    client = AnthropicModel(
        api_key=KEY, base_url=server.url, clock=SystemClock(), timeouts=Timeouts(connect=2.0, idle=0.3)
    )
    yield client
    await client.close()
