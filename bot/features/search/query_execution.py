"""Runs one query against the index of one chat, then extends the query by terms of the best lines."""

from __future__ import annotations

import difflib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bot.core.archive.window import read_line
from bot.features.search import analysis, ranking
from bot.features.search.index import IndexedChat, speaker_token
from bot.features.search.ranking import PLACE_BITS, ROW_BITS, CorpusStats, Postings, Weights

BUDGET = 1_500
"""Max index entries examined for all words of a query. The limit grows by one for each `BUDGET_SHARE` lines
of the chat.
"""
BUDGET_SHARE = 160
CANDIDATES = 200
"""Max lines that a query returns per chat."""
_COMMON, REMEMBERED = 50, 50_000
_MOST_COMMON = 3  # max frequent words searched if the query has rare words too
_SHARED, _SHARED_BY = 200, 200  # max lines (at least 200, or 1/200 of the chat) with a feedback term
_SPEAKERS = 200  # max names with which a misspelt name is compared
_ALIKE, _SHORTEST_NAME = 0.65, 4  # min similarity of two spellings of a name, and min letters of such a name
_OFFERED = 20  # max words of the best lines considered as feedback terms
FETCHED = (
    1_000  # max lines of a word that are fetched and intersected here; above it, SQLite intersects faster
)


