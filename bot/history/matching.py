"""Windows into the lines of a chat that have literal text, by the index. Blocking; raises `sqlite3.Error` and `OSError`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

from bot.contracts import HistoryPage, HistoryQuery
from bot.history import indexfile, literal
from bot.history.filling import ROLES, Chat
from bot.history.index import Index, chat_named
from bot.history.ranking import ROW_BITS
from bot.history.streams import Stream
from bot.history.window import Window, read_line

MOST = 2_000
"""Lines that are read for one question. Where more may have the text, reading all from the newest on finds it as soon."""
_MOST_TOKENS = 200


class _Unlike(Exception):
    """A line is not what the index says."""


def page(index: Index, name: str, query: HistoryQuery) -> HistoryPage | None:
    """The window that `query` asks for, as `contracts.Archive.search` gives it, with the exact number of matches; None
    where the index does not narrow it down, so that lines have to be read one after the other.
    """
    wanted = literal.sought(query.keyword) if query.keyword and not query.everything else None
    if wanted is None:
        return None
    with index.streams.open(name) as stream, indexfile.snapshot(index.db):
        chat = chat_named(index.db, name)
        expression = _expression(index.db, chat, wanted) if chat is not None else None
        if chat is None or expression is None or chat.size != stream.size:
            return None
        places = _places(index.db, chat, expression)
        if places is None:
            return None
        window = Window(replace(query, counted=True))
        try:
            window.scan(_raw(stream, places, query))
        except _Unlike:
            return None
    return window.page()


def _expression(db: sqlite3.Connection, chat: Chat, wanted: literal.Sought) -> str | None:
    """What all lines with the text are found by."""
    every = [f'"{chat.prefix}{token}"' for token in wanted.tokens]
    if wanted.part:
        rows = db.execute(
            "SELECT DISTINCT token FROM runs WHERE chat = ? AND instr(run, ?) LIMIT ?",
            (chat.id, wanted.part, _MOST_TOKENS + 1),
        ).fetchall()
        tokens = [token for (token,) in rows]
        if "" not in tokens and len(tokens) <= _MOST_TOKENS:
            either = " OR ".join(f'"{chat.prefix}{token}"' for token in tokens)
            every.append(f"({either})" if tokens else "")
        elif not every:
            return None
    anything = f'"{chat.prefix}{literal.ANYTHING}"'
    return f"({' AND '.join(every)}) OR {anything}" if all(every) else anything


def _places(db: sqlite3.Connection, chat: Chat, expression: str) -> list[tuple[int, int, int, int]] | None:
    """Where the lines stand that may have it, the newest first; None where they are too many."""
    rows = db.execute(
        "SELECT rowid FROM tokens WHERE tokens MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
        (expression, *chat.row_range(), MOST + 1),
    ).fetchall()
    if len(rows) > MOST:
        return None
    found = []
    for (row,) in rows:
        fact = db.execute(
            "SELECT at, size, ts, role FROM lines WHERE line = ?", (row >> ROW_BITS,)
        ).fetchone()
        if fact is not None:
            found.append(fact)
    return sorted(found, reverse=True)


def _raw(stream: Stream, places: list[tuple[int, int, int, int]], query: HistoryQuery) -> Iterator[bytes]:
    """The lines themselves, of the role and time that were asked for."""
    for at, size, ts, role in places:
        if (
            (query.role is None or ROLES[role] == query.role)
            and (query.before is None or ts < query.before)
            and (query.after is None or ts >= query.after)
        ):
            raw = stream.read(at, size)
            line = read_line(raw)
            if line is None or line.ts != ts or line.role != ROLES[role]:
                raise _Unlike
            yield raw
