"""Searches the archive. The search index is a separate file, which is rebuilt if somebody deletes it."""

from __future__ import annotations

import asyncio
import difflib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.archive import ArchiveLine
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey
from bot.core.archive_files import read_line
from bot.core.conversation_list import ChatQuery, ListedChats
from bot.core.event_log import EventLog
from bot.core.exports import Exporter, ExportLost
from bot.core.feature import Feature, Hooks, Runtime
from bot.features.search import analysis, index, ranking
from bot.features.search.analysis import Term, TimeRanges, time_ranges
from bot.features.search.index import speaker_token
from bot.features.search.ranking import (
    PLACE_BITS,
    ROW_BITS,
    SESSION_BITS,
    AnswerScorer,
    IndexedChat,
    LineScores,
    Postings,
    Weights,
)
from bot.tools.context import Hit, Recalled, RecallQuery

WAIT_SECONDS = 20.0  # timeout in seconds for a search to wait until the index is up to date
LIST_SECONDS = 0.2  # timeout in seconds for a list of conversations to wait until the index is up to date
REACH = 1  # number of lines before and after each hit that are returned with it
BUDGET, BUDGET_SHARE = 1_500, 160
"""Max index entries that are read for the words of a query: `BUDGET`, plus one per `BUDGET_SHARE` lines of the chat."""
CANDIDATES = 200  # max lines that one query finds in a chat
_AT_ONCE = 40  # max hits whose text is read at a time
_MOST_COMMON = 3  # max frequent words that are searched if the query also has rare words
_SHARED, _SHARED_BY = (
    200,
    200,
)  # max lines that contain a feedback term: 200, or 1/200 of the chat if that is more
_OFFERED = 20  # max words of the best lines that are considered as feedback terms
_SPEAKERS = 200  # max names that are compared with a misspelt name
_ALIKE, _SHORTEST_NAME = (
    0.65,
    4,
)  # min similarity (0 to 1) of two spellings of a name; min letters of the name
Scored = list[tuple[int, float]]
"""Numbers of lines with scores. A line's number also identifies its chat."""
T = TypeVar("T")


