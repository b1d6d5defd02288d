"""Jobs on both journals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.contracts.journal import Journal
from bot.journal.sqlite import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from tests.unit.gateway.jobs.rig import Rig


@pytest.fixture(params=["memory", "sqlite"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    clock = FakeClock()
    journal: Journal = (
        MemoryJournal(clock)
        if request.param == "memory"
        else SqliteJournal(tmp_path / "journal.db", clock=clock, log=MemoryLog())
    )
    yield Rig(journal, clock)
    await journal.close()
