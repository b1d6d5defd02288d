"""Leases for work that one process at a time may do."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Coroutine
from typing import Any

from bot import text
from bot.journal.connection import Connection
from bot.journal.table import JournalTable

_HELD = "SELECT holder, number, taken_at, until FROM leases WHERE name = ?"
_WRITE = """INSERT INTO leases (name, holder, number, taken_at, until) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, number = excluded.number,
        taken_at = excluded.taken_at, until = excluded.until"""


class SqlLeases(JournalTable):
    """`contracts.journal.Leases`."""

    def lease(self, name: str, holder: str, seconds: float) -> Coroutine[Any, Any, int | None]:
        key, who, now = text.clean(name), text.clean(holder), self._clock.now()

        def work(db: Connection) -> int | None:
            row = db.execute(_HELD, (key,)).fetchone()
            has, number, taken_at, until = row or (None, 0, now, now)
            if has == who:
                db.execute(_WRITE, (key, who, number, now, now + seconds))
                return int(number)
            if has is not None and now < until:
                if now < taken_at:
                    # The clock was set back: from now on it binds for as long as it was taken for, not longer.
                    db.execute(_WRITE, (key, has, number, now, now + until - taken_at))
                return None
            db.execute(_WRITE, (key, who, number + 1, now, now + seconds))
            return int(number) + 1

        return _number(self.base.run(work))


async def _number(change: Future[int | None]) -> int | None:
    return await change
