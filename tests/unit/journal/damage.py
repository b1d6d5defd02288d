"""What a killed process leaves behind, cut and changed in every way, and opened again."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from bot import errors
from bot.contracts.inbound import Inbound
from bot.journal import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import inbound, still_open

CHECKPOINTED = [inbound(number, text=f"{number} 已收到 ✅ התקבל") for number in (1, 2)]


@dataclass(frozen=True)
class Left:
    """The files of a killed process; `acknowledged` holds the size of the log after each inbound that is in it."""

    base: bytes
    log: bytes
    acknowledged: list[tuple[int, Inbound]]

    def due(self, size: int) -> list[Inbound]:
        """What has to be there where the log was cut to `size`."""
        return [*CHECKPOINTED, *(one for at, one in self.acknowledged if at <= size)]


@dataclass(frozen=True)
class Found:
    unfinished: list[Inbound]
    told: list[str]
    quarantined: list[str]


def killed(folder: Path, received: int = 4) -> Left:
    """Two inbound in the file itself, `received` in the log alone."""
    path = folder / "journal.db"
    log = path.with_name("journal.db-wal")

    async def live() -> Left:
        first = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
        for one in CHECKPOINTED:
            await first.receive(one)
        await first.close()
        journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
        acknowledged = []
        for number in range(3, 3 + received):
            one = inbound(number)
            await journal.receive(one)
            acknowledged.append((log.stat().st_size, one))
        left = Left(path.read_bytes(), log.read_bytes(), acknowledged)
        await journal.close()
        return left

    return asyncio.run(live())


def boot(folder: Path, base: bytes, log: bytes) -> Found:
    """Open what is left and take in one more. Only `StorageError` may come of it: at the first reading, or always
    where the file says that a newer Shipmate has written it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    path = folder / "journal.db"
    path.write_bytes(base)
    path.with_name("journal.db-wal").write_bytes(log)
    said = MemoryLog()

    async def live() -> list[Inbound]:
        journal = SqliteJournal(path, clock=FakeClock(), log=said)
        try:
            try:
                await journal.open()
            except errors.StorageError as error:
                if "written by a newer one" not in str(error):
                    raise
                return []
            try:
                there = await still_open(journal)
            except errors.StorageError:
                there = []
            assert await journal.receive(inbound(99, keys=("new",)))
            assert inbound(99, keys=("new",)) in await still_open(journal)
            return there
        finally:
            await journal.close()

    there = asyncio.run(live())
    return Found(
        there, [line.message for line in said.at("error")], [one.name for one in folder.glob("*.corrupt-*")]
    )