class Counts:
    """Counts the lines that contain a token. The counts of frequent tokens are cached, because counting
    those tokens is slow and the counts change little.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.common: dict[str, tuple[int, int]] = {}

    def of(self, token: str, lines: int) -> int:
        """Return the number of lines that contain `token` (with the chat's prefix) in a chat of `lines` lines."""
        known = self.common.get(token)
        if known is not None and known[1] <= lines <= known[1] * 1.02:
            return known[0]
        row = self.db.execute("SELECT doc FROM vocabulary WHERE term = ?", (token,)).fetchone()
        count = int(row[0]) if row else 0
        if count > _COMMON:
            if len(self.common) >= REMEMBERED:
                self.common.clear()
            self.common[token] = count, lines
        return count


class QueryExecution:
    """A query against the index of one chat."""

    def __init__(
        self,
        counts: Counts,
        chat: IndexedChat,
        weights: Weights,
        *,
        ranges: tuple[tuple[int, int], ...],
    ) -> None:
        self._db = counts.db
        self._known = counts
        self._chat = chat
        self._weights = weights
        self._stats = CorpusStats(chat.lines, chat.tokens, chat.session, ranges)
        self._budget = BUDGET + chat.lines // BUDGET_SHARE
        self._most_shared = max(_SHARED, chat.lines // _SHARED_BY)
        self._anchors: list[str] = []
        self._anchor_rows: set[int] = set()  # rows of the lines that contain a rare word of the query
        self.named: tuple[str, ...] = ()
        """Tokens of the speakers that the query names."""

    def ranked(self, terms: Sequence[analysis.Term]) -> list[tuple[int, float]]:
        if not terms:
            return self._of_time()
        terms = self._with_speakers(terms)
        tally = ranking.LineScores(self._stats, self._weights)
        self._add(tally, terms)
        tally.prefer(self._of_speakers())
        tally.consider(self._rows_of_time())
        if self._weights.feedback_terms and (first := tally.best(self._weights.feedback_lines)):
            # Single characters and pairs of characters are parts of words, so sharing them means nothing.
            found = [(self._words(line), score) for line, score in first]
            known = {term.token for term in terms}
            counts = self._counts(_offered(found, known))
            # Frequent terms are slow to search and do not distinguish lines.
            counts = {token: count for token, count in counts.items() if count <= self._most_shared}
            more = ranking.feedback(found, counts, self._stats, known, self._weights)
            self._add(tally, [analysis.Term(token, weight) for token, weight in more])
        return tally.best(CANDIDATES)

    def _with_speakers(self, terms: Sequence[analysis.Term]) -> list[analysis.Term]:
        """Return the terms of the query; a term that is the name of a speaker in the chat gets a lower
        weight. If the query consists only of names, terms that find the speakers' lines are added.
        """
        speakers = {term.token: self._speaker(term.token) for term in terms if len(term.token) > 1}
        named = {token: speaker for token, speaker in speakers.items() if speaker is not None}
        self.named = tuple(dict.fromkeys(named.values()))
        found = [
            analysis.Term(term.token, term.weight * (self._weights.mentioned if term.token in named else 1.0))
            for term in terms
        ]
        alone = all(term.token in named for term in terms)
        return found + [analysis.Term(speaker) for speaker in self.named if alone]

    def _speaker(self, token: str) -> str | None:
        """Return the token of the speaker with this name. If no speaker has this name and no line contains
        it, return the token of the most similar name.
        """
        exact = speaker_token(token)
        counts = self._counts([exact, token])
        if counts[exact]:
            return exact
        if counts[token] or len(token) < _SHORTEST_NAME or analysis.is_paired(token):
            return None
        begin = self._chat.prefix + speaker_token(token[0])
        rows = self._db.execute(
            "SELECT term FROM vocabulary WHERE term >= ? AND term < ? LIMIT ?",
            (begin, f"{begin}\U0010ffff", _SPEAKERS),
        )
        spellings = [term[len(self._chat.prefix) :] for (term,) in rows]
        return next(iter(difflib.get_close_matches(exact, spellings, 1, _ALIKE)), None)

    def _of_speakers(self) -> list[int]:
        """Return index entries of lines by the named speakers. If there are many lines, return those that
        contain a rare word of the query, otherwise the newest.
        """
        counts, found = self._counts(self.named), list[int]()
        narrow = " OR ".join(map(self._quoted, self._anchors))
        for token in self.named:
            one = self._quoted(token)
            if counts[token] <= BUDGET:
                found += self._matching(one)
            elif narrow:
                found += self._matching(f"({narrow}) AND {one}")
            else:
                found += self._rows(one, BUDGET)
        return found

    def _add(self, tally: ranking.LineScores, terms: Sequence[analysis.Term]) -> None:
        for posting in self._postings(terms):
            tally.add(posting)

    def _words(self, line: int) -> list[str]:
        return [token for token in analysis.tokens(self._text(line)) if not analysis.is_paired(token)]

    def _text(self, line: int) -> str:
        row = self._db.execute("SELECT raw FROM lines WHERE line = ?", (line,)).fetchone()
        said = read_line(row[0].encode()) if row else None
        return said.text if said is not None else ""

    def _rows_of_time(self) -> list[int]:
        """Return the newest lines of the requested time, as index entries without a length class."""
        found: set[int] = set()
        for first, last in self._stats.session_ranges:
            found.update(
                line << ROW_BITS
                for (line,) in self._db.execute(
                    "SELECT line FROM lines WHERE line BETWEEN ? AND ? ORDER BY line DESC LIMIT ?",
                    (first << PLACE_BITS, (last + 1 << PLACE_BITS) - 1, CANDIDATES),
                )
            )
        return sorted(found, reverse=True)[:CANDIDATES]

    def _of_time(self) -> list[tuple[int, float]]:
        """Return the lines of the requested time, newest first, for a query that names nothing except a time."""
        rows = self._rows_of_time()
        return [(row >> ROW_BITS, 1.0 - place / (len(rows) + 1)) for place, row in enumerate(rows)]

    def _counts(self, tokens: Iterable[str]) -> dict[str, int]:
        """Return the number of lines that contain each token."""
        prefix, lines = self._chat.prefix, self._chat.lines
        return {token: self._known.of(prefix + token, lines) for token in tokens}

    def _postings(self, terms: Sequence[analysis.Term]) -> list[Postings]:
        """Return the matching lines of each term. For a rare word, all lines are returned. For a frequent
        word, only lines that contain a rare word of the query too are returned, if the query has a rare
        word.
        """
        counts = self._counts(term.token for term in terms)
        found: list[Postings] = []
        common: list[analysis.Term] = []
        for term in sorted(terms, key=lambda term: counts[term.token]):
            count = counts[term.token]
            if count > self._budget:
                common.append(term)
            elif count:
                self._budget -= count
                self._anchors.append(term.token)
                rows = self._match(term.token)
                self._anchor_rows.update(rows)
                found.append(Postings(term.weight, count, rows))
        if common:
            found += self.common(common[:_MOST_COMMON] if self._anchors else common, counts)
        return found

    def common(self, common: Sequence[analysis.Term], counts: dict[str, int]) -> list[Postings]:
        together: list[int] = []
        if self._anchors:
            narrow = " OR ".join(map(self._quoted, self._anchors))
        else:
            narrow = ""
            for number in range(len(common), 1, -1):
                every = " AND ".join(self._quoted(term.token) for term in common[:number])
                together = self._rows(every, self._budget // 4)
                if len(together) >= 100:
                    break
        each = max(200, self._budget // (2 * len(common)))
        found = []
        for term in common:
            one = self._quoted(term.token)
            if narrow and counts[term.token] <= FETCHED:
                rows = set(sorted(self._anchor_rows.intersection(self._match(term.token)))[-each:])
            elif narrow:
                rows = set(sorted(self._matching(f"({narrow}) AND {one}"))[-each:])
            else:
                rows = set(self._rows(one, each))
            for first, last in self._stats.session_ranges:
                rows.update(self._rows(one, each, first, last))
            if together and term in common[:2]:
                rows.update(together)
            found.append(Postings(term.weight, counts[term.token], sorted(rows)))
        return found

    def _match(self, token: str) -> list[int]:
        return self._matching(self._quoted(token))

    def _matching(self, expression: str) -> list[int]:
        """Return all index entries that match an expression. SQLite joins the entries into one value, which
        is twice as fast.
        """
        select = "SELECT group_concat(rowid) FROM tokens WHERE tokens MATCH ?"
        return _numbers(self._db.execute(select, (expression,)).fetchone()[0])

    def _rows(
        self, expression: str, most: int, first: int | None = None, last: int | None = None
    ) -> list[int]:
        """Return the newest index entries that match an expression, limited to these sessions."""
        low, high = self._chat.row_range()
        bits = PLACE_BITS + ROW_BITS
        low = low if first is None else first << bits
        high = high if last is None else (last + 1 << bits) - 1
        found = self._db.execute(
            "SELECT group_concat(rowid) FROM (SELECT rowid FROM tokens WHERE tokens MATCH ? "
            "AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
            (expression, low, high, most),
        ).fetchone()
        return _numbers(found[0])

    def _quoted(self, token: str) -> str:
        return f'"{self._chat.prefix}{token}"'


def _numbers(joined: str | None) -> list[int]:
    return json.loads(f"[{joined or ''}]")  # type: ignore[no-any-return]


def _offered(found: Sequence[tuple[Sequence[str], float]], known: set[str]) -> list[str]:
    worth: dict[str, float] = defaultdict(float)
    for tokens, score in found:
        for token in set(tokens) - known:
            worth[token] += score
    return sorted(worth, key=lambda token: (worth[token], token), reverse=True)[:_OFFERED]
