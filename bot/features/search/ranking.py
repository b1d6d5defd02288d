"""Scores how well the form of a line fits the query: who is speaking ("what did I say" versus "what did you
recommend"), first person, and numbers.
"""

from __future__ import annotations

import heapq
import math
import re
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
"""Bits of a line's number that encode the place in the session."""
ROW_BITS = 4
"""Bits of a row that encode the length class."""
CENTRES = 100
"""Number of best lines whose neighbouring lines are scored too."""
_WIDE = 10  # max lines examined per returned line, to find lines with different scores
_CLASS = (1 << ROW_BITS) - 1
_PLACE = (1 << PLACE_BITS) - 1
_SESSION = ROW_BITS + PLACE_BITS
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Number of tokens that each length class represents."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Tuning parameters of the ranking."""

    k1: float = 1.0
    """Weight of term frequency (BM25)."""
    b: float = 0.45
    """Strength of the penalty for long lines (BM25)."""
    neighbour: float = 0.38
    """Share of the score of an adjacent line that is added to a line's score."""
    session: float = 0.4
    """Share of the score of its session that is added to a line's score."""
    session_k: float = 1.5
    """Number of matching lines for which a session gets half of its max score."""
    moment: float = 0.9
    """Bonus for a line of the requested time, as a share of the best score."""
    named: float = 0.5
    """Bonus for a line written by the named person, as a share of the best score."""
    mentioned: float = 0.5
    """Weight of a speaker's name as a search word. The weight is low because people rarely write their own name."""
    single: float = 0.75
    """Weight of single characters in scripts without spaces, when pairs of characters are searched too."""
    feedback_lines: int = 2
    """Number of best lines from which feedback terms are taken."""
    feedback_terms: int = 3
    """Max number of feedback terms."""
    feedback: float = 0.12
    """Weight of the best feedback term."""
    alike: int = 16
    """Max lines with the same score before lines with a lower score; equal scores are often repetitions of one text."""
    looked: int = 40
    """Number of best lines that are re-ranked by content."""
    speaker: float = 0.2
    """Bonus for a line of the role that the query asks about, as a share of the best score."""
    first_person: float = 0.1
    """Bonus for a line in the first person, as a share of the best score."""
    number: float = 0.2
    """Bonus for a line with a number if the query asks for a number, as a share of the best score."""
    fusion: float = 10.0
    """Constant of reciprocal rank fusion; a smaller value favours the top ranks."""


DEFAULT = Weights()


