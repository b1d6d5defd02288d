"""Lines of transcripts and archive, on disk here before their files have them."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence

from bot import text
from bot.contracts.journal import LineRow
from bot.journal.connection import Connection
from bot.journal.table import JournalTable

_PUT = """INSERT INTO lines VALUES (?, ?, ?)
    ON CONFLICT (number) DO UPDATE SET file = excluded.file, lines = excluded.lines"""
_DROP = "DELETE FROM lines WHERE number = ?"


class LineWrites(JournalTable):
    """Writes about lines, each of which may be carried out again."""

    def put_lines(self, rows: Sequence[tuple[int, str, Callable[[], bytes]]]) -> Future[bool | None]:
        def put(db: Connection) -> bool:
            db.executemany(_PUT, [(number, text.clean(file), lines()) for number, file, lines in rows])
            return True

        return self._writer.run(put, hurry=False)

    def drop_lines(self, numbers: Sequence[int]) -> Future[None]:
        rows = [(number,) for number in numbers]

        def drop(db: Connection) -> None:
            db.executemany(_DROP, rows)

        return self._writer.run(drop, hurry=False)


class SqlLines(JournalTable):
    """The lines that are kept."""

    async def kept_lines(self) -> list[LineRow]:
        found = await self._rows("SELECT number, file, lines FROM lines ORDER BY number", ())
        return [LineRow(*row) for row in found]
