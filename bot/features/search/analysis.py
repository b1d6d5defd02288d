"""Splits text into index tokens, and finds the periods that a query names ("last Tuesday", 上周二).

Archive lines and queries are split by the same code. Tokens contain only letters, digits, combining marks and the characters
`._-+#@:/'`, so a full-text query may quote them.
"""

from __future__ import annotations

import contextlib
import functools
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from bot import text as texts

_WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def compiled(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile a pattern of words.toml, after replacing each `<PART>` by the entry of that name in the table [parts]."""
    return re.compile(re.sub("<([A-Z]+)>", lambda found: str(_WORDS["parts"][found[1]]), pattern), flags)


FORM = {name: compiled(pattern) for name, pattern in _WORDS["form"].items()}
"""Patterns that recognise the form of a question or of an archive line."""
# Base form of each irregular word form, because a query and an archive line may use different forms.
_IRREGULAR = {
    form: forms.split()[0] for forms in _WORDS["irregular"].split("|") for form in forms.split()[1:]
}


def stem(word: str) -> str:
    """Return the stem of a lower-case word that consists of the letters a to z."""
    # Imported here, because importing the package loads the stemmers of all languages.
    from snowballstemmer.porter_stemmer import PorterStemmer

    word = _IRREGULAR.get(word, word)
    return word if len(word) < 3 else str(PorterStemmer().stemWord(word))


NOISE = frozenset(_WORDS["noise"].split())
"""Stop words, which are not indexed. Almost every second line contains one of them."""

ASKING = frozenset(_WORDS["asking"].split())
"""Words that are typical of questions and rare in answers. A query is searched without these words, unless it has no others."""

# Longer phrases come first, because a shorter phrase may be the beginning of a longer one.
ASKING_CJK = re.compile("|".join(map(re.escape, sorted(_WORDS["asking_cjk"].split(), key=len, reverse=True))))
"""Chinese, Japanese and Korean question words. They are found by a pattern, because no spaces separate them."""

ASKING_PHRASES = compiled(_WORDS["asking_phrases"])
PARTICLES = frozenset(_WORDS["particles"].strip())
VERSION = 5
"""Version of the tokenisation. Raise this number after each change of this module, so that every index is rebuilt."""
LONGEST_TEXT = 200_000  # max characters of an archive line that are indexed
LONGEST_QUERY = 4_000
MOST_TERMS = 64  # max terms of a search query
LONGEST_TOKEN = 64
_LONGEST_WORD = (
    256  # max characters of a word that are examined; the stemmer and some patterns are slow on longer words
)
_SINGLE = 0.75  # weight of a single character in a query that also has pairs of characters
_PAIR = (1.0, 0.6, 0.3)  # weights of a pair of characters with no, one or two particles
_KANA_PAIRS = {"hh": 0.25, "kk": 0.5, "=h": 0.7}
"""Weights of Japanese pairs by script (`_script`): two hiragana, two katakana inside a word, a kanji with its ending (飲む)."""
_ACROSS = 0.2  # weight of any other pair of two scripts; such a pair is often the end of a word
_CASES = "はがをにでのともへや"  # hiragana particles, which follow words and are rarely part of a word

# Scripts that join words without spaces. In these scripts, every character and every pair of characters is a token.
PAIRED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u309f\u30a0-\u30ff\u3105-\u312f"
    "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff\u200d"
_SIGNS = "\u00a9\u00ae\u2190-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001fbff"
_LINKS = r"[.\-'/:@+#&_]+"
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)"
_ASCII = re.compile(rf"{_NUMBER}|[A-Za-z0-9]+(?:{_LINKS}[A-Za-z0-9]+)*(?:\+\+|#)?")
_LETTER = rf"(?:[^\W_{PAIRED}]|[{_MARKS}])"
_ANY = re.compile(rf"{_NUMBER}|{_LETTER}+(?:{_LINKS}{_LETTER}+)*(?:\+\+|#)?|[{PAIRED}]+|[{_SIGNS}]")
_PAIRED_RUN = re.compile(rf"[{PAIRED}]+")
# Katakana words are the only Japanese words whose borders are visible.
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30fe]{3,64}")
_SIGN = re.compile(rf"[{_SIGNS}]")
_APART = re.compile(_LINKS)
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z][A-Z][a-z][a-z]")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_FOLDED = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]"
)


def tokens(text: str) -> list[str]:
    """Return the tokens of a text of up to `LONGEST_TEXT` characters, including repeated ones. Never raises."""
    return list(chain.from_iterable(map(_of_word, _words(_cut(text, LONGEST_TEXT)))))


def is_paired(token: str) -> bool:
    """Return True for one or two characters of a script without spaces, which are rarely a complete word."""
    return len(token) <= 2 and _PAIRED_RUN.match(token) is not None


def terms(query: str) -> dict[str, float]:
    """Return the tokens of a query with their weights. Leave out question words, unless the query has no other words."""
    text = _cut(query, LONGEST_QUERY)
    heaviest: dict[str, float] = {}
    for token, weight in list(_terms(text, asking=False)) or list(_terms(text, asking=True)):
        heaviest[token] = max(weight, heaviest.get(token, 0.0))
    return dict(list(heaviest.items())[:MOST_TERMS])


def _cut(text: str, longest: int) -> str:
    """Return the beginning of a text, normalised. Cut once more after normalising: it turns some characters into eighteen."""
    return texts.normalized(texts.clean(text[:longest]))[:longest]


def _words(text: str) -> list[str]:
    return (_ASCII if text.isascii() else _ANY).findall(text.replace("\u2019", "'"))


def _terms(text: str, *, asking: bool) -> Iterator[tuple[str, float]]:
    if not asking:
        text = ASKING_PHRASES.sub(" ", ASKING_CJK.sub(" ", text))
    for word in _words(text):
        if _PAIRED_RUN.fullmatch(word):
            for token in _of_word(word):
                if token == word or len(token) > 2:
                    yield token, 1.0
                elif len(token) == 2:
                    yield token, _of_pair(token)
                elif _script(token) == "=" and token not in PARTICLES:
                    yield token, _SINGLE
        elif asking or word.lower() not in ASKING:
            yield from ((token, 1.0) for token in _of_word(word))


def _of_pair(pair: str) -> float:
    scripts = _script(pair[0]) + _script(pair[1])
    if scripts == "==":
        return _PAIR[sum(character in PARTICLES for character in pair)]
    return _ACROSS if pair[1] in _CASES and scripts != "hh" else _KANA_PAIRS.get(scripts, _ACROSS)


def _script(character: str) -> str:
    if "\u3041" <= character <= "\u309f":
        return "h"
    return "k" if "\u30a0" <= character <= "\u30ff" else "="


def _of_word(word: str) -> tuple[str, ...]:
    if _PAIRED_RUN.fullmatch(word):
        return (*word, *map("".join, pairwise(word)), *_KATAKANA.findall(word))
    return _parts(word[:_LONGEST_WORD])


@functools.lru_cache(50_000)
def _parts(word: str) -> tuple[str, ...]:
    """Return a word as a token. If the word is compound (`src/main.py`, `getUserName`), also return its parts. The results are
    cached, because stemming one word takes about 100 µs.
    """
    if _SIGN.fullmatch(word):
        return (word,)
    word = word.replace(",", "")
    if "'" in word:  # `Anna's` becomes Anna, but `don't` and `O'Brien` stay whole
        head, _, tail = word.rpartition("'")
        word = head.replace("'", "") if tail.lower() == "s" else word.replace("'", "")
    parts = _APART.split(word.rstrip("+#"))
    found = [_fold(word)] if len(parts) > 1 or _CAMEL.search(word) else []
    for part in parts if len(parts) > 1 else [word]:
        if _CAMEL.search(part):
            found += [_fold(part), *(_plain(hump) for hump in _HUMPS.findall(part) if len(hump) > 1)]
        else:
            found.append(_plain(part))
    return tuple(dict.fromkeys(one for one in found if one))


def _plain(word: str) -> str:
    word = _fold(word)
    if word in NOISE:
        return ""
    return stem(word) if word.isascii() and word.isalpha() else word


def _fold(word: str) -> str:
    word = word.casefold()
    if not word.isascii():
        word = unicodedata.normalize("NFC", _FOLDED.sub("", unicodedata.normalize("NFKD", word)))
    return word[:LONGEST_TOKEN]


MOST = 8  # max periods that are read from a query; further periods are ignored
_COUNTS = {
    word: number for number, words in enumerate(_WORDS["numbers"].split("|"), 1) for word in words.split()
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ("mon 一月", "tue 二火", "wed 三水", "thu 四木", "fri 五金", "sat 六土", "sun 日天")

Days = tuple[date, date]  # first day of a period, and the day after its last day
Ranges = tuple[tuple[int, int], ...]  # periods as pairs of start and end (epoch ms, end exclusive)


def time_ranges(query: str, now: int) -> tuple[Ranges, str]:
    """Return the periods that a query names, and the rest of the query. The query was asked at `now` (epoch ms). Never raises."""
    rest = query[:LONGEST_QUERY]
    try:
        today = datetime.fromtimestamp(now / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        return (), rest
    ranges: list[tuple[int, int]] = []
    for rule in _RELATIVE:
        ranges += _read(rule, rest, today)
        rest = rule[0].sub(" ", rest)
    left = rest  # archive lines may contain this date literally, so it is searched as a word too
    for rule in _ABSOLUTE:
        ranges += _read(rule, left, today)
        left = rule[0].sub(" ", left)
    return tuple(dict.fromkeys(ranges))[:MOST], rest


def _read(rule: Rule, query: str, today: date) -> Iterator[tuple[int, int]]:
    pattern, read, back = rule
    for match in pattern.finditer(query):
        with contextlib.suppress(ValueError, OverflowError):  # raised for a date that does not exist
            days = _READERS[read](match, today, back)
            first, behind = (datetime.combine(day, time(), UTC).timestamp() for day in days)
            yield int(first * 1000), int(behind * 1000)


def _days(first: date, count: int = 1) -> Days:
    return first, first + timedelta(count)


def _month(year: int, month: int) -> Days:
    """Return the days of a month. `month` may be out of range: month 0 is December of the year before."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _years(first: int, count: int = 1) -> Days:
    return date(first, 1, 1), date(first + count, 1, 1)


def _number(words: str) -> int:
    words = words.lower().removeprefix("a ").removesuffix(" of").strip()
    return int(words) if words.isdecimal() else _COUNTS.get(words, 1)


def _units_ago(match: re.Match[str], today: date, _: int) -> Days:
    """Return the days that "N units ago" may mean. The longer ago, the more days."""
    count, unit = _number(match["n"]), match["unit"].lower()
    if unit in {"day", "天", "日"}:
        around = 0 if count < 7 else 1
        return _days(today - timedelta(count + around), 1 + 2 * around)
    if unit in {"week", "周", "週", "星期", "週間"}:
        return _days(today - timedelta(7 * count + 4), 8)
    if unit in {"month", "月"}:
        return _month(today.year, today.month - count)
    return _years(today.year - count)


def _past(match: re.Match[str], today: date, _: int) -> Days:
    unit = match["unit"].lower()
    days = {"day": 1, "week": 7, "month": 31}.get(unit, 366) * _number(match["n"] or "one")
    return today - timedelta(days), today + timedelta(1)


def _weekday(match: re.Match[str], today: date, _: int) -> Days:
    """Return the date of a named weekday: the last such day before today, or the day in the named week."""
    day, week = match["day"].lower(), match.groupdict().get("week")
    wanted = next(number for number, names in enumerate(_WEEKDAYS) if day in names)
    if not week:
        return _days(today - timedelta((today.weekday() - wanted - 1) % 7 + 1))
    back = {"上": 1, "先": 1, "上上": 2, "先々": 2}.get(week, 0)
    return _days(today - timedelta(today.weekday() + 7 * back - wanted))


def _month_named(match: re.Match[str], today: date, _: int) -> Days:
    """Return the days of a named month, or one named day. If no year is named, use the last year in which the period had begun."""
    groups = match.groupdict()
    name, named_year = match["month"].lower(), groups.get("year")
    month = _MONTHS.index(name) + 1 if name in _MONTHS else _number(name)
    if groups.get("date"):
        day = date(int(named_year or today.year), month, int(groups["date"]))
        return _days(day if named_year or day <= today else day.replace(year=today.year - 1))
    year = int(named_year) if named_year else today.year - (month > today.month)
    if groups.get("last") and month == today.month and not named_year:
        year -= 1
    return _month(year, month)


def _iso(match: re.Match[str], _: date, __: int) -> Days:
    year, month = int(match["year"]), int(match["month"])
    return _days(date(year, month, int(match["date"]))) if match["date"] else _month(year, month)


Rule = tuple[re.Pattern[str], str, int]
_READERS: dict[str, Callable[[re.Match[str], date, int], Days]] = {
    "day": lambda _, today, back: _days(today - timedelta(back)),
    "week": lambda _, today, back: _days(today - timedelta(today.weekday() + 7 * back), 7),
    "month": lambda _, today, back: _month(today.year, today.month - back),
    "year": lambda _, today, back: _years(today.year - back),
    "weekend": lambda _, today, __: _days(today - timedelta(today.weekday() + 2), 2),
    "year_named": lambda match, _, __: _years(int(match["year"] or match["year_"])),
    "units_ago": _units_ago,
    "past": _past,
    "weekday": _weekday,
    "month_named": _month_named,
    "iso": _iso,
}
_RELATIVE: list[Rule] = [(compiled(pattern), read, back) for pattern, read, back in _WORDS["relative"]]
_ABSOLUTE: list[Rule] = [
    (compiled(pattern, 0 if "<NAMED>" in pattern else re.IGNORECASE), read, back)
    for pattern, read, back in _WORDS["absolute"]
]
