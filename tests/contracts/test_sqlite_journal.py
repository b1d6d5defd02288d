from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.contracts.journal import Journal
from bot.journal import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_contract import JournalContract


class TestSqliteJournal(JournalContract):
    path: Path
    fake: FakeClock
    opened: list[Journal]

    @pytest.fixture
    def clock(self) -> FakeClock:
        self.fake = FakeClock()
        return self.fake

    @pytest.fixture
    async def journal(self, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Journal]:
        self.path = tmp_path / "journal.db"
        first = SqliteJournal(self.path, clock=clock, log=MemoryLog())
        self.opened = [first]
        yield first
        for journal in self.opened:
            await journal.close()

    async def restart(self, journal: Journal) -> Journal:
        await journal.close()
        again = SqliteJournal(self.path, clock=self.fake, log=MemoryLog())
        self.opened.append(again)
        return again
