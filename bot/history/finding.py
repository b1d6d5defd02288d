"""Questions to the index. Blocking; raises `sqlite3.Error` and `OSError`."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Protocol

from bot.contracts import ArchiveLine
from bot.history import analysis, ranking
from bot.history.index import Chat, chat_named
from bot.history.moments import moments
from bot.history.ranking import PLACE_BITS, ROW_BITS, Field, Posting, Weights
from bot.history.streams import Stream, Streams
from bot.history.telling import Look
from bot.history.voices import voice
from bot.history.window import read_line

BUDGET = 5_000
"""Rows that are looked at for all words of a question, and one for each `BUDGET_SHARE` lines of the chat on top."""
BUDGET_SHARE = 50
CANDIDATES = 300
"""Lines of a chat that a question finds at the most."""
_ROLES = ("user", "assistant")
_OFFERED = 24  # words of the best lines whose number of lines is asked for


@dataclass(frozen=True, slots=True)
class Wish:
    """What is looked for. `now` (milliseconds) and `zone` are those of the question; the rest narrows as in
    `contracts.HistoryQuery`.
    """

    query: str
    now: int
    zone: tzinfo = UTC
    role: str | None = None
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A line that was found: the name of its chat, its number, its score; what it says, where it was read already."""

    name: str
    line: int
    score: float
    said: ArchiveLine | None = field(default=None, compare=False)


class Reranker(Protocol):
    """Another opinion of what answers a question, such as a model's or that of vectors (`Embedded`)."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One for each text, the best one highest."""
        ...


class Embedder(Protocol):
    """Texts as vectors of one length."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


class Embedded:
    """A `Reranker` by the angle between vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        asked, *others = self._embedder.embed([query, *texts])
        return [_cosine(asked, other) for other in others]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    size = sum(a * a for a in one) * sum(b * b for b in other)
    return product / size**0.5 if size else 0.0


