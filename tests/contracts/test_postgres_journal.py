"""The journal in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.contracts.journal import Journal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests import postgres
from tests.contracts.journal_contract import JournalContract

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)


class TestPostgresJournal(JournalContract):
    nul = "\ufffd"
    url: str
    fake: FakeClock
    opened: list[Journal]

    @pytest.fixture
    def clock(self) -> FakeClock:
        self.fake = FakeClock()
        return self.fake

    @pytest.fixture
    def database(self) -> str:
        self.url = postgres.shared().journal()
        return self.url

    @pytest.fixture
    async def journal(self, database: str, clock: FakeClock) -> AsyncIterator[Journal]:
        self.opened = [self._open()]
        yield self.opened[0]
        for journal in self.opened:
            await journal.close()

    async def restart(self, journal: Journal) -> Journal:
        await journal.close()
        self.opened.append(self._open())
        return self.opened[-1]

    def _open(self) -> Journal:
        from bot.journal.postgres import PostgresJournal

        return PostgresJournal(self.url, clock=self.fake, log=MemoryLog())