@dataclass(frozen=True, slots=True)
class Postings:
    """The lines that match a term. `count` is the number of all lines with the term; `rows` may be only a selection."""

    weight: float
    count: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Totals of a chat. `session_ranges` are the first and last sessions (inclusive) of the requested time."""

    lines: int
    tokens: int
    sessions: int
    session_ranges: tuple[tuple[int, int], ...] = ()


def length_class(tokens: int) -> int:
    """Return the length class (0 to 15) for a number of tokens."""
    return min(bisect_left(LENGTHS, tokens), len(LENGTHS) - 1)


def rarity(count: int, total: int) -> float:
    """Return the inverse document frequency of BM25; it is never negative."""
    return math.log(1 + (max(total, count) - count + 0.5) / (count + 0.5))


class LineScores:
    """Scores of the lines of one chat. Terms are added one at a time, in any order."""

    def __init__(self, stats: CorpusStats, weights: Weights = DEFAULT) -> None:
        self._stats = stats
        self._weights = weights
        self._own: dict[int, float] = {}
        self._named: set[int] = set()
        # For each posting: its value for a session, and its number of lines per session.
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
        """Add lines of the requested time, even if they contain no word of the query."""
        for row in rows:
            self._own.setdefault(row >> ROW_BITS, 0.0)

    def prefer(self, rows: Iterable[int]) -> None:
        """Raise the scores of lines written by a person whom the query names."""
        self._named.update(row >> ROW_BITS for row in rows)

    def best(self, most: int) -> list[tuple[int, float]]:
        """Return the best lines with their scores. A line's total score is its own score plus shares of the
        scores of adjacent lines and of the session.
        """
        lines = self._foremost(most)
        scores = self._favoured(self._whole(self._with_neighbours(lines[:CENTRES]).union(lines)))
        # Lines with equal scores are sorted newest first, so that the order is deterministic.
        order = sorted(scores, reverse=True)
        order.sort(key=scores.__getitem__, reverse=True)
        return [(line, scores[line]) for line in order[:most]]

    def _foremost(self, most: int) -> list[int]:
        """Return the lines with the best own scores. The number of lines with an equal score is limited,
        because such lines often repeat one text.
        """
        own, alike = self._own, self._weights.alike
        if most <= alike or len(own) <= most:
            least = min(heapq.nlargest(most, own.values()), default=0.0)
            found = [line for line, score in own.items() if score >= least]
            found.sort(key=own.__getitem__, reverse=True)
            return found[:most]
        groups: dict[float, list[int]] = {}
        left, enough = most * _WIDE, 0
        # There are few different scores, because equal length and equal words give equal scores.
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
        """Return the scores of sessions. Further matches of the same word add less and less."""
        k, found = self._weights.session_k, dict.fromkeys(sessions, 0.0)
        for worth, counts in self._sessions:
            for session in sessions & counts.keys():
                count = counts[session]
                found[session] += worth * count / (count + k)
        share = self._weights.session
        return {session: share * score for session, score in found.items()}

    def _favoured(self, scores: dict[int, float]) -> dict[int, float]:
        """Return the scores with the bonuses for the named person and the requested time."""
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
    """Return feedback terms: words that the best lines share and other lines lack.

    `found` contains the tokens and the score of each of the best lines. `counts` contains the number of lines
    with each token.
    """
    worth: dict[str, float] = defaultdict(float)
    for tokens, score in found:
        for token in set(tokens):
            worth[token] += score
    known = set(known)
    # A word found in one line only says nothing about other lines; a frequent word does not distinguish lines.
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
    """Merge rankings by reciprocal rank fusion, which ignores the scores."""
    scores: dict[T, float] = defaultdict(float)
    for ranking in rankings:
        for place, found in enumerate(ranking, 1):
            scores[found] += 1 / (weights.fusion + place)
    return dict(scores)


LONGEST = 4_000
"""Max characters examined of a line and of a query."""
_YOU = re.compile(
    r"\byou(?:'ve|'d)?\s(?:\w+\s){0,2}?(?:recommend|suggest|t[eo]ll?d?\b|sa(?:y|id)\b|advis|propos|mention|expla|g[ia]ve|"
    r"wr[io]te|answer|show|promis|offer)"
    r"|\byour\s(?:\w+\s)?(?:recommend|suggest|advice|answer|reply|propos|expla|idea|tip)"
    r"|[你您](?:[给給帮幫对對跟]我|[^我，,。?？]){0,6}?(?:推荐|推薦|建议|建議|说|說|告诉|告訴|回答|提到|提过|讲|講|解释|解釋|列)"
    r"|(?:あなた|きみ|君)[^私、。?？]{0,8}(?:言|勧|すす|提案|教え|答え)|(?:勧め|すすめ|提案し|教え)て(?:くれ|もら)",
    re.IGNORECASE,
)
_ME = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|[我咱俺私僕]|自分|うち", re.IGNORECASE)


def speaker_meant(query: str) -> str | None:
    """Return whose words a query asks about, `user` or `assistant`; None if the query does not say. Never raises."""
    text = query[:LONGEST].replace("\u2019", "'")
    if _YOU.search(text):
        return "assistant"
    return "user" if _ME.search(text) else None


_LONG = 160  # min characters of a long line, which is never counted as being about one person
# In English the subject may be omitted: "Finally bought a boat", "Back from Rome".
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|me|my|mine|we|us|our)\b|[我咱俺私僕]|うち"
    r"|^(?:(?:just|finally|only|again|well|so|and|then)[\s,]{1,3}){0,3}(?!\w*thing\b|morning|evening)(?:[a-z]{2,20}(?:ed|ing)|made|went|got|had|saw|bought|"
    r"took|came|ate|ran|met|gave|found|spent|won|lost|left|began|wrote|drove|flew|back|done)\b",
    re.IGNORECASE,
)
# "My sister works in a mill" is not about the speaker; "I work for my sister" is.
_PERSON = (
    "mother|mum|mom|father|dad|parents?|grand(?:ma|pa|mother|father|parents|son|daughter)|sister|brother|son|daughter|kid|child|"
    "children|wife|husband|partner|aunt|uncle|cousin|niece|nephew|friend|neighbou?r|colleague|co-?worker|boss|flatmate|roommate"
)
_PERSON_EAST = "妈妈|媽媽|爸爸|妈|媽|爸|爷爷|爺爺|奶奶|外公|外婆|姐|妹|哥|弟|叔|姑|舅|姨|儿子|兒子|女儿|女兒|老婆|老公|妻子|丈夫|同事|邻居|鄰居|朋友|老板|老闆|孩子"
_SOMEBODY = re.compile(
    rf"\b(?:my|our|his|her|their|the|an?|some)\s(?:\w+\s)?(?:{_PERSON})s?\b|\b(?:some|every|no)(?:one|body)\b|\bpeople\b"
    rf"|{_PERSON_EAST}|有人|大家|隔壁"
    r"|(?:[母父兄弟姉妹娘妻夫]|息子|叔父|叔母|祖父|祖母|同僚|友人|友達|上司|子ども|みんな|隣の人)[はがのも]|という人",
    re.IGNORECASE,
)
_MYSELF = re.compile(rf"\b(?:i|i'm|i've|we|we've|us)\b|^[我私](?!の|{_PERSON_EAST})", re.IGNORECASE)
_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千]")
_ASKS_NUMBER = re.compile(
    r"\bhow (?:much|many|long|fast|old|heavy|warm|far|often|big|tall)\b|\b(?:what time|when|which day|number|price|costs?|"
    r"code|version|port|deadline|date|address|amount|size)\b"
    r"|多少|多久|多长|多長|几点|幾點|几个|幾個|几号|幾號|号码|號碼|什么时间|什么时候|什麼時候|哪天|哪年|日期|代码|代碼|版本|端口|价格|價格"
    r"|いくら|いくつ|何(?:[時分日月年人個回歳円番度本枚]|曜日)|番号|いつ|日付",
    re.IGNORECASE,
)


class AnswerScorer:
    """Scores lines for one query by their form; the score is added to the score for shared words. Has no
    side effects and never raises.
    """

    def __init__(self, query: str, said_by: str | None, weights: Weights) -> None:
        """Create a scorer. `said_by` is the role whose words the query asks about; None if the query names a person."""
        self._others = _SOMEBODY.search(query[:LONGEST]) is not None
        self._number = _ASKS_NUMBER.search(query[:LONGEST]) is not None
        self._said_by = said_by
        self._weights = weights

    def score(self, text: str, role: str) -> float:
        """Return the score of a line, as a share of the best line's score."""
        text = text[:LONGEST].strip()
        weights = self._weights
        worth = weights.speaker if role == self._said_by else 0.0
        if _FIRST_PERSON.search(text) and (self._others or not _of_others(text)):
            worth += weights.first_person
        if self._number and _NUMBER.search(text):
            worth += weights.number
        return worth


def _of_others(text: str) -> bool:
    """Return True if a line is about somebody other than its author. A long line is about many things, so it
    never counts.
    """
    return len(text) < _LONG and _SOMEBODY.search(text) is not None and _MYSELF.search(text) is None
