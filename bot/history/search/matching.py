"""Finds the lines of a chat that have some literal text, by way of the index. Blocking; raises `sqlite3.Error` and `OSError`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace

import jiter

from bot.contracts.archive import HistoryPage, HistoryQuery
from bot.core.archive.window import Window, read_line
from bot.history.search import index_file, literal
from bot.history.search.chat_indexer import ROLES, IndexedChat
from bot.history.search.index import Index, chat_named
from bot.history.search.ranking import ROW_BITS
from bot.history.search.streams import Stream

MOST = 2_000
"""Lines that are read for one question. Where more may have the text, reading all from the newest on finds it as soon."""
MOST_TOKENS = 200
REFUSED = 200  # lines on top of those that were asked for, of which some are not wanted

Spot = tuple[int, int, int, int]
"""Of a line: where it stands and how long it is, its time, and its role as a place in `ROLES`."""


class _IndexMismatch(Exception):
    """A line is not what the index says."""


def page(index: Index, name: str, query: HistoryQuery) -> HistoryPage | None:
    """The window that `query` asks for, as `contracts.archive.Archive.search` gives it, with the exact number of matches unless
    they are very many and it is not `counted`; None where the index does not narrow it down, so that lines have to be
    read one after the other.
    """
    wanted = literal.sought(query.keyword) if query.keyword and not query.everything else None
    if wanted is None:
        return None
    with index.streams.open(name) as stream, index_file.snapshot(index.db):
        chat = chat_named(index.db, name)
        expression = _expression(index.db, chat, wanted) if chat is not None else None
        if chat is None or expression is None or chat.size != stream.size:
            return None
        all_of_them = _at_most(index.db, chat, expression)
        if all_of_them:
            spots = sorted(_spots(index.db, chat, expression, query, MOST), reverse=True)
        elif not query.counted:
            spots = _newest(index.db, chat, expression, query)
        else:
            return None
        window = Window(replace(query, counted=all_of_them))
        try:
            _look(window, stream, spots, cheaply=query.skip is None)
        except _IndexMismatch:
            return None
    return window.page() if all_of_them or window.full else None


def _expression(db: sqlite3.Connection, chat: IndexedChat, wanted: literal.LiteralQuery) -> str | None:
    """Return the expression that finds all lines with the text."""
    every = [f'"{chat.prefix}{token}"' for token in wanted.tokens]
    if wanted.part:
        rows = db.execute(
            "SELECT DISTINCT token FROM runs WHERE chat = ? AND instr(run, ?) LIMIT ?",
            (chat.id, wanted.part, MOST_TOKENS + 1),
        ).fetchall()
        tokens = [token for (token,) in rows]
        if "" not in tokens and len(tokens) <= MOST_TOKENS:
            every.append(f"({_either(chat, tokens)})" if tokens else "")
        elif not every:
            return None
    anything = f'"{chat.prefix}{literal.ANYTHING}"'
    return f"({' AND '.join(every)}) OR {anything}" if all(every) else anything


def _either(chat: IndexedChat, tokens: Iterable[str]) -> str:
    return " OR ".join(f'"{chat.prefix}{token}"' for token in tokens)


def _at_most(db: sqlite3.Connection, chat: IndexedChat, expression: str) -> bool:
    """True if no more lines may have it than can be read."""
    found = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM tokens WHERE tokens MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)",
        (expression, *chat.row_range(), MOST + 1),
    ).fetchone()
    return int(found[0]) <= MOST


def _spots(
    db: sqlite3.Connection, chat: IndexedChat, expression: str, query: HistoryQuery, most: int
) -> list[Spot]:
    """Return the places where lines of the role and time that were asked for may have the text, the newest first."""
    role = ROLES.index(query.role) if query.role else None
    return db.execute(
        f"SELECT at, size, ts, role FROM tokens CROSS JOIN lines ON line = tokens.rowid >> {ROW_BITS} "  # noqa: S608
        "WHERE tokens MATCH ? AND tokens.rowid BETWEEN ? AND ? AND role = ifnull(?, role) "
        "AND ts < ifnull(?, ts + 1) AND ts >= ifnull(?, ts) ORDER BY tokens.rowid DESC LIMIT ?",
        (expression, *chat.row_range(), role, query.before, query.after, most),
    ).fetchall()


def _newest(db: sqlite3.Connection, chat: IndexedChat, expression: str, query: HistoryQuery) -> list[Spot]:
    """Enough of those that were written last, the newest first; none where that is not certain."""
    # An edit stands in the place of what it changed, however late it was written.
    revised = [
        key.removeprefix(chat.prefix).partition(":")[0]
        for (key,) in db.execute(
            "SELECT key FROM revised WHERE key BETWEEN ? AND ? LIMIT ?",
            (chat.prefix, f"{chat.prefix}~", MOST_TOKENS + 1),
        )
    ]
    if len(revised) > MOST_TOKENS:
        return []
    most = query.offset + query.limit + REFUSED
    found = _spots(db, chat, expression, query, most)
    if revised:
        changed = _spots(db, chat, f"({expression}) AND ({_either(chat, revised)})", query, MOST)
        last = min(set(found) - set(changed), default=None) if len(found) == most else (0, 0, 0, 0)
        found = [spot for spot in {*found, *changed} if last is not None and spot >= last]
    return sorted(found, reverse=True)


def _look(window: Window, stream: Stream, spots: Iterable[Spot], *, cheaply: bool) -> None:
    """Show the lines themselves to a window; `cheaply`, where their text alone tells whether they count."""
    for at, size, ts, role in spots:
        raw = stream.read(at, size)
        # Behind the page lines are only counted.
        text = line_text(raw, ts, ROLES[role]) if cheaply and window.filled else None
        if text is not None:
            window.count(text)
            continue
        line = read_line(raw)
        if line is None or line.ts != ts or line.role != ROLES[role]:
            raise _IndexMismatch
        window.look(line)
        if window.full:
            window.stop()
            return


def line_text(raw: bytes, ts: int, role: str) -> str | None:
    """Return the words of a line of this time and role; None if it takes more to tell."""
    try:
        value = jiter.from_json(raw, cache_mode="keys")
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("ts") != ts or value.get("role") != role:
        return None
    text = value.get("text")
    return text if isinstance(text, str) else None