class Finder:
    """Finds lines of the chats that it is told, and of no other."""

    def __init__(
        self,
        db: sqlite3.Connection,
        streams: Streams,
        *,
        weights: Weights = ranking.DEFAULT,
        reranker: Reranker | None = None,
        reranked: int = 50,
    ) -> None:
        self._db = db
        self._streams = streams
        self._weights = weights
        self._reranker = reranker
        self._reranked = reranked

    def find(self, names: Iterable[str], wish: Wish) -> list[Place]:
        """The lines that answer best, best first; `CANDIDATES` of a chat at the most."""
        found = [place for name in dict.fromkeys(names) for place in self._find(name, wish)]
        found.sort(key=lambda place: (place.score, place.name, place.line), reverse=True)
        return found

    def _find(self, name: str, wish: Wish) -> list[Place]:
        chat = chat_named(self._db, name)
        if chat is None or not chat.lines:
            return []
        times = moments(wish.query, wish.now, wish.zone)
        with self._streams.open(name) as stream:
            ranges = self._sessions(chat, times.ranges)
            said_by = voice(wish.query)
            asked = _Asked(self._db, chat, stream, self._weights, ranges=ranges, said_by=said_by)
            ranked = asked.ranked(analysis.terms(times.rest, single=self._weights.single))
            kept = self._narrowed(ranked, wish)
            read = self._best_read(kept, stream)
            kept = self._looked_at(kept, read, Look(wish.query, said_by, self._weights))
            if self._reranker is not None and kept:
                kept = self._fused(self._reranker, kept, asked, wish.query)
        return [Place(name, line, score, read.get(line)) for line, score in kept]

    def _sessions(self, chat: Chat, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Ranges of sessions that lie in ranges of time."""
        first, last = chat.first_session, chat.first_session | (1 << 24) - 1
        found = []
        for begin, end in ranges:
            row = self._db.execute(
                "SELECT min(id), max(id) FROM sessions WHERE id BETWEEN ? AND ? AND last_ts >= ? AND first_ts < ?",
                (first, last, begin, end),
            ).fetchone()
            if row[0] is not None:
                found.append((row[0], row[1]))
        return tuple(found)

    def _narrowed(self, ranked: list[tuple[int, float]], wish: Wish) -> list[tuple[int, float]]:
        """Without lines that are not there any more, or are not of the role and time that were asked for."""
        facts = self.facts(line for line, _ in ranked)
        kept = []
        for line, score in ranked:
            fact = facts.get(line)
            if (
                fact is not None
                and (wish.role is None or fact.role == wish.role)
                and (wish.before is None or fact.ts < wish.before)
                and (wish.after is None or fact.ts >= wish.after)
            ):
                kept.append((line, score))
        return kept

    def _best_read(self, kept: Sequence[tuple[int, float]], stream: Stream) -> dict[int, ArchiveLine]:
        """The best lines; one that can no longer be read is left out."""
        facts = self.facts(line for line, _ in kept[: self._weights.looked])
        read = {line: _read(stream, fact) for line, fact in facts.items()}
        return {line: said for line, said in read.items() if said is not None}

    @staticmethod
    def _looked_at(
        kept: list[tuple[int, float]], read: Mapping[int, ArchiveLine], look: Look
    ) -> list[tuple[int, float]]:
        """By what the lines that were read look like, too; the same words again come after everything else."""
        seen: set[str] = set()
        found, again = [], []
        for line, score in kept:
            said = read.get(line)
            if said is None:
                found.append((line, score))
                continue
            words = said.text.strip().casefold()
            if words in seen:
                again.append(line)
                continue
            seen.add(words)
            found.append((line, score + kept[0][1] * look.worth(said.text, said.role)))
        found.sort(key=lambda one: (one[1], one[0]), reverse=True)
        return found + [(line, found[-1][1]) for line in again]

    def _fused(
        self, reranker: Reranker, kept: list[tuple[int, float]], asked: _Asked, query: str
    ) -> list[tuple[int, float]]:
        top, rest = kept[: self._reranked], kept[self._reranked :]
        texts = [asked.text(line) for line, _ in top]
        lines = [line for line, _ in top]
        opinion = dict(zip(lines, reranker.scores(query, texts), strict=True))
        other = sorted(lines, key=lambda line: opinion[line], reverse=True)
        scores = ranking.fused([lines, other], self._weights)
        best = top[0][1]
        scale = best / max(scores.values())
        front = sorted(((line, score * scale) for line, score in scores.items()), key=lambda one: -one[1])
        return [*front, *((line, min(score, front[-1][1])) for line, score in rest)]

    def facts(self, lines: Iterable[int]) -> dict[int, Fact]:
        """Where lines stand; those that are not there any more are left out."""
        wanted = list(lines)
        found: dict[int, Fact] = {}
        for begin in range(0, len(wanted), 500):
            some = wanted[begin : begin + 500]
            rows = self._db.execute(
                f"SELECT line, at, size, ts, role FROM lines WHERE line IN ({','.join('?' * len(some))})",  # noqa: S608
                some,
            )
            found |= {line: Fact(at, size, ts, _ROLES[role]) for line, at, size, ts, role in rows}
        return found

    def around(self, line: int, reach: int = 1) -> list[int]:
        """The lines next to one, in the order of the chat, that are of the same session."""
        first = line >> PLACE_BITS << PLACE_BITS
        last = first | (1 << PLACE_BITS) - 1
        before = self._db.execute(
            "SELECT line FROM lines WHERE line BETWEEN ? AND ? ORDER BY line DESC LIMIT ?",
            (first, line - 1, reach),
        ).fetchall()
        behind = self._db.execute(
            "SELECT line FROM lines WHERE line BETWEEN ? AND ? ORDER BY line LIMIT ?", (line + 1, last, reach)
        ).fetchall()
        return [row[0] for row in (*reversed(before), *behind)]

    def read(self, name: str, lines: Iterable[int]) -> dict[int, ArchiveLine]:
        """What the archive says at these places; a line that is no longer there is left out."""
        facts = self.facts(lines)
        with self._streams.open(name) as stream:
            found = {line: _read(stream, fact) for line, fact in facts.items()}
        return {line: said for line, said in found.items() if said is not None}


@dataclass(frozen=True, slots=True)
class Fact:
    at: int
    size: int
    ts: int
    role: str


def _read(stream: Stream, fact: Fact) -> ArchiveLine | None:
    line = read_line(stream.read(fact.at, fact.size))
    return line if line is not None and line.ts == fact.ts and line.role == fact.role else None


class _Asked:
    """One question to one chat."""

    def __init__(
        self,
        db: sqlite3.Connection,
        chat: Chat,
        stream: Stream,
        weights: Weights,
        *,
        ranges: tuple[tuple[int, int], ...],
        said_by: str | None,
    ) -> None:
        self._db = db
        self._chat = chat
        self._stream = stream
        self._weights = weights
        role = _ROLES.index(said_by) if said_by else None
        self._field = Field(chat.lines, chat.tokens, chat.session, ranges, role)
        self._budget = BUDGET + chat.lines // BUDGET_SHARE
        self._anchors: list[str] = []

    def ranked(self, terms: Sequence[analysis.Term]) -> list[tuple[int, float]]:
        if not terms:
            return self._of_time()
        tally = ranking.Tally(self._field, self._weights)
        self._add(tally, terms)
        tally.consider(self._rows_of_time())
        if self._weights.feedback_terms and (first := tally.best(self._weights.feedback_lines)):
            found = [(analysis.tokens(self.text(line)), score) for line, score in first]
            known = {term.token for term in terms}
            counts = self._counts(_offered(found, known))
            more = ranking.feedback(found, counts, self._field, known, self._weights)
            self._add(tally, [analysis.Term(token, weight) for token, weight in more])
        return tally.best(CANDIDATES)

    def _add(self, tally: ranking.Tally, terms: Sequence[analysis.Term]) -> None:
        for posting in self._postings(terms):
            tally.add(posting)

    def text(self, line: int) -> str:
        row = self._db.execute("SELECT at, size FROM lines WHERE line = ?", (line,)).fetchone()
        said = read_line(self._stream.read(*row)) if row else None
        return said.text if said is not None else ""

    def _rows_of_time(self) -> list[int]:
        """The newest lines of the time that was asked for, as rows without a length."""
        found: set[int] = set()
        for first, last in self._field.moments:
            found.update(
                line << ROW_BITS | role << 4
                for line, role in self._db.execute(
                    "SELECT line, role FROM lines WHERE line BETWEEN ? AND ? ORDER BY line DESC LIMIT ?",
                    (first << PLACE_BITS, (last + 1 << PLACE_BITS) - 1, CANDIDATES),
                )
            )
        return sorted(found, reverse=True)[:CANDIDATES]

    def _of_time(self) -> list[tuple[int, float]]:
        """Where the question is a time and nothing else: what was said then, the newest first."""
        rows = self._rows_of_time()
        return [(row >> ROW_BITS, 1.0 - place / (len(rows) + 1)) for place, row in enumerate(rows)]

    def _counts(self, tokens: Iterable[str]) -> dict[str, int]:
        """How many lines have each token."""
        found = {}
        for token in tokens:
            row = self._db.execute(
                "SELECT doc FROM vocabulary WHERE term = ?", (self._chat.prefix + token,)
            ).fetchone()
            found[token] = row[0] if row else 0
        return found

    def _postings(self, terms: Sequence[analysis.Term]) -> list[Posting]:
        """Rare words with all of their lines; of words that are everywhere only the lines that have a rare one too."""
        counts = self._counts(term.token for term in terms)
        found: list[Posting] = []
        common: list[analysis.Term] = []
        for term in sorted(terms, key=lambda term: counts[term.token]):
            count = counts[term.token]
            if count > self._budget:
                common.append(term)
            elif count:
                self._budget -= count
                self._anchors.append(term.token)
                found.append(
                    self._posting(term, count, self._match(term.token), self._match(f"~{term.token}"))
                )
        if common:
            found += self._common(common, counts)
        return found

    def _common(self, common: Sequence[analysis.Term], counts: dict[str, int]) -> list[Posting]:
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
            often = self._quoted(f"~{term.token}")
            rows = set(self._rows(f"({narrow}) AND {one}" if narrow else one, each))
            for first, last in self._field.moments:
                rows.update(self._rows(one, each, first, last))
            if together and term in common[:2]:
                rows.update(together)
            more = self._rows(f"({narrow}) AND {often}" if narrow else often, each)
            found.append(
                self._posting(term, counts[term.token], sorted(rows), [row for row in more if row in rows])
            )
        return found

    @staticmethod
    def _posting(term: analysis.Term, count: int, rows: Sequence[int], often: Sequence[int]) -> Posting:
        return Posting(term.weight, count, rows, often)

    def _match(self, token: str) -> list[int]:
        found = self._db.execute("SELECT rowid FROM tokens WHERE tokens MATCH ?", (self._quoted(token),))
        return [row[0] for row in found]

    def _rows(
        self, expression: str, most: int, first: int | None = None, last: int | None = None
    ) -> list[int]:
        """The newest rows that fit an expression, of these sessions."""
        low, high = self._chat.row_range()
        bits = PLACE_BITS + ROW_BITS
        low = low if first is None else first << bits
        high = high if last is None else (last + 1 << bits) - 1
        found = self._db.execute(
            "SELECT rowid FROM tokens WHERE tokens MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?",
            (expression, low, high, most),
        )
        return [row[0] for row in found]

    def _quoted(self, token: str) -> str:
        return f'"{self._chat.prefix}{token}"'


def _offered(found: Sequence[tuple[Sequence[str], float]], known: set[str]) -> list[str]:
    worth: dict[str, float] = defaultdict(float)
    for tokens, score in found:
        for token in set(tokens) - known:
            worth[token] += score
    return sorted(worth, key=lambda token: (worth[token], token), reverse=True)[:_OFFERED]
