"""The journal in memory, bare and inside one that could fail."""

from __future__ import annotations

import pytest

from bot.contracts.journal import Journal
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal
from bot.testing.memory_journal import MemoryJournal
from tests.contracts.journal_contract import JournalContract


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def journal(self, clock: FakeClock) -> Journal:
        return MemoryJournal(clock)

    async def restart(self, journal: Journal) -> Journal:
        await journal.close()
        return journal


class TestFaultyJournalWithoutFaults(TestMemoryJournal):
    @pytest.fixture
    def journal(self, clock: FakeClock) -> Journal:
        return FaultyJournal(MemoryJournal(clock))
