"""Ranks lines for a question: a pure function of what the index says of them.

A line is a number: its session, and its place in that. Lines that stand side by side have numbers that follow one
another, so neighbours and sessions are known without asking. A row is a line with the class of its length.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import repeat
from operator import rshift
from typing import TypeVar

T = TypeVar("T")

PLACE_BITS = 8
"""Of a line: its place in its session."""
ROW_BITS = 4
"""Of a row: the class of its length."""
CENTRES = 100
"""Lines with so good a score of their own that those around them are looked at too, although they may have none."""
_WIDE = 10  # times as many lines are looked through for different ones
_CLASS = (1 << ROW_BITS) - 1
_PLACE = (1 << PLACE_BITS) - 1
_SESSION = ROW_BITS + PLACE_BITS
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Tokens that stand for each class of length."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything that can be tuned, in one place."""

    k1: float = 1.0
    """Weight of the length of a line beside its words (BM25)."""
    b: float = 0.45
    """The degree to which long lines are marked down (BM25)."""
    neighbour: float = 0.38
    """The share of the score of the lines next to it that a line gets."""
    session: float = 0.4
    """The share of the score of its session."""
    session_k: float = 1.5
    """The number of lines of a session that earn half of what very many with the same word would."""
    moment: float = 0.9
    """Bonus of a line from the time that was asked for, as a share of the best score."""
    named: float = 0.5
    """Bonus of a line of the person whom the question names, as a share of the best score."""
    mentioned: float = 0.5
    """The weight of that name beside other words: their own lines seldom have it."""
    single: float = 0.75
    """The weight of single characters in scripts without spaces, where pairs are looked for too."""
    feedback_lines: int = 2
    """Number of best lines that give further terms."""
    feedback_terms: int = 3
    """Number of further terms."""
    feedback: float = 0.12
    """Weight of the best further term beside the question's own."""
    alike: int = 16
    """Of lines with the same score of their own, which are often the same words, so many come before what is less good."""
    looked: int = 40
    """Number of best lines that are read and scored by their form; the next three weights are shares of the best score."""
    speaker: float = 0.2
    """A line of who is asked about: the person, unless the question says otherwise or names somebody."""
    first_person: float = 0.1
    """A line in which somebody speaks of themselves."""
    number: float = 0.2
    """A line with a number, where one is asked for."""
    fusion: float = 10.0
    """The constant of reciprocal rank fusion: the smaller it is, the more the first places count."""


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class Postings:
    """The lines of a term. `count` is the number of lines that have it; `rows` may be only those worth looking at."""

    weight: float
    count: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Totals of a chat. `session_ranges` are ranges of sessions (the end inclusive) of the time that was asked for."""

    lines: int
    tokens: int
    sessions: int
    session_ranges: tuple[tuple[int, int], ...] = ()


def length_class(tokens: int) -> int:
    """The class of a length, from 0 to 15."""
    return min(bisect_left(LENGTHS, tokens), len(LENGTHS) - 1)


def rarity(count: int, total: int) -> float:
    """BM25's inverse document frequency, never negative."""
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


