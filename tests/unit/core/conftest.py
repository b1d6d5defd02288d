from __future__ import annotations

import pytest

from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()
