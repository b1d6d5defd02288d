"""Ranks archive lines for a query, without side effects.

A line's number consists of its chat, its session and its place in the session, so adjacent lines have adjacent numbers. A
row in the index is the line's number followed by the line's length class.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from operator import rshift

from bot.features.search.analysis import FORM

SESSION_BITS, PLACE_BITS = 24, 8
"""Bits in a line's number for the session, and for the place in the session."""
ROW_BITS = 4  # bits in a row for the length class
CENTRES = 100  # number of best lines whose neighbours are scored too
_CLASS = (1 << ROW_BITS) - 1
_PLACE = (1 << PLACE_BITS) - 1
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Max number of tokens of each length class."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of the ranking."""

    k1: float = 1.0  # saturation of term frequency (BM25)
    b: float = 0.45  # penalty for long lines, 0 to 1 (BM25)
    neighbour: float = 0.38  # share of each adjacent line's score that is added to a line's score
    session: float = 0.4  # share of its session's score that is added to a line's score
    session_k: float = 1.5  # number of matching lines with which a session gets half of the max score
    moment: float = 0.9  # bonus of a line in a requested period, as a share of the best score
    named: float = 0.5  # bonus of a line by a named speaker, as a share of the best score
    mentioned: float = 0.5
    """Weight of a speaker's name that is searched as a word. It is low because people rarely write their own names."""
    feedback_lines: int = 2  # number of best lines that feedback terms are taken from
    feedback_terms: int = 3  # max number of feedback terms
    feedback: float = 0.12  # weight of the first feedback term
    alike: int = 16
    """Max lines of equal score that are ranked before lines of lower scores. Lines of equal score often repeat one text."""
    looked: int = 40  # number of best lines that are scored by their content too
    speaker: float = 0.2
    """Bonus of a line with the role whose words are asked about, as a share of the best score."""
    first_person: float = 0.1  # bonus of a line in the first person, as a share of the best score
    number: float = 0.2
    """Bonus of a line with a number if the query asks for one, as a share of the best score."""
    fusion: float = 10.0  # constant of reciprocal rank fusion; a smaller value favours the first ranks


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class Postings:
    """A term's index rows. `count` is the number of all rows with the term; `rows` may be a selection of them."""

    weight: float
    count: int
    rows: Sequence[int]


def length_class(tokens: int) -> int:
    """Return the length class (0 to 15) of a line with this number of tokens."""
    return min(bisect_left(LENGTHS, tokens), len(LENGTHS) - 1)


def rarity(count: int, total: int) -> float:
    """Return the inverse document frequency of a term (BM25), which is never negative."""
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


@dataclass(slots=True)
class IndexedChat:
    """State of a chat in the index: the newest indexed event (`seq`), the totals of lines and tokens, and the session and
    place of the newest line.
    """

    id: int
    name: str
    seq: int = 0
    lines: int = 0
    tokens: int = 0
    session: int = 0
    place: int = 0
    last_ts: int | None = None

    @property
    def prefix(self) -> str:
        return f"{self.id:x}:"

    @property
    def first_session(self) -> int:
        return self.id << SESSION_BITS

    @property
    def rows(self) -> tuple[int, int]:
        """Return the lowest and the highest row that the chat can have."""
        bits = SESSION_BITS + PLACE_BITS + ROW_BITS
        return self.id << bits, (self.id + 1 << bits) - 1


