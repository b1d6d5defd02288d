from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.llm.client import AnthropicModel
from bot.system import SystemClock
from bot.testing.anthropic import KEY, AnthropicServer


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running


def _asking(server: AnthropicServer, idle: float) -> AnthropicModel:
    return AnthropicModel(api_key=KEY, base_url=server.url, clock=SystemClock(), connect=10.0, idle=idle)


@pytest.fixture
async def model(server: AnthropicServer) -> AsyncIterator[AnthropicModel]:
    client = _asking(server, 10.0)
    yield client
    await client.close()


@pytest.fixture
async def hasty(server: AnthropicServer) -> AsyncIterator[AnthropicModel]:
    """A client with a very short timeout for a silent provider."""
    client = _asking(server, 2.0)
    yield client
    await client.close()
