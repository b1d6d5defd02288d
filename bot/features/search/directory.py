"""Lists the conversations in the index for operators, and searches their names and words. All functions block
and raise `sqlite3.Error`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

from bot import text
from bot.features.search import analysis
from bot.features.search.index import IndexedChat, transaction
from bot.features.search.ranking import ROW_BITS
from bot.tools.ports import ChatQuery, ListedChat, ListedChats

SEARCH_SECONDS = 0.25
"""Max seconds of the search for words. The conversations that were active last are searched first."""
MOST_TOKENS = 12
"""Max tokens of a query; further tokens are ignored."""
_BEFORE, _EXCERPT = 40, 160
"""Max characters before the first word of an excerpt, and max characters of an excerpt."""
_CHATS = (
    "SELECT id, name, people, first, lines, last_ts FROM chats WHERE lines > 0 ORDER BY last_ts DESC, id DESC"
)


def listed(db: sqlite3.Connection, query: ChatQuery, monotonic: Callable[[], float]) -> ListedChats:
    """Return the requested page of conversations, the last active first."""
    with transaction(db, "DEFERRED"):
        every = [
            (number, ListedChat(name, people, query.names.get(name, first), lines, last_ts))
            for number, name, people, first, lines, last_ts in db.execute(_CHATS)
        ]
        chats = [
            (number, one)
            for number, one in every
            if (not query.channel or one.channel == query.channel)
            and (query.among is None or one.chat_key in query.among)
        ]
        found, searched = [(one, 0) for _, one in chats], len(chats)
        if words := text.folded(query.words).split():
            found, searched = _saying(db, chats, query, words, monotonic)
        page = [
            one if not line else replace(one, found=_excerpt(db, line, words))
            for one, line in found[query.offset : query.offset + query.limit]
        ]
        channels = sorted({one.channel for _, one in every})
        return ListedChats(page, len(found), channels, searched, len(chats))


def _saying(
    db: sqlite3.Connection,
    chats: Sequence[tuple[int, ListedChat]],
    query: ChatQuery,
    words: Sequence[str],
    monotonic: Callable[[], float],
) -> tuple[list[tuple[ListedChat, int]], int]:
    """Return the chats with a line that contains all words, each with the newest such line, and the chats whose
    names, chatKey or title contain all words, each with the line 0. Return also the number of chats
    whose lines were searched.
    """
    tokens = list(dict.fromkeys(analysis.tokens(query.words)))[:MOST_TOKENS] if query.said else []
    until, searched = monotonic() + SEARCH_SECONDS, 0 if tokens else len(chats)
    found = list[tuple[ListedChat, int]]()
    for number, one in chats:
        line = 0
        if tokens and monotonic() < until:
            searched += 1
            line = _newest(db, number, tokens)
        if line or _names(one, words):
            found.append((one, line))
    return found, searched


def _names(one: ListedChat, words: Sequence[str]) -> bool:
    named = text.folded(f"{one.chat_key}\n{one.people}\n{one.title}")
    return all(word in named for word in words)


def _newest(db: sqlite3.Connection, number: int, tokens: Sequence[str]) -> int:
    """Return the number of a chat's newest line that contains all tokens; 0 if there is none."""
    prefix = IndexedChat(number, "").prefix
    row = db.execute(
        "SELECT rowid FROM tokens WHERE tokens MATCH ? ORDER BY rowid DESC LIMIT 1",
        (" AND ".join(f'"{prefix}{token}"' for token in tokens),),
    ).fetchone()
    return row[0] >> ROW_BITS if row else 0


def _excerpt(db: sqlite3.Connection, line: int, words: Sequence[str]) -> str:
    row = db.execute("SELECT raw ->> '$.text' FROM lines WHERE line = ?", (line,)).fetchone()
    said = str(row[0]) if row else ""
    folded = said.casefold()
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    begin = text.border(said, max(0, min(at, len(said)) - _BEFORE))
    return ("…" if begin else "") + text.preview(said[begin:], _EXCERPT)
