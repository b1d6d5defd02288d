"""Parses dates in search queries ("last Tuesday", 上周二, 先週, "in August", 2026-11-03) into ranges of time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

LONGEST = 4_000
"""Max characters examined of a query."""
MOST = 8
_COUNTS = {
    word: number
    for number, words in enumerate(
        (
            "",
            "a an one last 一",
            "two couple 二 两 兩",
            "three few several 三 几 幾",
            "four 四",
            "five 五",
            "six 六",
            "seven 七",
            "eight 八",
            "nine 九",
            "ten 十",
            "eleven 十一",
            "twelve 十二",
        )
    )
    for word in words.split()
}
_EN = r"(?P<n>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:a )?couple(?: of)?|(?:a )?few|several)"
_ZH = r"(?P<n>\d{1,3}|十一|十二|[一二两兩三四五六七八九十几幾])"
_DAY = r"(?P<day>mon|tue|wed|thu|fri|sat|sun)(?:s?day|nesday|rsday|urday|s|rs)?\b"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_ENDS = r"(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\b\.?"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)}){_ENDS}"
# `may` and `march` are also ordinary words. As months they need a capital letter or a preceding word.
_NAMED = rf"(?P<month>{'|'.join(name.capitalize() for name in _MONTHS)}){_ENDS}"
_NTH = r"(?P<date>[0-3]?\d)(?:st|nd|rd|th)?\b"
_WEEK = "(?:周|週|星期|礼拜|禮拜)"
_WEEKDAYS = ("一月", "二火", "三水", "四木", "五金", "六土", "日天")

Days = tuple[date, date]
"""The first day of a range, and the day after the last one."""


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """The times named in a query. `ranges` are in epoch ms with exclusive ends; `rest` is the query without
    the words that name a time.
    """

    ranges: tuple[tuple[int, int], ...]
    rest: str


def time_ranges(query: str, now: int, zone: tzinfo = UTC) -> TimeRanges:
    """Return the times that a query names, if it was asked at `now` (epoch ms) in `zone`. Never raises."""
    rest = query[:LONGEST]
    try:
        today = datetime.fromtimestamp(now / 1000, zone).date()
    except (ValueError, OverflowError, OSError):
        return TimeRanges((), rest)
    ranges: list[tuple[int, int]] = []
    for pattern, read in _RELATIVE:
        ranges += _read(pattern, read, rest, today, zone)
        rest = pattern.sub(" ", rest)
    left = rest  # a date that archive lines may contain literally is searched for as a word too
    for pattern, read in _ABSOLUTE:
        ranges += _read(pattern, read, left, today, zone)
        left = pattern.sub(" ", left)
    return TimeRanges(tuple(dict.fromkeys(ranges))[:MOST], rest)


Reader = Callable[["re.Match[str]", date], Days]


def _read(
    pattern: re.Pattern[str], read: Reader, query: str, today: date, zone: tzinfo
) -> list[tuple[int, int]]:
    found = []
    for match in pattern.finditer(query):
        try:
            first, behind = read(match, today)
            found.append((_ms(first, zone), _ms(behind, zone)))
        except (ValueError, OverflowError):
            continue  # this date does not exist
    return found


def _ms(day: date, zone: tzinfo) -> int:
    return int(datetime.combine(day, time(), zone).timestamp() * 1000)


def _days(first: date, count: int = 1) -> Days:
    return first, first + timedelta(count)


def _ago(days: int) -> Reader:
    return lambda _, today: _days(today - timedelta(days))


def _week(back: int) -> Reader:
    return lambda _, today: _days(today - timedelta(today.weekday() + 7 * back), 7)


def _month(year: int, month: int) -> Days:
    """Return a normalised month: month 0 is December of the year before."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _months(back: int) -> Reader:
    return lambda _, today: _month(today.year, today.month - back)


def _years(back: int) -> Reader:
    return lambda _, today: (date(today.year - back, 1, 1), date(today.year - back + 1, 1, 1))


def _number(words: str) -> int:
    words = words.lower().removeprefix("a ").removesuffix(" of").strip()
    return int(words) if words.isdecimal() else _COUNTS.get(words, 1)


def _units_ago(match: re.Match[str], today: date) -> Days:
    """Return the range of days for "N units ago"; the longer ago, the wider the range."""
    count, unit = _number(match["n"]), match["unit"].lower()
    if unit in {"day", "天", "日"}:
        around = 0 if count < 7 else 1
        return _days(today - timedelta(count + around), 1 + 2 * around)
    if unit in {"week", "周", "週", "星期", "週間"}:
        return _days(today - timedelta(7 * count + 4), 8)
    if unit in {"month", "月"}:
        return _month(today.year, today.month - count)
    return date(today.year - count, 1, 1), date(today.year - count + 1, 1, 1)


def _past(match: re.Match[str], today: date) -> Days:
    unit = match["unit"].lower()
    days = {"day": 1, "week": 7, "month": 31}.get(unit, 366) * _number(match["n"] or "one")
    return today - timedelta(days), today + timedelta(1)


def _weekday(match: re.Match[str], today: date) -> Days:
    """Return the latest day before today that has the named weekday."""
    wanted = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"].index(match["day"].lower())
    return _days(today - timedelta((today.weekday() - wanted - 1) % 7 + 1))


