"""Fills a journal up to the largest size that a file may have, reads, gets room, and goes on: PATH."""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
from pathlib import Path

from bot import errors
from bot.contracts.inbound import Inbound
from bot.journal import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import inbound, still_open

LIMIT = 600_000


async def main(path: Path) -> None:
    log = MemoryLog()
    journal = SqliteJournal(path, clock=FakeClock(), log=log)
    await journal.open()
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, most))
    taken: list[Inbound] = []
    for number in itertools.count():
        one = inbound(number, text="满 🈵 " * 500)
        try:
            assert await journal.receive(one)
        except errors.StorageError:
            break
        taken.append(one)
    assert len(taken) > 10
    sys.stdout.write("filled\n")
    assert await still_open(journal) == taken
    assert journal.health()
    sys.stdout.write("read\n")
    for number in range(3):
        try:
            await journal.receive(inbound(10_000 + number, text="x" * LIMIT))
        except errors.StorageError:
            continue
        raise AssertionError
    sys.stdout.write("refused\n")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert await journal.probe() == ""
    again = [inbound(20_000 + number) for number in range(50)]
    assert all([await journal.receive(one) for one in again])
    assert journal.health() == ""
    sys.stdout.write("recovered\n")
    await journal.close()
    journal = SqliteJournal(path, clock=FakeClock(), log=log)
    assert await still_open(journal) == [*taken, *again]
    await journal.close()
    assert not list(path.parent.glob("*.corrupt-*"))
    sys.stdout.write("whole\n")


asyncio.run(main(Path(sys.argv[1])))