class QueryExecution:
    """Runs one query in one chat. Searches the query's words first, then words that the best lines share (feedback terms)."""

    def __init__(
        self, db: sqlite3.Connection, chat: IndexedChat, weights: Weights, sessions: Sequence[tuple[int, int]]
    ) -> None:
        self._db = db
        self._chat = chat
        self._weights = weights
        self._sessions = sessions
        """First and last session (inclusive) of each period that the query names."""
        self._budget = BUDGET + chat.lines // BUDGET_SHARE
        self._rare: list[str] = []
        self.named: tuple[str, ...] = ()
        """Index tokens of the speakers whom the query names."""

    def ranked(self, terms: Sequence[Term]) -> Scored:
        """Return the best lines. If the query names a period and nothing else, return the newest lines of the period."""
        timely = self._rows_of_time()
        if not terms:
            return [(row >> ROW_BITS, 1.0 - place / (len(timely) + 1)) for place, row in enumerate(timely)]
        terms = self._with_speakers(terms)
        scores = LineScores(self._chat, self._sessions, self._weights)
        self._add(scores, terms)
        scores.prefer(self._rows_of_speakers())
        scores.consider(timely)
        if self._weights.feedback_terms:
            self._add(
                scores,
                self._feedback(scores.best(self._weights.feedback_lines), {term.token for term in terms}),
            )
        return scores.best(CANDIDATES)

    def _with_speakers(self, terms: Sequence[Term]) -> list[Term]:
        """Return the terms, with lower weights for names of speakers. If all terms are names, add the speakers' tokens."""
        speakers = {term.token: self._speaker(term.token) for term in terms if len(term.token) > 1}
        named = {token: speaker for token, speaker in speakers.items() if speaker}
        self.named = tuple(dict.fromkeys(named.values()))
        found = [
            Term(term.token, term.weight * (self._weights.mentioned if term.token in named else 1.0))
            for term in terms
        ]
        alone = all(term.token in named for term in terms)
        return found + [Term(speaker) for speaker in self.named if alone]

    def _speaker(self, token: str) -> str | None:
        """Return the token of the speaker with this name. If no line has the name, use a similar name. None if nobody fits."""
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

    def _rows_of_speakers(self) -> list[int]:
        """Return the index rows of the named speakers. For a speaker with many rows, return those with a rare word of the
        query, or the newest.
        """
        found, rare = list[int](), self._any_rare()
        for token, count in self._counts(self.named).items():
            one = self._quoted(token)
            if count > BUDGET and not rare:
                found += self._newest(one, BUDGET)
            else:
                found += self._matching(one if count <= BUDGET else f"{rare} AND {one}")
        return found

    def _feedback(self, best: Scored, known: Collection[str]) -> list[Term]:
        """Return words that the best lines share and that few other lines contain."""
        worth: dict[str, float] = defaultdict(float)
        for line, score in best:
            row = self._db.execute("SELECT raw ->> '$.text' FROM lines WHERE line = ?", (line,)).fetchone()
            for token in set(analysis.tokens(str(row[0]) if row else "")).difference(known):
                # One or two characters are only part of a word. Lines that share them need not share a word.
                worth[token] += 0.0 if analysis.is_paired(token) else score
        offered = sorted(worth, key=lambda token: (worth[token], token), reverse=True)[:_OFFERED]
        # A word that is in one line finds no other line. A frequent word is slow to search, and finds unrelated lines.
        most, lines = max(_SHARED, self._chat.lines // _SHARED_BY), self._chat.lines
        gains = {
            token: worth[token] * ranking.rarity(count, lines)
            for token, count in self._counts(offered).items()
            if worth[token] and 1 < count <= most
        }
        chosen = sorted(gains, key=lambda token: (gains[token], token), reverse=True)
        return [
            Term(token, self._weights.feedback * gains[token] / gains[chosen[0]])
            for token in chosen[: self._weights.feedback_terms]
        ]

    def _rows_of_time(self) -> list[int]:
        """Return the rows of the newest lines in the requested periods. These rows have no length class."""
        newest = "SELECT line FROM lines WHERE line BETWEEN ? AND ? ORDER BY line DESC LIMIT ?"
        found = {
            line << ROW_BITS
            for first, last in self._sessions
            for (line,) in self._db.execute(
                newest, (first << PLACE_BITS, (last + 1 << PLACE_BITS) - 1, CANDIDATES)
            )
        }
        return sorted(found, reverse=True)[:CANDIDATES]

    def _add(self, scores: LineScores, terms: Sequence[Term]) -> None:
        """Score the lines of each term. If the query has rare words, frequent words count only in lines with a rare one."""
        counts = self._counts(term.token for term in terms)
        common = list[Term]()
        for term in sorted(terms, key=lambda term: counts[term.token]):
            count = counts[term.token]
            if count > self._budget:
                common.append(term)
            elif count:
                self._budget -= count
                self._rare.append(term.token)
                scores.add(Postings(term.weight, count, self._matching(self._quoted(term.token))))
        rare = self._any_rare()
        common = common[:_MOST_COMMON] if rare else common
        together = [] if rare else self._together([term.token for term in common])
        each = max(200, self._budget // (2 * len(common) or 1))
        for place, term in enumerate(common):
            one = self._quoted(term.token)
            rows = set(
                sorted(self._matching(f"{rare} AND {one}"))[-each:] if rare else self._newest(one, each)
            )
            rows.update(*(self._newest(one, each, *sessions) for sessions in self._sessions))
            rows.update(together if place < 2 else ())
            scores.add(Postings(term.weight, counts[term.token], sorted(rows)))

    def _together(self, common: Sequence[str]) -> list[int]:
        """Return rows that contain all of these frequent words, or as many as possible."""
        found: list[int] = []
        for number in range(len(common), 1, -1):
            found = self._newest(" AND ".join(map(self._quoted, common[:number])), self._budget // 4)
            if len(found) >= 100:
                break
        return found

    def _counts(self, tokens: Iterable[str]) -> dict[str, int]:
        count, found = "SELECT doc FROM vocabulary WHERE term = ?", dict[str, int]()
        for token in tokens:
            row = self._db.execute(count, (self._chat.prefix + token,)).fetchone()
            found[token] = int(row[0]) if row else 0
        return found

    def _matching(self, expression: str) -> list[int]:
        """Return all rows that match. SQLite joins them into one string, which is twice as fast as fetching rows."""
        joined = "SELECT group_concat(rowid) FROM tokens WHERE tokens MATCH ?"
        return _numbers(self._db.execute(joined, (expression,)))

    def _newest(
        self, expression: str, most: int, first: int | None = None, last: int | None = None
    ) -> list[int]:
        """Return the `most` newest rows that match, in the sessions `first` to `last`."""
        low, high = self._chat.rows
        bits = PLACE_BITS + ROW_BITS
        low = low if first is None else first << bits
        high = high if last is None else (last + 1 << bits) - 1
        joined = (
            "SELECT group_concat(rowid) FROM (SELECT rowid FROM tokens WHERE tokens MATCH ? "
            "AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)"
        )
        return _numbers(self._db.execute(joined, (expression, low, high, most)))

    def _quoted(self, token: str) -> str:
        return f'"{self._chat.prefix}{token}"'

    def _any_rare(self) -> str:
        """Return an expression that matches lines with any rare word of the query; "" if the query has no rare word."""
        return f"({' OR '.join(map(self._quoted, self._rare))})" if self._rare else ""


def _numbers(found: sqlite3.Cursor) -> list[int]:
    return json.loads(f"[{found.fetchone()[0] or ''}]")  # type: ignore[no-any-return]


def parse_query(query: str, now: int) -> tuple[TimeRanges, list[Term]]:
    """Return the periods that a query names, and its other terms."""
    times = time_ranges(query, now)
    return times, analysis.terms(times.rest)


class Finder:
    """Searches the archive lines of the given chats. All methods block and raise `sqlite3.Error`."""

    def __init__(self, db: sqlite3.Connection, *, weights: Weights = ranking.DEFAULT) -> None:
        self._db = db
        self._weights = weights

    def recall(self, names: Iterable[str], query: RecallQuery) -> Recalled:
        """Return a page of hits, best first. If a query has no term to rank (`who are you`), search for its literal text."""
        parsed = {phrasing: parse_query(phrasing, query.now) for phrasing in query.queries}
        with index.transaction(self._db, "DEFERRED"):
            chats = [
                chat
                for name in dict.fromkeys(names)
                if (chat := index.chat_named(self._db, name)) is not None
            ]
            if any(times.ranges or terms for times, terms in parsed.values()):
                # The ranks of several phrasings are merged by reciprocal rank fusion.
                rankings = [
                    _sorted(
                        place
                        for chat in chats
                        if chat.lines
                        for place in self._find(chat, phrasing, *one, query)
                    )
                    for phrasing, one in parsed.items()
                ]
                places = rankings[0] if len(rankings) == 1 else _sorted(self._fused(rankings))
            else:
                places = self._literally(chats, query)
            hits, refused = list[tuple[int, float, ArchiveLine]](), 0
            for begin in range(0, len(places), _AT_ONCE):
                some = places[begin : begin + _AT_ONCE]
                said = self._read(line for line, _ in some)
                wanted = [
                    (line, score, said[line]) for line, score in some if _is_wanted(said.get(line), query)
                ]
                hits += wanted
                refused += len(some) - len(wanted)
                if len(hits) >= query.offset + query.limit:
                    break
            page = hits[query.offset : query.offset + query.limit]
            return Recalled(self._with_neighbours(page), len(places) - refused)

    def _find(
        self, chat: IndexedChat, phrasing: str, times: TimeRanges, terms: Sequence[Term], query: RecallQuery
    ) -> Scored:
        execution = QueryExecution(self._db, chat, self._weights, self._sessions(chat, times.ranges))
        ranked = execution.ranked(terms)
        there = self._there([line for line, _ in ranked], query)
        kept = [(line, score) for line, score in ranked if line in there]
        said_by = None if execution.named else ranking.speaker_meant(phrasing) or "user"
        return self._reranked(kept, AnswerScorer(phrasing, said_by, self._weights))

    def _fused(self, rankings: Iterable[Scored]) -> Scored:
        scores: dict[int, float] = defaultdict(float)
        for ranked in rankings:
            for place, (line, _) in enumerate(ranked, 1):
                scores[line] += 1 / (self._weights.fusion + place)
        return [*scores.items()]

    def _literally(self, chats: Sequence[IndexedChat], query: RecallQuery) -> Scored:
        """Return the lines that literally contain the first phrasing, newest first."""
        asked = text.clean(next(iter(query.queries), "").strip()[:200]).casefold()
        found = list[int]()
        for chat in chats if asked else ():
            first, last = chat.rows
            rows = self._db.execute(
                "SELECT line FROM lines WHERE line BETWEEN ? AND ? AND instr(lower(raw), ?)",
                (first >> ROW_BITS, last >> ROW_BITS, json.dumps(asked, ensure_ascii=False)[1:-1]),
            )
            found += [line for (line,) in rows]
        said = self._read(self._there(found, query))
        newest = sorted(said, key=lambda line: said[line].ts, reverse=True)
        return [(line, 0.0) for line in newest if asked in said[line].text.casefold()]

    def _sessions(self, chat: IndexedChat, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        found = [
            self._db.execute(
                "SELECT min(id), max(id) FROM sessions WHERE id BETWEEN ? AND ? AND last_ts >= ? AND first_ts < ?",
                (chat.first_session, chat.first_session | (1 << SESSION_BITS) - 1, *times),
            ).fetchone()
            for times in ranges
        ]
        return [row for row in found if row[0] is not None]

    def _reranked(self, ranked: Scored, scorer: AnswerScorer) -> Scored:
        """Raise the scores of lines whose content fits the query. Put lines that repeat a better line's text last."""
        said = self._read(line for line, _ in ranked[: self._weights.looked])
        seen, found, repeated = set[str](), list[tuple[int, float]](), list[int]()
        for line, score in ranked:
            if (one := said.get(line)) is None:
                found.append((line, score))
            elif (words := one.text.strip().casefold()) in seen:
                repeated.append(line)
            else:
                seen.add(words)
                found.append((line, score + ranked[0][1] * scorer.score(one.text, one.role)))
        found = _sorted(found)
        return found + [(line, found[-1][1]) for line in repeated]

    def _there(self, lines: Sequence[int], query: RecallQuery) -> set[int]:
        """Return those of `lines` that exist and have the requested role and time."""
        found = self._db.execute(
            "SELECT line FROM json_each(?1) CROSS JOIN lines ON line = value "
            "WHERE role = ifnull(?2, role) AND ts < ifnull(?3, ts + 1) AND ts >= ifnull(?4, ts)",
            (json.dumps(sorted(lines)), query.role, query.before, query.after),
        )
        return {line for (line,) in found}

    def _read(self, lines: Iterable[int]) -> dict[int, ArchiveLine]:
        rows = self._db.execute(
            "SELECT line, raw FROM json_each(?) CROSS JOIN lines ON line = value",
            (json.dumps(sorted(lines)),),
        )
        return {line: said for line, raw in rows if (said := read_line(raw.encode())) is not None}

    def _with_neighbours(self, page: Sequence[tuple[int, float, ArchiveLine]]) -> list[Hit]:
        near = {
            line: [
                one
                for one in range(line - REACH, line + REACH + 1)
                if one != line and one >> PLACE_BITS == line >> PLACE_BITS
            ]
            for line, _, _ in page
        }
        said = self._read({one for some in near.values() for one in some})
        return [
            Hit(one, score, tuple(said[beside] for beside in near[line] if beside in said))
            for line, score, one in page
        ]


def _sorted(found: Iterable[tuple[int, float]]) -> Scored:
    return sorted(found, key=lambda one: (one[1], one[0]), reverse=True)


def _is_wanted(line: ArchiveLine | None, query: RecallQuery) -> bool:
    if line is None or (query.skip and query.skip(line)):
        return False
    return not query.keyword or query.keyword.casefold() in line.text.casefold()


class Search:
    """Implements `tools.context.Recalls` with the search index in the file `path`."""

    def __init__(
        self,
        path: Path,
        event_log: EventLog,
        *,
        clock: Clock,
        log: OperatorLog,
        wait: float | None = WAIT_SECONDS,
    ) -> None:
        self.index = index.SearchIndex(path, event_log)
        self.exporter = Exporter(self.index, event_log, clock=clock, log=log)
        self._wait = wait
        self._clock = clock

    async def recall(self, chat_keys: Sequence[ChatKey], query: RecallQuery) -> Recalled:
        names = [str(key) for key in chat_keys]
        found, complete = await self._asked(lambda db: Finder(db).recall(names, query))
        return replace(found, complete=complete)

    async def listed(self, query: ChatQuery) -> ListedChats:
        work = partial(index.listed, query=query, monotonic=self._clock.monotonic)
        found, complete = await self._asked(work, LIST_SECONDS)
        return replace(found, complete=complete)

    async def _asked(
        self, work: Callable[[sqlite3.Connection], T], wait: float | None = None
    ) -> tuple[T, bool]:
        """Return the result of `work` on the index, and True if the index was up to date."""
        complete = await self.caught_up(wait)
        try:
            return await self.index.run(work), complete
        except ExportLost:
            self.exporter.rewrite()
            complete = await self.caught_up(wait)
            return await self.index.run(work), complete

    async def kept(self, channel: str) -> list[ChatKey]:
        await self.caught_up()
        return await self.index.run(partial(index.chats_of, channel=channel))

    async def saying(self, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
        await self.caught_up()
        return await self.index.run(partial(index.chats_saying, chat=chat, words=words))

    async def rebuild(self) -> tuple[int, int]:
        """Rebuild the index. Return the numbers of indexed chats and lines. Raises `errors.StorageError`."""
        with suppress(ExportLost):
            await self.index.run(index.make_anew)
        self.exporter.rewrite()
        await self.exporter.flush()
        await self.index.sync()
        return await self.index.run(index.counted)

    async def caught_up(self, wait: float | None = None) -> bool:
        """Wait at most `wait` seconds until all appended events are indexed. Return False if events are still missing."""
        try:
            async with asyncio.timeout(wait or self._wait):
                await self.exporter.flush()
            await self.index.sync()
        except (TimeoutError, errors.StorageError):
            return False
        return True


def _build(runtime: Runtime) -> Hooks:
    path = runtime.settings.home / index.FILE
    search = Search(path, runtime.event_log, clock=runtime.clock, log=runtime.log)
    return Hooks(ports={"recall": search}, exports=(search.exporter,))


FEATURE = Feature("search", _build)
