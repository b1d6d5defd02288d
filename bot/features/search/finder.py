"""Finds archive lines in the index by the terms, speakers and times of a query, one chat at a time. All
functions block and raise `sqlite3.Error`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from bot import text
from bot.contracts.archive import ArchiveLine
from bot.core.archive.window import read_line
from bot.features.search import analysis, ranking
from bot.features.search.index import IndexedChat, chat_named, transaction
from bot.features.search.line_features import AnswerScorer, speaker_meant
from bot.features.search.query_execution import Counts, QueryExecution
from bot.features.search.ranking import PLACE_BITS, ROW_BITS, Weights
from bot.features.search.time_ranges import TimeRanges, time_ranges
from bot.tools.ports import Hit, Recalled, RecallQuery

REACH = 1
"""Number of neighbouring lines returned before and after each hit."""
_AT_ONCE = 40  # max lines read at once


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line found in the index: its number (which implies the chat), its score, and its content if already read."""

    line: int
    score: float = field(compare=False)
    said: ArchiveLine | None = field(default=None, compare=False)


@lru_cache(maxsize=4)
def parse_query(
    query: str, now: int, single: float = ranking.DEFAULT.single
) -> tuple[TimeRanges, tuple[analysis.Term, ...]]:
    """Return the times that a query names, and the query's other terms. Results are cached."""
    times = time_ranges(query, now)
    return times, tuple(analysis.terms(times.rest, single=single))


class Finder:
    """Searches the lines of the given chats only."""

    def __init__(self, db: sqlite3.Connection, *, weights: Weights = ranking.DEFAULT) -> None:
        self._db = db
        self._weights = weights
        self._known = Counts(db)

    def recall(self, names: Iterable[str], query: RecallQuery) -> Recalled:
        """Return the requested page of hits, best first, each with its neighbouring lines. A query without
        rankable terms, such as `who are you`, is searched literally.
        """
        with transaction(self._db, "DEFERRED"):
            chats = [
                chat for name in dict.fromkeys(names) if (chat := chat_named(self._db, name)) is not None
            ]
            if any(_says_something(phrasing, query.now) for phrasing in query.queries):
                places = self._found(chats, query)
            else:
                places = self._literally(chats, query)
            taken: list[tuple[FoundLine, ArchiveLine]] = []
            refused = 0
            for begin in range(0, len(places), _AT_ONCE):
                some = places[begin : begin + _AT_ONCE]
                said = self._read(place.line for place in some if place.said is None)
                for place in some:
                    line = place.said or said.get(place.line)
                    if line is None or not _wanted(line, query):
                        refused += 1
                    else:
                        taken.append((place, line))
                if len(taken) >= query.offset + query.limit:
                    break
            page = taken[query.offset : query.offset + query.limit]
            return Recalled(self._with_neighbours(page), len(places) - refused)

    def _found(self, chats: Sequence[IndexedChat], query: RecallQuery) -> list[FoundLine]:
        """Return the best lines, best first: at most `CANDIDATES` lines per chat and phrasing. The results
        of several phrasings are merged by reciprocal rank fusion.
        """
        rankings = [
            _sorted(place for chat in chats if chat.lines for place in self._find(chat, phrasing, query))
            for phrasing in dict.fromkeys(query.queries)
        ]
        if len(rankings) == 1:
            return rankings[0]
        scores = ranking.fused(rankings, self._weights)
        read = {place.line: place.said for ranked in rankings for place in ranked if place.said is not None}
        return _sorted(
            replace(place, score=score, said=read.get(place.line)) for place, score in scores.items()
        )

    def _find(self, chat: IndexedChat, phrasing: str, query: RecallQuery) -> list[FoundLine]:
        times, terms = parse_query(phrasing, query.now, self._weights.single)
        ranges = self._sessions(chat, times.ranges)
        execution = QueryExecution(self._known, chat, self._weights, ranges=ranges)
        ranked = execution.ranked(terms)
        there = self._there([line for line, _ in ranked], query)
        kept = [(line, score) for line, score in ranked if line in there]
        read = self._read(line for line, _ in kept[: self._weights.looked])
        said_by = None if execution.named else speaker_meant(phrasing) or "user"
        kept = self._looked_at(kept, read, AnswerScorer(phrasing, said_by, self._weights))
        return [FoundLine(line, score, read.get(line)) for line, score in kept]

    def _literally(self, chats: Sequence[IndexedChat], query: RecallQuery) -> list[FoundLine]:
        """Return the lines that contain the first phrasing literally, newest first."""
        asked = text.clean(next(iter(query.queries), "").strip()[:200]).casefold()
        found = list[int]()
        for chat in chats if asked else ():
            first, last = chat.row_range()
            rows = self._db.execute(
                "SELECT line FROM lines WHERE line BETWEEN ? AND ? AND instr(lower(raw), ?)",
                (first >> ROW_BITS, last >> ROW_BITS, json.dumps(asked, ensure_ascii=False)[1:-1]),
            )
            found += [line for (line,) in rows]
        there = self._there(found, query)
        read = self._read(there)
        newest = sorted(read.items(), key=lambda one: one[1].ts, reverse=True)
        return [FoundLine(line, 0.0, said) for line, said in newest if asked in said.text.casefold()]

    def _sessions(self, chat: IndexedChat, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Return the ranges of sessions that lie in these ranges of time."""
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
        """Return the lines re-ranked by their content. Lines that repeat the text of a better line come last."""
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

    def _there(self, lines: Sequence[int], query: RecallQuery) -> set[int]:
        """Return those lines that exist and have the requested role and time."""
        found = self._db.execute(
            "SELECT line FROM json_each(?1) CROSS JOIN lines ON line = value "
            "WHERE role = ifnull(?2, role) AND ts < ifnull(?3, ts + 1) AND ts >= ifnull(?4, ts)",
            (json.dumps(sorted(lines)), query.role, query.before, query.after),
        )
        return {line for (line,) in found}

    def _read(self, lines: Iterable[int]) -> dict[int, ArchiveLine]:
        """Return the archive lines with these numbers; lines that do not exist are left out."""
        rows = self._db.execute(
            "SELECT line, raw FROM json_each(?) CROSS JOIN lines ON line = value",
            (json.dumps(sorted(lines)),),
        )
        return {line: said for line, raw in rows if (said := read_line(raw.encode())) is not None}

    def _with_neighbours(self, page: Sequence[tuple[FoundLine, ArchiveLine]]) -> list[Hit]:
        near = {
            place.line: [
                one
                for one in range(place.line - REACH, place.line + REACH + 1)
                if one != place.line and one >> PLACE_BITS == place.line >> PLACE_BITS
            ]
            for place, _ in page
        }
        said = self._read({one for some in near.values() for one in some})
        return [
            Hit(line, place.score, tuple(said[one] for one in near[place.line] if one in said))
            for place, line in page
        ]


def _sorted(found: Iterable[FoundLine]) -> list[FoundLine]:
    """Return the lines sorted by score; lines with equal scores are sorted newest first."""
    return sorted(found, key=lambda place: (place.score, place.line), reverse=True)


def _wanted(line: ArchiveLine, query: RecallQuery) -> bool:
    return (not query.keyword or query.keyword.casefold() in line.text.casefold()) and not (
        query.skip and query.skip(line)
    )


def _says_something(phrasing: str, now: int) -> bool:
    times, terms = parse_query(phrasing, now)
    return bool(times.ranges) or bool(terms)
