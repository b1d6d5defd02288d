"""Fixtures of the channel's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.telegram.bed import Bed


@pytest.fixture
async def idle(tmp_path: Path) -> AsyncIterator[Bed]:
    """Everything but the start of the channel."""
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