class LineScores:
    """The scores of the lines of one chat, a term at a time. What it says depends on what was added alone."""

    def __init__(self, stats: CorpusStats, weights: Weights = DEFAULT) -> None:
        self._stats = stats
        self._weights = weights
        self._own: dict[int, float] = {}
        self._named: set[int] = set()
        # Of each posting: what it is worth to a session, and how many of its lines each session has.
        self._sessions: list[tuple[float, Counter[int]]] = []
        average = stats.tokens / stats.lines if stats.lines else 1.0
        self._norms = [
            weights.k1 * (1 - weights.b + weights.b * length / max(1.0, average)) for length in LENGTHS
        ]

    def add(self, posting: Postings) -> None:
        weights = self._weights
        worth = posting.weight * rarity(posting.count, self._stats.lines) * (weights.k1 + 1)
        once = [worth / (1 + norm) for norm in self._norms]
        self._gain(posting.rows, once)
        if weights.session:
            counts = Counter(map(rshift, posting.rows, repeat(_SESSION)))
            rare = rarity(len(counts), self._stats.sessions)
            self._sessions.append((posting.weight * rare * (weights.session_k + 1), counts))

    def _gain(self, rows: Iterable[int], worths: Sequence[float]) -> None:
        own = self._own
        get = own.get
        for row in rows:
            line = row >> ROW_BITS
            own[line] = get(line, 0.0) + worths[row & _CLASS]

    def consider(self, rows: Iterable[int]) -> None:
        """Look at these lines of the time that was asked for, although they may have no word of the question."""
        for row in rows:
            self._own.setdefault(row >> ROW_BITS, 0.0)

    def prefer(self, rows: Iterable[int]) -> None:
        """Raise these lines, which are of a person whom the question names."""
        self._named.update(row >> ROW_BITS for row in rows)

    def best(self, most: int) -> list[tuple[int, float]]:
        """Lines with their scores, best first: each one's own, and shares of its neighbours' and its session's."""
        lines = self._foremost(most)
        scores = self._favoured(self._whole(self._with_neighbours(lines[:CENTRES]).union(lines)))
        # Of equals the newer one, so that the order never depends on chance.
        order = sorted(scores, reverse=True)
        order.sort(key=scores.__getitem__, reverse=True)
        return [(line, scores[line]) for line in order[:most]]

    def _foremost(self, most: int) -> list[int]:
        """The lines with the best scores of their own. A chat of years says the same again and again: that must not keep
        everything else away.
        """
        own, alike = self._own, self._weights.alike
        if most <= alike or len(own) <= most:
            least = min(heapq.nlargest(most, own.values()), default=0.0)
            found = [line for line, score in own.items() if score >= least]
            found.sort(key=own.__getitem__, reverse=True)
            return found[:most]
        groups: dict[float, list[int]] = {}
        left, enough = most * _WIDE, 0
        # Scores are few: lines as long with the same words have the same one.
        for score, count in sorted(Counter(own.values()).items(), reverse=True):
            groups[score] = []
            left -= count
            enough += min(count, alike)
            if enough >= most or left <= 0:
                break
        for line, score in own.items():
            if score in groups:
                groups[score].append(line)
        if left < 0:
            last = groups[min(groups)]
            del last[len(last) + left :]
        front = [line for group in groups.values() for line in group[:alike]]
        others = [line for group in groups.values() for line in group[alike:]]
        return (front + others)[:most]

    def _with_neighbours(self, lines: Iterable[int]) -> set[int]:
        return {
            near
            for line in lines
            for near in (line - 1, line, line + 1)
            if near >> PLACE_BITS == line >> PLACE_BITS
        }

    def _whole(self, lines: AbstractSet[int]) -> dict[int, float]:
        own, near = self._own, self._weights.neighbour
        sessions = self._of_sessions({line >> PLACE_BITS for line in lines})
        found = {}
        for line in lines:
            score = own.get(line, 0.0) + sessions[line >> PLACE_BITS]
            if line - 1 in own and line & _PLACE:
                score += near * own[line - 1]
            if line + 1 in own and line & _PLACE < _PLACE:
                score += near * own[line + 1]
            found[line] = score
        return found

    def _of_sessions(self, sessions: AbstractSet[int]) -> dict[int, float]:
        """Return the worth of sessions: more lines of one with the same word add little."""
        k, found = self._weights.session_k, dict.fromkeys(sessions, 0.0)
        for worth, counts in self._sessions:
            for session in sessions & counts.keys():
                count = counts[session]
                found[session] += worth * count / (count + k)
        share = self._weights.session
        return {session: share * score for session, score in found.items()}

    def _favoured(self, scores: dict[int, float]) -> dict[int, float]:
        """Raise lines of the person who is named, and of the time that was asked for."""
        best = max(scores.values(), default=0.0)
        named, timely = best * self._weights.named, best * self._weights.moment
        ranges = self._stats.session_ranges
        for line in scores:
            if line in self._named:
                scores[line] += named
            if ranges and _within(line >> PLACE_BITS, ranges):
                scores[line] += timely
        return scores


def _within(session: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= session <= last for first, last in ranges)


def feedback(
    found: Sequence[tuple[Sequence[str], float]],
    counts: Mapping[str, int],
    stats: CorpusStats,
    known: Iterable[str],
    weights: Weights = DEFAULT,
) -> list[tuple[str, float]]:
    """Words to look for beside those of the question: what the best lines have in common and others have not.

    `found` are the tokens of the best lines and their scores, `counts` how many lines have each token.
    """
    worth: dict[str, float] = defaultdict(float)
    for tokens, score in found:
        for token in set(tokens):
            worth[token] += score
    known = set(known)
    # A word of one line alone says nothing of the others; one that is everywhere says nothing at all.
    offered = {
        token: value * rarity(counts[token], stats.lines)
        for token, value in worth.items()
        if token not in known and counts.get(token, 0) > 1
    }
    chosen = sorted(offered, key=lambda token: (offered[token], token), reverse=True)[
        : weights.feedback_terms
    ]
    best = offered[chosen[0]] if chosen else 0.0
    return [(token, weights.feedback * offered[token] / best) for token in chosen if best > 0]


def fused(rankings: Iterable[Sequence[T]], weights: Weights = DEFAULT) -> dict[T, float]:
    """Reciprocal rank fusion: what several rankings put in front comes first, whatever their scores are made of."""
    scores: dict[T, float] = defaultdict(float)
    for ranking in rankings:
        for place, found in enumerate(ranking, 1):
            scores[found] += 1 / (weights.fusion + place)
    return dict(scores)
