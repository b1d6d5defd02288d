"""Asks the search index for the lines of chats that fit words, times and people. Blocking; raises `sqlite3.Error` and `OSError`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import NamedTuple

from bot.contracts.archive import ArchiveLine
from bot.core.archive.window import read_line
from bot.history.search import analysis, ranking
from bot.history.search.chat_indexer import ROLES, IndexedChat
from bot.history.search.index import chat_named
from bot.history.search.line_features import AnswerScorer, speaker_meant
from bot.history.search.query_execution import Counts, QueryExecution
from bot.history.search.ranking import PLACE_BITS, Weights
from bot.history.search.streams import Stream, Streams
from bot.history.search.time_ranges import TimeRanges, time_ranges


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question to the index, in one phrasing or several. `now` (milliseconds) and `zone` are those of the question; the
    rest narrows as in `contracts.archive.HistoryQuery`.
    """

    queries: tuple[str, ...]
    now: int
    zone: tzinfo = UTC
    role: str | None = None
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line that was found: the name of its chat, its number, its score; what it says, where it was read already."""

    name: str
    line: int
    score: float = field(compare=False)
    said: ArchiveLine | None = field(default=None, compare=False)


@lru_cache(maxsize=4)
def parse_query(
    query: str, now: int, zone: tzinfo = UTC, single: float = ranking.DEFAULT.single
) -> tuple[TimeRanges, tuple[analysis.Term, ...]]:
    """The times that a question speaks of, and what else it looks for. Remembered: it is asked for more than once."""
    times = time_ranges(query, now, zone)
    return times, tuple(analysis.terms(times.rest, single=single))


class Finder:
    """Finds lines of the chats that it is told, and of no other."""

    def __init__(
        self,
        db: sqlite3.Connection,
        streams: Streams,
        *,
        weights: Weights = ranking.DEFAULT,
    ) -> None:
        self._db = db
        self._streams = streams
        self._weights = weights
        self._known = Counts(db)

    def find(self, names: Iterable[str], query: SearchQuery) -> list[FoundLine]:
        """The lines that answer best, best first; `CANDIDATES` of a chat at the most for each phrasing. Several are fused
        by reciprocal rank.
        """
        names = list(dict.fromkeys(names))
        rankings = [self._ranked(names, phrasing, query) for phrasing in dict.fromkeys(query.queries)]
        if len(rankings) == 1:
            return rankings[0]
        scores = ranking.fused(rankings, self._weights)
        read = {place: place.said for ranked in rankings for place in ranked if place.said is not None}
        return _sorted(replace(place, score=score, said=read.get(place)) for place, score in scores.items())

    def _ranked(self, names: Iterable[str], phrasing: str, query: SearchQuery) -> list[FoundLine]:
        return _sorted(place for name in names for place in self._find(name, phrasing, query))

    def _find(self, name: str, phrasing: str, query: SearchQuery) -> list[FoundLine]:
        chat = chat_named(self._db, name)
        if chat is None or not chat.lines:
            return []
        times, terms = parse_query(phrasing, query.now, query.zone, self._weights.single)
        with self._streams.open(name) as stream:
            ranges = self._sessions(chat, times.ranges)
            execution = QueryExecution(self._known, chat, stream, self._weights, ranges=ranges)
            ranked = execution.ranked(terms)
            there = self._there([line for line, _ in ranked], query)
            kept = [(line, score) for line, score in ranked if line in there]
            facts = self.facts(line for line, _ in kept[: self._weights.looked])
            best = {line: _read(stream, fact) for line, fact in facts.items()}
            # One that can no longer be read is left out.
            read = {line: said for line, said in best.items() if said is not None}
            said_by = None if execution.named else speaker_meant(phrasing) or "user"
            scorer = AnswerScorer(phrasing, said_by, self._weights)
            kept = self._looked_at(kept, read, scorer)
        return [FoundLine(name, line, score, read.get(line)) for line, score in kept]

    def _sessions(self, chat: IndexedChat, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
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

    @staticmethod
    def _looked_at(
        kept: list[tuple[int, float]], read: Mapping[int, ArchiveLine], scorer: AnswerScorer
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
            found.append((line, score + kept[0][1] * scorer.score(said.text, said.role)))
        found.sort(key=lambda one: (one[1], one[0]), reverse=True)
        return found + [(line, found[-1][1]) for line in again]

    def _there(self, lines: Sequence[int], query: SearchQuery) -> set[int]:
        """Those of the lines that are there, and of the role and time that were asked for."""
        select, wanted = "SELECT group_concat(line) FROM json_each(?) CROSS JOIN lines ON line = value", ""
        narrowed: list[str | int] = [json.dumps(sorted(lines))]
        for condition, value in (
            ("role = ?", query.role and ROLES.index(query.role)),
            ("ts < ?", query.before),
            ("ts >= ?", query.after),
        ):
            if value is not None:
                wanted += f" {'AND' if wanted else 'WHERE'} {condition}"
                narrowed.append(value)
        found = self._db.execute(select + wanted, narrowed).fetchone()[0]
        return set(json.loads(f"[{found or ''}]"))

    def facts(self, lines: Iterable[int]) -> dict[int, Fact]:
        """Return the facts of lines; those that are gone are left out."""
        rows = self._db.execute(
            "SELECT at, size, ts, role, line FROM json_each(?) CROSS JOIN lines ON line = value",
            (json.dumps(sorted(lines)),),
        )
        return {row[4]: Fact._make(row) for row in rows}

    @staticmethod
    def around(line: int, reach: int = 1) -> list[int]:
        """The places next to a line, in the order of the chat, that are of the same session; some may be empty."""
        near = (*range(line - reach, line), *range(line + 1, line + reach + 1))
        return [one for one in near if one >> PLACE_BITS == line >> PLACE_BITS]

    def read(self, name: str, lines: Iterable[int]) -> dict[int, ArchiveLine]:
        """Read the archive lines at these places; a line that is gone is left out."""
        facts = self.facts(wanted) if (wanted := list(lines)) else {}
        if not facts:
            return {}
        with self._streams.open(name) as stream:
            found = {line: _read(stream, fact) for line, fact in facts.items()}
        return {line: said for line, said in found.items() if said is not None}


def _sorted(found: Iterable[FoundLine]) -> list[FoundLine]:
    """Best first; of lines that are as good the newer one."""
    return sorted(found, key=lambda place: (place.score, place.name, place.line), reverse=True)


class Fact(NamedTuple):
    """Position of a line in its stream, its time and its role (an index into `ROLES`)."""

    at: int
    size: int
    ts: int
    role: int
    line: int


def _read(stream: Stream, fact: Fact) -> ArchiveLine | None:
    line = read_line(stream.read(fact.at, fact.size))
    return line if line is not None and line.ts == fact.ts and line.role == ROLES[fact.role] else None
