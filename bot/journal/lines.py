"""Lines of transcripts and archive, on disk here before their files have them."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bot import text
from bot.contracts.journal import LineRow
from bot.journal.table import JournalTable, done

_PUT = "INSERT OR REPLACE INTO lines VALUES (?, ?, ?)"
_DROP = "DELETE FROM lines WHERE number = ?"


class SqliteLines(JournalTable):
    """`contracts.journal.LineLog`."""

    def put_lines(self, rows: Sequence[tuple[int, str, Callable[[], bytes]]]) -> Future[None]:
        def put(db: sqlite3.Connection) -> None:
            db.executemany(_PUT, [(number, text.clean(file), lines()) for number, file, lines in rows])

        def take_back(db: sqlite3.Connection) -> None:
            db.executemany(_DROP, [(number,) for number, *_ in rows])

        return self._base.run(put, undo=take_back, hurry=False)

    async def kept_lines(self) -> list[LineRow]:
        found = await self._rows("SELECT number, file, lines FROM lines ORDER BY number", ())
        return [LineRow(number, file, bytes(lines)) for number, file, lines in found]

    def drop_lines(self, numbers: Sequence[int]) -> Coroutine[Any, Any, None]:
        rows = [(number,) for number in numbers]

        def drop(db: sqlite3.Connection) -> None:
            db.executemany(_DROP, rows)

        return done(self._base.run(drop, hurry=False))