def _weekday_east(match: re.Match[str], today: date) -> Days:
    wanted = next(number for number, names in enumerate(_WEEKDAYS) if match["day"] in names)
    before = match["week"] or ""
    if not before:
        return _days(today - timedelta((today.weekday() - wanted - 1) % 7 + 1))
    back = {"上": 1, "先": 1, "上上": 2, "先々": 2}.get(before, 0)
    return _days(today - timedelta(today.weekday() + 7 * back - wanted))


def _weekend(_: re.Match[str], today: date) -> Days:
    return _days(today - timedelta(today.weekday() + 2), 2)


def _month_named(match: re.Match[str], today: date) -> Days:
    """Return the range of a named month, in the named year or else the latest such month that has begun."""
    groups = match.groupdict()
    name = match["month"].lower()
    month = _MONTHS.index(name) + 1 if name in _MONTHS else _number(name)
    if groups.get("date"):
        return _date_named(int(match["date"]), month, groups.get("year"), today)
    year = int(groups["year"]) if groups.get("year") else today.year - (month > today.month)
    if groups.get("last") and month == today.month and not groups.get("year"):
        year -= 1
    return _month(year, month)


def _date_named(day: int, month: int, year: str | None, today: date) -> Days:
    if year:
        return _days(date(int(year), month, day))
    this = date(today.year, month, day)
    return _days(this if this <= today else date(today.year - 1, month, day))


def _iso(match: re.Match[str], _: date) -> Days:
    year, month = int(match["year"]), int(match["month"])
    return _days(date(year, month, int(match["date"]))) if match["date"] else _month(year, month)


def _rules(*rules: tuple[str, Reader], flags: int = re.IGNORECASE) -> list[tuple[re.Pattern[str], Reader]]:
    return [(re.compile(pattern, flags), read) for pattern, read in rules]


_YEAR_BEHIND = r"(?:,?\s{1,2}(?P<year>(?:19|20)\d\d)\b)?"
_RELATIVE = _rules(
    (r"\bthe day before yesterday\b|大?前天|一昨日|おととい|그저께", _ago(2)),
    (r"\byesterday\b|昨天|昨日|きのう|어제", _ago(1)),
    (r"\b(?:earlier )?today\b|\bthis (?:morning|afternoon|evening)\b|今天|今日|きょう|오늘", _ago(0)),
    (r"\b(?:last|this past) weekend\b|上周末|上週末|先週末", _weekend),
    (rf"\b{_EN} (?P<unit>day|week|month|year)s? (?:ago|back|earlier)\b", _units_ago),
    (
        rf"\b(?:in|over|during|within) the (?:last|past) (?:{_EN} )?(?P<unit>day|week|month|year)s?\b",
        _past,
    ),
    (rf"{_ZH}\s?个?(?P<unit>天|周|週|星期|月|年)(?:之?前|以前)", _units_ago),
    (rf"{_ZH}(?:[ヶかカケ])?(?P<unit>日|週間|月|年)前", _units_ago),
    (rf"\b(?:last|this past) {_DAY}", _weekday),
    (
        rf"(?P<week>上上|上|这|這|本)个?{_WEEK}(?P<day>[一二三四五六日天])",
        _weekday_east,
    ),
    (r"(?P<week>先々|先|今)週の?(?P<day>[月火水木金土日])曜日?", _weekday_east),
    (rf"(?P<week>){_WEEK}(?P<day>[一二三四五六日天])", _weekday_east),
    (r"(?P<week>)(?P<day>[月火水木金土日])曜日", _weekday_east),
    (rf"上上个?{_WEEK}|先々週", _week(2)),
    (rf"\blast week\b|上个?{_WEEK}|先週|지난\s?주", _week(1)),
    (rf"\bthis week\b|[这這本]个?{_WEEK}|今週|이번\s?주", _week(0)),
    (r"上上个月|先々月", _months(2)),
    (r"\blast month\b|上个?月|上個月|先月|지난\s?달", _months(1)),
    (r"\bthis month\b|[这這本]个?月|今月|이번\s?달", _months(0)),
    (r"前年|一昨年|おととし", _years(2)),
    (r"\blast year\b|去年|昨年|작년", _years(1)),
    (r"\bthis year\b|今年|올해", _years(0)),
)
_ABSOLUTE = _rules(
    (r"\b(?P<day>mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday)\b", _weekday),
    (r"\bon (?P<day>mon|tue|wed|thu|fri|sat|sun)\b", _weekday),
    (
        r"(?<!\d)(?P<year>(?:19|20)\d\d)(?:[-/.]|年)(?P<month>0?[1-9]|1[0-2])(?:(?:[-/.]|月)(?P<date>[0-3]?\d)日?(?!\d))?月?(?!\d)",
        _iso,
    ),
    (rf"\b{_MONTH} {_NTH}{_YEAR_BEHIND}", _month_named),
    (rf"\b{_NTH}(?: of)? {_MONTH}{_YEAR_BEHIND}", _month_named),
    (rf"\b(?:(?P<last>last)|in|since|during|early|late|mid|of|this) {_MONTH}{_YEAR_BEHIND}", _month_named),
    (
        r"(?<!\d)(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月(?:(?P<date>[0-3]?\d)[日号號])?",
        _month_named,
    ),
    (r"\b(?:in|during|since) (?P<year>(?:19|20)\d\d)\b|(?P<year_>(?:19|20)\d\d)年", lambda m, _: _span(m)),
) + _rules((rf"\b{_NAMED}{_YEAR_BEHIND}", _month_named), flags=0)


def _span(match: re.Match[str]) -> Days:
    year = int(match["year"] or match["year_"])
    return date(year, 1, 1), date(year + 1, 1, 1)
