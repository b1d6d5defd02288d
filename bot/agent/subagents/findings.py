"""Compares the results of several tasks by rules alone: key findings, confidence, agreement, conflict, coverage."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bot import text

Status = Literal["whole", "cut", "silent", "failed"]

MOST = 5
"""Key findings of one result."""
LENGTH = 300
"""Characters of one."""
BASE, LEAST_SURE, MOST_SURE = 3, 1, 5
SAME, ALIKE = 0.9, 0.75
"""The part of their words that two findings share that say the same, or speak of the same."""

_BULLET = re.compile(r"^[-*•・–] ?(?=\S)(.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"^(?:\d{1,2}[.)、．]|[一二三四五六七八九十]、) ?(?=\S)(.+)$", re.MULTILINE)
_CONCLUSION = re.compile(
    r"(?:\b(?:conclu(?:ded?|sion)|found|discovered|determined)\b[^:：\n]{0,40}|结论|結論|发现|発見)[:：] ?([^.。\n]+)",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"\bunable to\b|\bcould ?n[o’']t find\b|\bcould not find\b|未找到|没有找到|見つかりません", re.IGNORECASE
)
_SURE = re.compile(
    r"(?<!not )(?<!never )(?<!n't )\b(?:successfully|confirmed)\b|已确认|確認済み", re.IGNORECASE
)
_NEGATION = re.compile(r"\b(?:no|not|never|none|without|cannot|\w+n[’']t)\b", re.IGNORECASE)
_NEGATION_INSIDE = re.compile(r"没有|不|没|未|無|ない|ません")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one task. `content` is its summary, or why there is none; `errors` counts failed calls."""

    call_id: str
    label: str
    task: str
    content: str
    status: Status
    tools_used: tuple[str, ...] = ()
    errors: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """One result with what it comes to. `number` counts from 1; `unique` is what no other result says."""

    number: int
    result: Result
    findings: tuple[str, ...]
    confidence: int
    unique: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """A finding, and the numbers of all results that have it."""

    finding: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two findings that say nearly the same, but for a number or a “not”, each with the number of its result."""

    one: tuple[int, str]
    other: tuple[int, str]


@dataclass(frozen=True, slots=True)
class Overview:
    """All results together. `coverage` says in plain words what became of each task."""

    results: tuple[Prepared, ...]
    agreements: tuple[Agreement, ...]
    conflicts: tuple[Conflict, ...]
    coverage: str


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a finding is compared by: its words, what it counts, and whether it denies."""

    words: frozenset[str]
    numbers: frozenset[str]
    denies: bool

    def shared(self, other: _Meaning) -> float:
        together = self.words | other.words
        return len(self.words & other.words) / len(together) if together else 0.0

    def same(self, other: _Meaning) -> bool:
        alike = self.numbers == other.numbers and self.denies == other.denies
        return alike and self.shared(other) >= SAME

    def against(self, other: _Meaning) -> bool:
        """One denies what the other says, or they count differently. Numbers that only one has say nothing."""
        counted = bool(self.numbers) and bool(other.numbers) and self.numbers != other.numbers
        return (counted or self.denies != other.denies) and self.shared(other) >= ALIKE


def overview(results: Sequence[Result]) -> Overview:
    """Summarise the results, each by itself and all together."""
    found = [key_findings(one.content) if one.status in {"whole", "cut"} else () for one in results]
    points = [(at, words, _meaning(words)) for at, several in enumerate(found) for words in several]
    prepared = tuple(
        Prepared(
            at + 1,
            one,
            found[at],
            confidence(one),
            tuple(
                words
                for where, words, meaning in points
                if where == at and not any(at != w and meaning.same(m) for w, _, m in points)
            ),
        )
        for at, one in enumerate(results)
    )
    return Overview(prepared, tuple(_agreements(points)), tuple(_conflicts(points)), _coverage(results))


def key_findings(content: str) -> tuple[str, ...]:
    """The lines of lists, then numbered lines, then what follows a word of conclusion; each once, the first five. What
    is indented belongs to another point. Where lists fill all places the first conclusion has the last one.
    """
    listed = [*_matches(_BULLET, content), *_matches(_NUMBERED, content)]
    concluded = [one for one in _matches(_CONCLUSION, content) if not any(one in line for line in listed)]
    once = _once([*listed, *concluded])
    if len(once) > MOST and concluded and concluded[0] not in once[:MOST]:
        return (*once[: MOST - 1], concluded[0])
    return tuple(once[:MOST])


def confidence(result: Result) -> int:
    """1 to 5: more tools and words of success raise it, errors and words of failure lower it."""
    used, content = len(result.tools_used), result.content
    sure = BASE + (used > 3) + (used > 5) - (result.errors > 0)
    sure += bool(_SURE.search(content)) - bool(_FAILED.search(content))
    return min(MOST_SURE, max(LEAST_SURE, sure))


def _matches(pattern: re.Pattern[str], content: str) -> Iterator[str]:
    for match in pattern.finditer(content):
        words = match[1].strip()
        if words:
            yield words if len(words) <= LENGTH else text.head(words, LENGTH) + "…"


def _once(findings: Sequence[str]) -> list[str]:
    """Each finding once, however it is spelt."""
    known: dict[str, str] = {}
    for words in findings:
        known.setdefault(_plain(words), words)
    return list(known.values())


def _plain(words: str) -> str:
    folded = unicodedata.normalize("NFKC", words).casefold()
    return " ".join(re.findall(r"\w+", folded))


def _meaning(words: str) -> _Meaning:
    folded = unicodedata.normalize("NFKC", words).casefold()
    kept = _NEGATION_INSIDE.sub("", _NEGATION.sub(" ", folded))
    return _Meaning(
        frozenset(part for word in _WORD.findall(kept) for part in _parts(word)),
        frozenset(_NUMBER.findall(folded)),
        bool(_NEGATION.search(folded) or _NEGATION_INSIDE.search(folded)),
    )


def _parts(word: str) -> Iterator[str]:
    """The word itself; where words have no spaces between them, every two letters of it."""
    if word.isascii() or len(word) < 3 or unicodedata.east_asian_width(word[0]) not in {"W", "F"}:
        yield word
        return
    yield from (word[at : at + 2] for at in range(len(word) - 1))


_Points = Sequence[tuple[int, str, _Meaning]]


def _agreements(points: _Points) -> Iterator[Agreement]:
    told: set[int] = set()
    for at, (where, words, meaning) in enumerate(points):
        if at in told:
            continue
        alike = [n for n, (_, _, other) in enumerate(points) if n > at and meaning.same(other)]
        numbers = sorted({where + 1, *(points[n][0] + 1 for n in alike)})
        if len(numbers) > 1:
            told.update(alike)
            yield Agreement(words, tuple(numbers))


def _conflicts(points: _Points) -> Iterator[Conflict]:
    for (where, words, meaning), (there, others, other) in itertools.combinations(points, 2):
        if where != there and meaning.against(other):
            yield Conflict((where + 1, words), (there + 1, others))


def _coverage(results: Sequence[Result]) -> str:
    whole = sum(one.status == "whole" for one in results)
    said = f"{whole} of {len(results)} tasks came to their end"
    short = {"cut": "stopped at a limit", "silent": "without a summary", "failed": "failed"}
    for status, words in short.items():
        numbers = [str(at) for at, one in enumerate(results, 1) if one.status == status]
        if numbers:
            said += f"; {words}: {', '.join(numbers)}"
    return said + "."
