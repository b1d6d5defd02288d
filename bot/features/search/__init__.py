"""Search in the archive. The search index is a separate file and is rebuilt if deleted."""

from __future__ import annotations

import asyncio
import difflib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.archive import ArchiveLine
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.archive_files import read_line
from bot.core.event_log import EventLog
from bot.core.exports import Exporter, ExportLost
from bot.core.feature import Feature, Hooks, Runtime
from bot.features.search import analysis, index, ranking
from bot.features.search.analysis import TimeRanges, time_ranges
from bot.features.search.index import FILE, IndexedChat, SearchIndex, chat_named, speaker_token, transaction
from bot.features.search.ranking import (
    PLACE_BITS,
    ROW_BITS,
    AnswerScorer,
    CorpusStats,
    Postings,
    Weights,
    speaker_meant,
)
from bot.tools.ports import ChatQuery, Hit, ListedChats, Recalled, RecallQuery

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


WAIT_SECONDS = 20.0
"""Timeout in seconds for a search that waits until the index is up to date."""
LIST_SECONDS = 0.2
"""Timeout in seconds for a list of conversations that waits until the index is up to date."""
T = TypeVar("T")


class Search:
    """Implements `tools.ports.Recalls` with the index in the file `path`; None keeps the index in memory."""

    def __init__(
        self,
        path: Path | None,
        event_log: EventLog,
        *,
        clock: Clock,
        log: OperatorLog,
        wait: float | None = WAIT_SECONDS,
    ) -> None:
        self.index = SearchIndex(path, event_log)
        self.exporter = Exporter(self.index, event_log, clock=clock, log=log)
        self._wait = wait
        self._clock = clock
        self._finder: tuple[sqlite3.Connection, Finder] | None = None

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        """See `tools.ports.Recalls.recall`."""
        names = [str(key) for key in chat_keys]
        found, complete = await self._asked(partial(self._recalled, names, query))
        return Recalled(found.hits, found.total, complete)

    async def listed(self, query: ChatQuery) -> ListedChats:
        """See `tools.ports.Recalls.listed`."""
        work = partial(index.listed, query=query, monotonic=self._clock.monotonic)
        found, complete = await self._asked(work, LIST_SECONDS)
        return replace(found, complete=complete)

    async def _asked(
        self, work: Callable[[sqlite3.Connection], T], wait: float | None = None
    ) -> tuple[T, bool]:
        """Return the result of this work, and whether the index is up to date."""
        complete = await self.caught_up(wait)
        try:
            return await self.index.run(work), complete
        except ExportLost:
            self.exporter.rewrite()
            complete = await self.caught_up(wait)
            return await self.index.run(work), complete

    def _recalled(self, names: Sequence[str], query: RecallQuery, db: sqlite3.Connection) -> Recalled:
        if self._finder is None or self._finder[0] is not db:
            self._finder = db, Finder(db)
        return self._finder[1].recall(names, query)

    async def kept(self, channel: str) -> list[ChatKey]:
        """See `tools.ports.Recalls.kept`."""
        await self.caught_up()
        return await self.index.run(partial(index.chats_of, channel=channel))

    async def saying(self, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
        """See `tools.ports.Recalls.saying`."""
        await self.caught_up()
        return await self.index.run(partial(index.chats_saying, chat=chat, words=words))

    async def rebuild(self) -> tuple[int, int]:
        """Rebuild the index; return the numbers of indexed chats and lines. Raises `errors.StorageError`."""
        with suppress(ExportLost):
            await self.index.run(index.make_anew)
        self.exporter.rewrite()
        await self.exporter.flush()
        await self.index.sync()
        return await self.index.run(index.counted)

    async def caught_up(self, wait: float | None = None) -> bool:
        """Wait until everything appended so far is indexed, at most `wait` seconds. Returns False after the timeout or if the disk fails."""
        try:
            async with asyncio.timeout(wait or self._wait):
                await self.exporter.flush()
            await self.index.sync()
        except (TimeoutError, errors.StorageError):
            return False
        return True


def _build(runtime: Runtime) -> Hooks:
    search = Search(
        runtime.configuration.home / FILE, runtime.event_log, clock=runtime.clock, log=runtime.log
    )
    return Hooks(ports={"recall": search}, exports=(search.exporter,))


FEATURE = Feature("search", _build)
