"""What a gateway under torture has its journal and files in: its own folder, or PostgreSQL, where each death may take the folder
as well.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bot.journal.postgres import LOCKED, PostgresJournal
from bot.journal.shared_disk import Copies, SharedDisk

from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk
from bot.contracts.journal import Journal
from bot.journal import shared_disk
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from tests import postgres

EMBEDDED, POSTGRESQL, LOST_DISK = "embedded", "postgresql", "postgresql, and no disk lasts"
ENGINES = (EMBEDDED, POSTGRESQL, LOST_DISK)


def on(engine: str, *values: Any, torture: bool = False) -> Any:
    """Values of a test's parameters, the engine last. It is skipped where that is not installed."""
    absent = engine != EMBEDDED and postgres.programs() is None
    marks = [pytest.mark.skipif(absent, reason=postgres.MISSING), *[pytest.mark.torture] * torture]
    return pytest.param(*values, engine, marks=marks)


class Engine:
    """The embedded journal."""

    def __init__(self) -> None:
        self.settings: Json = {}
        """What ship.json has of it."""

    def depose(self) -> None:
        """Let nothing more of a process that counts as dead reach it."""

    async def bury(self, journal: Journal) -> None:
        """Let go of what a dead process in this one has open."""

    def between(self, root: Path) -> None:
        """After a death, and before the next start."""

    def elsewhere(self, root: Path) -> bool:
        """Put the files in place of those in `.ship` that another host would have; False where there is none."""
        return False


class PostgresEngine(Engine):
    """One server, on which nobody else has the journal. The next life has an empty `.ship`, unless the disk `lasts`."""

    def __init__(self, url: str, *, lasts: bool) -> None:
        super().__init__()
        self._url = url
        self._lasts = lasts
        self.settings = {"engine": {"kind": "postgresql", "databaseUrl": url}}

    def depose(self) -> None:
        """As the next leader does, who gives its lease back at once."""
        with (
            contextlib.suppress(psycopg.errors.UndefinedTable),  # it did not come so far
            psycopg.connect(self._url, autocommit=True) as db,
        ):
            db.execute("UPDATE cluster_leader SET epoch = epoch + 1, holder = ''")
            db.execute(f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {LOCKED}".encode())

    async def bury(self, journal: Journal) -> None:
        await journal.close()

    def between(self, root: Path) -> None:
        self.depose()
        if not self._lasts:
            shutil.rmtree(root / ".ship", ignore_errors=True)

    def elsewhere(self, root: Path) -> bool:
        home = root / ".ship"
        shutil.rmtree(home)
        home.mkdir()
        shared_disk.refresh(home, SystemDisk(), self._url, MemoryLog())
        return True


def engine_of(name: str, part: str = "") -> Engine:
    """A new one; `part` is a name for its own where several are used at once."""
    if name == EMBEDDED:
        return Engine()
    server = postgres.shared()
    return PostgresEngine(server.schema(part) if part else server.log(), lasts=name == POSTGRESQL)


class Memory:
    """A journal in memory, and files that last: what outlives a process of `lives`."""

    def __init__(self, clock: Clock) -> None:
        self.journal: Journal = MemoryJournal(clock)
        self.disk: Disk = SystemDisk()

    async def restart(self) -> None:
        """A new process."""

    def kill(self) -> None:
        """Nothing more of a process that counts as dead reaches it."""

    async def aclose(self) -> None: ...


class Database(Memory):
    """The same of one whose every host goes with its disk, so that PostgreSQL alone lasts."""

    def __init__(self, clock: Clock, home: Path) -> None:
        super().__init__(clock)
        self._clock = clock
        self._home = home
        self._url = postgres.shared().log()
        self._inner = FaultyDisk(SystemDisk())

    async def restart(self) -> None:
        await self.aclose()
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(parents=True)
        self._inner, log = FaultyDisk(SystemDisk()), MemoryLog()
        self.journal = PostgresJournal(self._url, clock=self._clock, log=log)
        self.disk = disk = SharedDisk(self._inner, self._home, self._url, log=log)
        disk.begin(Copies(self._home, SystemDisk(), log))

    def kill(self) -> None:
        self._inner.fail(Failure("*", times=None))

    async def aclose(self) -> None:
        self.kill()
        if isinstance(self.disk, SharedDisk):
            self.disk.close()
        await self.journal.close()
