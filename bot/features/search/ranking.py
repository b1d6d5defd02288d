"""Finds the archive lines that answer a query, best first. All functions block and raise `sqlite3.Error`."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from operator import rshift

from bot.contracts.messages import ArchiveLine
from bot.core.archive_files import read_line
from bot.features.search import analysis, index
from bot.features.search.analysis import FORM
from bot.features.search.index import LENGTHS, PLACE_BITS, ROW_BITS, IndexedChat, speaker_token
from bot.tools.context import Hit, Recalled, RecallQuery

BUDGET, BUDGET_SHARE = 1_500, 160
"""Max index entries that are read for the words of a query: `BUDGET`, plus one entry per `BUDGET_SHARE` lines of the chat."""
CANDIDATES = 200  # max lines that one phrasing finds in a chat
ALIKE = 16
"""Max lines of equal score that are ranked before lower scores, because lines of equal score often repeat one text."""
CENTRES = 100  # number of best lines whose neighbours are scored too
LONGEST = 4_000  # max characters of a line, or of a query, that are examined for its form
_AT_ONCE = 40  # max hits whose text is read at a time
_MOST_COMMON = 3  # max frequent words that are searched if the query also has rare words
_SHARED, _SHARED_BY = 200, 200
"""A word that the best lines share becomes a feedback term only if at most `_SHARED` lines, or 1/`_SHARED_BY` of the chat, have it."""
_OFFERED = 20  # max words of the best lines that are considered as feedback terms
_LONG = 160  # min characters of a long line
_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千]")
Scored = list[tuple[int, float]]
"""Numbers of lines with scores. A line's number also identifies its chat."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of the ranking."""

    k1: float = 1.0  # saturation of term frequency (BM25)
    b: float = 0.45  # penalty for long lines, 0 to 1 (BM25)
    neighbour: float = 0.38  # share of each adjacent line's score that is added to a line's score
    session: float = 0.4  # share of its session's score that is added to a line's score
    session_k: float = 1.5  # number of matching lines with which a session gets half of the max score
    moment: float = 0.9  # bonus of a line in a requested period, as a share of the best score
    named: float = 0.5  # bonus of a line whose speaker the query names, as a share of the best score
    mentioned: float = 0.5
    """Weight of a speaker's name that is searched as a word. The weight is low, because people rarely write their own names."""
    feedback_lines: int = 2  # number of best lines that feedback terms are taken from
    feedback_terms: int = 3  # max number of feedback terms
    feedback: float = 0.12  # weight of the first feedback term
    looked: int = 40  # number of best lines that are scored by their form too
    speaker: float = 0.2
    """Bonus, as a share of the best score, of a line by the role (person or bot) whose words the query asks about."""
    first_person: float = 0.1  # bonus of a line in the first person, as a share of the best score
    number: float = 0.2
    """Bonus of a line with a number if the query asks for a number, as a share of the best score."""
    fusion: float = 10.0  # constant of reciprocal rank fusion; a smaller value favours the first ranks


DEFAULT = Weights()


def rarity(count: int, total: int) -> float:
    """Return the inverse document frequency of a term (BM25), which is never negative."""
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


