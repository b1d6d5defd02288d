"""Words of one family that a stemmer keeps apart (`allergy` and `allergic`), as far as a chat has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from bot.history.analysis import Term

_LONG = 6  # letters of a stem from which on its beginning says enough
_BEGINNING = 5
_ENDING = 2  # letters by which stems of one family may differ
_MOST = 20


def related_terms(db: sqlite3.Connection, prefix: str, terms: Sequence[Term], weight: float) -> list[Term]:
    """The relatives of these terms in the index, none of which is one of them. `prefix` is the chat's. English only:
    elsewhere the beginning of a word says less.
    """
    known = {term.token for term in terms}
    found: list[Term] = []
    for term in terms:
        stem = term.token
        if len(stem) < _LONG or not (stem.isascii() and stem.isalpha()):
            continue
        begin = prefix + stem[: max(_BEGINNING, len(stem) - _ENDING)]
        rows = db.execute(
            "SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?", (begin, begin + "{", _MOST)
        )
        for (token,) in rows:
            other = token[len(prefix) :]
            if other not in known and other.isalpha() and abs(len(other) - len(stem)) <= _ENDING:
                known.add(other)
                found.append(Term(other, term.weight * weight))
    return found