class LineScores:
    """Scores of one chat's lines. Terms are added one by one, in any order."""

    def __init__(self, chat: IndexedChat, sessions: Sequence[tuple[int, int]], weights: Weights) -> None:
        """Begin without scores. `sessions` are the first and last session (inclusive) of each requested period."""
        self._chat = chat
        self._sessions = sessions
        self._weights = weights
        self._own: dict[int, float] = {}
        self._named: set[int] = set()
        self._matches: list[tuple[float, Counter[int]]] = []
        """For each added term, its weight for sessions and its number of lines in each session."""
        average = max(1.0, chat.tokens / chat.lines) if chat.lines else 1.0
        self._norms = [weights.k1 * (1 - weights.b + weights.b * length / average) for length in LENGTHS]

    def add(self, term: Postings) -> None:
        weights, own = self._weights, self._own
        worth = term.weight * rarity(term.count, self._chat.lines) * (weights.k1 + 1)
        worths = [worth / (1 + norm) for norm in self._norms]
        get = own.get
        for row in term.rows:
            line = row >> ROW_BITS
            own[line] = get(line, 0.0) + worths[row & _CLASS]
        counts = Counter(map(rshift, term.rows, repeat(ROW_BITS + PLACE_BITS)))
        rare = rarity(len(counts), self._chat.session)
        self._matches.append((term.weight * rare * (weights.session_k + 1), counts))

    def consider(self, rows: Iterable[int]) -> None:
        """Add these rows with the score 0. Lines of a requested period are thus found even if no word matches."""
        for row in rows:
            self._own.setdefault(row >> ROW_BITS, 0.0)

    def prefer(self, rows: Iterable[int]) -> None:
        """Give these rows, which belong to a named speaker, the bonus `Weights.named`."""
        self._named.update(row >> ROW_BITS for row in rows)

    def best(self, most: int) -> list[tuple[int, float]]:
        """Return the best lines. A line's score includes shares of the scores of its neighbours and of its session."""
        lines = self._foremost(most)
        near = {
            beside
            for line in lines[:CENTRES]
            for beside in (line - 1, line + 1)
            if beside >> PLACE_BITS == line >> PLACE_BITS
        }
        scores = self._scores(near.union(lines))
        # Sort lines of equal score by number, newest first, so that the order is always the same.
        return sorted(scores.items(), key=lambda one: (one[1], one[0]), reverse=True)[:most]

    def _foremost(self, most: int) -> list[int]:
        """Return the lines with the best own scores. Of lines with equal scores, put at most `Weights.alike` first."""
        own, alike = self._own, self._weights.alike
        if most <= alike:
            return heapq.nlargest(most, own, key=own.__getitem__)
        front, others = list[int](), list[int]()
        for _, group in groupby(sorted(own, key=own.__getitem__, reverse=True), key=own.__getitem__):
            lines = list(group)
            front += lines[:alike]
            others += lines[alike:]
            if len(front) >= most:
                break
        return (front + others)[:most]

    def _scores(self, lines: set[int]) -> dict[int, float]:
        own, weights, found = self._own, self._weights, dict[int, float]()
        sessions = self._scores_of_sessions({line >> PLACE_BITS for line in lines})
        for line in lines:
            before = own.get(line - 1, 0.0) if line & _PLACE else 0.0
            after = own.get(line + 1, 0.0) if line & _PLACE < _PLACE else 0.0
            near = weights.neighbour * (before + after)
            found[line] = own.get(line, 0.0) + near + weights.session * sessions[line >> PLACE_BITS]
        best = max(found.values(), default=0.0)
        for line in found:
            if line in self._named:
                found[line] += best * weights.named
            if any(first <= line >> PLACE_BITS <= last for first, last in self._sessions):
                found[line] += best * weights.moment
        return found

    def _scores_of_sessions(self, sessions: set[int]) -> dict[int, float]:
        """Return the score of each session. Every further line with the same word adds less."""
        found = dict.fromkeys(sessions, 0.0)
        for worth, counts in self._matches:
            for session in sessions & counts.keys():
                found[session] += worth * counts[session] / (counts[session] + self._weights.session_k)
        return found


LONGEST = 4_000  # max characters of a line and of a query that are examined


def speaker_meant(query: str) -> str | None:
    """Return whose words a query asks about: `user` or `assistant`. Return None if the query does not say. Never raises."""
    text = query[:LONGEST].replace("\u2019", "'")
    if FORM["you"].search(text):
        return "assistant"
    return "user" if FORM["me"].search(text) else None


_LONG = 160  # min characters of a long line
_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千]")


class AnswerScorer:
    """Scores lines by their form, for one query. Never raises."""

    def __init__(self, query: str, said_by: str | None, weights: Weights) -> None:
        """`said_by` is the role whose words the query asks about; None if the query names a person."""
        self._others = FORM["somebody"].search(query[:LONGEST]) is not None
        self._number = FORM["asks_number"].search(query[:LONGEST]) is not None
        self._said_by = said_by
        self._weights = weights

    def score(self, text: str, role: str) -> float:
        """Return the bonus of a line, as a share of the best line's score."""
        text = text[:LONGEST].strip()
        weights = self._weights
        worth = weights.speaker if role == self._said_by else 0.0
        # A long line has several subjects, so it is never only about somebody else.
        of_others = len(text) < _LONG and FORM["somebody"].search(text) and not FORM["myself"].search(text)
        if FORM["first_person"].search(text) and (self._others or not of_others):
            worth += weights.first_person
        if self._number and _NUMBER.search(text):
            worth += weights.number
        return worth