class ChatSearch:
    """Scores the lines of one chat for one phrasing of a query. The phrasing's own words are searched first, then words that
    the best lines share (feedback terms).
    """

    def __init__(
        self, db: sqlite3.Connection, chat: IndexedChat, weights: Weights, ranges: Iterable[tuple[int, int]]
    ) -> None:
        """`ranges` are the periods (epoch ms, end exclusive) that the query names."""
        self._db = db
        self._chat = chat
        self._weights = weights
        # The plus sign before `line` makes SQLite use the index of `ts`.
        within = "SELECT min(line) >> ?, max(line) >> ? FROM lines WHERE ts >= ? AND ts < ? AND +line BETWEEN ? AND ?"
        found = (
            db.execute(within, (PLACE_BITS, PLACE_BITS, *one, chat.first_line, chat.last_line)).fetchone()
            for one in ranges
        )
        self._sessions = [(first, last) for first, last in found if first is not None]
        """First and last session (inclusive) of each period."""
        self._budget = BUDGET + chat.lines // BUDGET_SHARE
        self._rare: list[str] = []
        self._named: list[str] = []  # index tokens of the speakers whom the query names
        self._scores: dict[int, float] = {}  # each line's own score (BM25)
        self._preferred: set[int] = set()  # lines of named speakers
        self._matches: list[tuple[float, Counter[int]]] = []
        """For each searched term, its weight for sessions and its number of lines in each session."""
        average = max(1.0, chat.tokens / chat.lines) if chat.lines else 1.0
        self._norms = [weights.k1 * (1 - weights.b + weights.b * length / average) for length in LENGTHS]

    def found(self, phrasing: str, terms: Mapping[str, float], wanted: Mapping[str, object]) -> Scored:
        """Return the best lines of the wanted role and time. Lines that repeat a better line's text come last."""
        ranked, weights = self._best(terms), self._weights
        rows = self._db.execute(
            "SELECT line, role, raw ->> '$.text' FROM json_each(:lines) CROSS JOIN lines ON line = value WHERE "
            "role = ifnull(:role, role) AND ts < ifnull(:before, ts + 1) AND ts >= ifnull(:after, ts)",
            {"lines": json.dumps(sorted(line for line, _ in ranked)), **wanted},
        )
        said = {line: (role, words) for line, role, words in rows}
        ranked = [one for one in ranked if one[0] in said]
        role_meant = "assistant" if FORM["you"].search(phrasing[:LONGEST].replace("\u2019", "'")) else "user"
        bonus = scorer(phrasing, None if self._named else role_meant, weights)
        seen, repeated, found = set[str](), list[int](), ranked[weights.looked :]
        for line, score in ranked[: weights.looked]:
            role, words = said[line]
            if (same := words.strip().casefold()) in seen:
                repeated.append(line)
            else:
                seen.add(same)
                found.append((line, score + ranked[0][1] * bonus(words, role)))
        found = _sorted(found)
        return found + [(line, found[-1][1]) for line in repeated]

    def _best(self, terms: Mapping[str, float]) -> Scored:
        """Return the best lines. If the query names a period and nothing else, return the newest lines of the period."""
        newest = "SELECT line FROM lines WHERE line BETWEEN ? AND ? ORDER BY line DESC LIMIT ?"
        of_time = {
            line
            for first, last in self._sessions
            for (line,) in self._db.execute(
                newest, (first << PLACE_BITS, (last + 1 << PLACE_BITS) - 1, CANDIDATES)
            )
        }
        timely = sorted(of_time, reverse=True)[:CANDIDATES]
        if not terms:
            return [(line, 1.0 - place / (len(timely) + 1)) for place, line in enumerate(timely)]
        # Names of speakers have lower weights. If all terms are names, the speakers' tokens are terms too.
        counts = self._counts(speaker_token(token) for token in terms if len(token) > 1)
        self._named = [token for token, count in counts.items() if count]
        names = {token: self._weights.mentioned for token in terms if speaker_token(token) in self._named}
        weighted = {token: weight * names.get(token, 1.0) for token, weight in terms.items()}
        self._search(weighted | dict.fromkeys(self._named if len(names) == len(terms) else (), 1.0))
        for token in self._named:
            rows = self._rows(self._quoted(token), BUDGET)
            rows += self._rows(f"{self._any_rare()} AND {self._quoted(token)}") if self._rare else []
            self._preferred.update(row >> ROW_BITS for row in rows)
        for line in timely:
            self._scores.setdefault(line, 0.0)
        self._search(self._feedback(terms))
        return self._top(CANDIDATES)

    def _search(self, terms: Mapping[str, float]) -> None:
        """Score the lines of each term. If the query has rare words, frequent words count only in lines with a rare word."""
        counts = self._counts(terms)
        common = list[str]()
        for token in sorted(terms, key=lambda token: counts[token]):
            count = counts[token]
            if count > self._budget:
                common.append(token)
            elif count:
                self._budget -= count
                self._rare.append(token)
                self._add(terms[token], count, self._rows(self._quoted(token)))
        common = common[:_MOST_COMMON]
        each = max(200, self._budget // (2 * len(common) or 1))
        rare = f"{self._any_rare()} AND " if self._rare else ""
        together = " AND ".join(map(self._quoted, common[:2]))
        for place, token in enumerate(common):
            one = self._quoted(token)
            rows = set(self._rows(rare + one, each))
            rows.update(*(self._rows(one, each, *sessions) for sessions in self._sessions))
            rows.update(self._rows(together, each) if place < 2 and not rare else ())
            self._add(terms[token], counts[token], sorted(rows))

    def _add(self, weight: float, count: int, rows: Sequence[int]) -> None:
        """Add a term's score to its lines. `count` is the number of all rows with the term; `rows` may be a selection."""
        weights, scores = self._weights, self._scores
        worth = weight * rarity(count, self._chat.lines) * (weights.k1 + 1)
        worths, classes = [worth / (1 + norm) for norm in self._norms], (1 << ROW_BITS) - 1
        for row in rows:
            line = row >> ROW_BITS
            scores[line] = scores.get(line, 0.0) + worths[row & classes]
        sessions = Counter(map(rshift, rows, repeat(ROW_BITS + PLACE_BITS)))
        rare = rarity(len(sessions), self._chat.session)
        self._matches.append((weight * rare * (weights.session_k + 1), sessions))

    def _feedback(self, known: Collection[str]) -> dict[str, float]:
        """Return words that the best lines share and that few other lines contain."""
        worth: dict[str, float] = defaultdict(float)
        for line, score in self._top(self._weights.feedback_lines):
            row = self._db.execute("SELECT raw ->> '$.text' FROM lines WHERE line = ?", (line,)).fetchone()
            for token in set(analysis.tokens(str(row[0]) if row else "")).difference(known):
                # One or two characters are only part of a word. Lines that share them need not share a word.
                worth[token] += 0.0 if analysis.is_paired(token) else score
        offered = sorted(worth, key=lambda token: (worth[token], token), reverse=True)[:_OFFERED]
        # A word that is in one line finds no other line. A frequent word is slow to search, and finds unrelated lines.
        most, lines = max(_SHARED, self._chat.lines // _SHARED_BY), self._chat.lines
        gains = {
            token: worth[token] * rarity(count, lines)
            for token, count in self._counts(offered).items()
            if worth[token] and 1 < count <= most
        }
        chosen = sorted(gains, key=lambda token: (gains[token], token), reverse=True)
        return {
            token: self._weights.feedback * gains[token] / gains[chosen[0]]
            for token in chosen[: self._weights.feedback_terms]
        }

    def _top(self, most: int) -> Scored:
        """Return the best lines. A line's score includes shares of the scores of its neighbours and of its session."""
        own, weights = self._scores, self._weights
        alike = defaultdict[float, Iterator[int]](count)
        lines = sorted(own, key=lambda line: (next(alike[own[line]]) < ALIKE, own[line]), reverse=True)[:most]
        near = {beside for line in lines[:CENTRES] for beside in _beside(line)}
        sessions = {
            session: sum(
                worth * of[session] / (of[session] + weights.session_k) for worth, of in self._matches
            )
            for session in {line >> PLACE_BITS for line in lines}
        }
        found = {
            line: own.get(line, 0.0)
            + weights.neighbour * sum(own.get(beside, 0.0) for beside in _beside(line))
            + weights.session * sessions[line >> PLACE_BITS]
            for line in near.union(lines)
        }
        best = max(found.values(), default=0.0)
        for line in found:
            found[line] += best * weights.named * (line in self._preferred)
            if any(first <= line >> PLACE_BITS <= last for first, last in self._sessions):
                found[line] += best * weights.moment
        return _sorted(found.items())[:most]

    def _counts(self, tokens: Iterable[str]) -> dict[str, int]:
        count, found = "SELECT doc FROM vocabulary WHERE term = ?", dict[str, int]()
        for token in tokens:
            row = self._db.execute(count, (self._chat.prefix + token,)).fetchone()
            found[token] = int(row[0]) if row else 0
        return found

    def _rows(
        self, expression: str, most: int = -1, first: int | None = None, last: int | None = None
    ) -> list[int]:
        """Return the newest rows that match the full-text `expression`, at most `most`, in the sessions `first` to `last`."""
        low = self._chat.first_line if first is None else first << PLACE_BITS
        high = self._chat.last_line if last is None else (last + 1 << PLACE_BITS) - 1
        # SQLite joins the rows to one string, which is twice as fast as fetching them.
        order = "ORDER BY rowid DESC" if most >= 0 else ""
        joined = (
            "SELECT group_concat(rowid) FROM (SELECT rowid FROM tokens WHERE tokens MATCH ? "  # noqa: S608 - constants
            f"AND rowid BETWEEN ? AND ? {order} LIMIT ?)"
        )
        where = expression, low << ROW_BITS, (high + 1 << ROW_BITS) - 1, most
        return json.loads(f"[{self._db.execute(joined, where).fetchone()[0] or ''}]")  # type: ignore[no-any-return]

    def _quoted(self, token: str) -> str:
        return f'"{self._chat.prefix}{token}"'

    def _any_rare(self) -> str:
        return f"({' OR '.join(map(self._quoted, self._rare))})"


def _beside(line: int) -> list[int]:
    """Return the numbers of the lines before and after a line, in the same session."""
    return [beside for beside in (line - 1, line + 1) if beside >> PLACE_BITS == line >> PLACE_BITS]


def _sorted(found: Iterable[tuple[int, float]]) -> Scored:
    """Sort lines by score, best first. Of lines with equal scores, the newest comes first."""
    return sorted(found, key=lambda one: (one[1], one[0]), reverse=True)


def scorer(query: str, said_by: str | None, weights: Weights) -> Callable[[str, str], float]:
    """Return a function that returns the bonus of a line with this text and role, as a share of the best line's score.
    `said_by` is the role whose words the query asks about; None if the query names a person. The function never raises.
    """
    of_others = FORM["somebody"].search(query[:LONGEST]) is not None
    wants_number = FORM["asks_number"].search(query[:LONGEST]) is not None

    def bonus(text: str, role: str) -> float:
        text = text[:LONGEST].strip()
        worth = weights.speaker if role == said_by else 0.0
        # A long line has several subjects, so it is never only about somebody else.
        about_others = len(text) < _LONG and FORM["somebody"].search(text) and not FORM["myself"].search(text)
        if FORM["first_person"].search(text) and (of_others or not about_others):
            worth += weights.first_person
        return worth + (weights.number if wants_number and _NUMBER.search(text) else 0.0)

    return bonus


def recall(
    db: sqlite3.Connection, names: Iterable[str], query: RecallQuery, weights: Weights = DEFAULT
) -> Recalled:
    """Return a page of the lines of these chats that match a query, best first."""
    wanted: Mapping[str, object] = {"role": query.role, "before": query.before, "after": query.after}
    rankings, hits, refused = list[Scored](), list[tuple[int, float, ArchiveLine]](), 0
    keyword = (query.keyword or "").casefold()
    with index.transaction(db, "DEFERRED"):
        known = (index.chat_named(db, name) for name in dict.fromkeys(names))
        chats = [chat for chat in known if chat is not None and chat.lines]
        for phrasing in query.queries:
            ranges, rest = analysis.time_ranges(phrasing, query.now)
            terms = analysis.terms(rest)
            searches = [ChatSearch(db, chat, weights, ranges) for chat in chats]
            rankings.append(
                _sorted(one for search in searches for one in search.found(phrasing, terms, wanted))
            )
        if len(rankings) == 1:
            places = rankings[0]
        else:
            # Fuse the rankings: a line gains more from each ranking the better its place in it is.
            fused = defaultdict[int, float](float)
            for ranked in rankings:
                for place, (line, _) in enumerate(ranked, 1):
                    fused[line] += 1 / (weights.fusion + place)
            places = _sorted(fused.items())
        for begin in range(0, len(places), _AT_ONCE):
            some = places[begin : begin + _AT_ONCE]
            said = _read(db, (line for line, _ in some))
            fit = [
                (line, score, one)
                for line, score in some
                if (one := said.get(line)) is not None
                if not (query.skip and query.skip(one)) and keyword in one.text.casefold()
            ]
            hits += fit
            refused += len(some) - len(fit)
            if len(hits) >= query.offset + query.limit:
                break
        page = hits[query.offset : query.offset + query.limit]
        said = _read(db, {beside for line, *_ in page for beside in _beside(line)})
    found = [
        Hit(one, score, tuple(said[beside] for beside in _beside(line) if beside in said))
        for line, score, one in page
    ]
    return Recalled(found, len(places) - refused)


def _read(db: sqlite3.Connection, lines: Iterable[int]) -> dict[int, ArchiveLine]:
    rows = db.execute(
        "SELECT line, raw FROM json_each(?) CROSS JOIN lines ON line = value", (json.dumps(sorted(lines)),)
    )
    return {line: said for line, raw in rows if (said := read_line(raw.encode())) is not None}
