"""Takes in events, 16 at a time, and prints each id once it is acknowledged, until it is killed: PATH."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from bot.contracts.inbound import Inbound
from bot.journal import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog


async def main(path: Path) -> None:
    journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
    numbers = itertools.count()

    async def receive() -> None:
        while True:
            name = f"R{next(numbers):025d}"
            one = Inbound(
                channel="web",
                chat_id="1",
                chat_key="web:chat:1",
                chat_type="direct",
                user_id="1",
                keys=(name,),
                ts=1,
                target={},
                request_id=name,
            )
            assert await journal.receive(one)
            os.write(1, f"{name}\n".encode())

    await asyncio.gather(*(receive() for _ in range(16)))


asyncio.run(main(Path(sys.argv[1])))
