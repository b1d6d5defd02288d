"""Cron expressions of five fields, as crontab(5) has them: Sunday is 0 and 7, and where both the day of the month and the
day of the week are restricted, either suffices.

APScheduler reads them otherwise: its weeks begin with Monday as 0, and both days have to fit.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice, pairwise

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMED = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_LONGEST = 9 * 366
"""Days between two times of what comes at all: a 29 February may be eight years away."""
_SAMPLE = 1_500
"""Times that are looked at for the shortest pause; a day has 1,440 minutes."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def read(self, words: str) -> frozenset[int]:
        found: set[int] = set()
        for part in words.lower().split(","):
            found |= self._part(part)
        return frozenset(found)

    def _part(self, part: str) -> set[int]:
        span, slash, step = part.partition("/")
        if slash and (not _number(step) or int(step) < 1):
            raise self._wrong(part)
        if span in {"*", "?"}:
            low, high = self.low, self.high
        else:
            first, dash, last = span.partition("-")
            low = self._value(first, part)
            high = self._value(last, part) if dash else self.high if slash else low
            if self.names is DAYS and dash and last in {"sun", "0"} and low > 0:
                high = 7
        if low > high:
            raise self._wrong(part)
        values = range(low, high + 1, int(step) if slash else 1)
        return {value % 7 for value in values} if self.names is DAYS else set(values)

    def _value(self, word: str, part: str) -> int:
        if word in self.names:
            return self.names.index(word) + (1 if self.names is MONTHS else 0)
        high = 7 if self.names is DAYS else self.high
        if not _number(word) or not self.low <= int(word) <= high:
            raise self._wrong(part)
        return int(word)

    def _wrong(self, part: str) -> ValueError:
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        high = 7 if self.names is DAYS else self.high
        return ValueError(
            f"expected {self.low}-{high}{names}, `*`, lists, ranges or steps for the {self.name}, got {part[:40]!r}"
        )


FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("day of the week", 0, 6, DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """`times` are minutes of a day, in order."""

    times: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @classmethod
    @functools.lru_cache(maxsize=1_000)
    def read(cls, words: str) -> Cron:
        """Raises `ValueError`, which says what is expected."""
        fields = NAMED.get(words.strip().lower(), words).split()
        if len(fields) != len(FIELDS):
            raise ValueError(
                "expected five fields (minute, hour, day of the month, month, day of the week; Sunday is 0), "
                f"got {len(fields)}"
            )
        minutes, hours, days, months, weekdays = (
            field.read(given) for field, given in zip(FIELDS, fields, strict=True)
        )
        times = tuple(sorted(60 * hour + minute for hour in hours for minute in minutes))
        either = not fields[2].startswith(("*", "?")) and not fields[4].startswith(("*", "?"))
        made = cls(times, days, months, weekdays, either)
        if next(made.walls(datetime(2024, 1, 1)), None) is None:  # noqa: DTZ001 - what clocks show, in any zone
            raise ValueError("expected a day that exists, got one that never comes")
        return made

    def walls(self, after: datetime) -> Iterator[datetime]:
        """Every time that clocks show after one that they show, without zones."""
        first, passed = after.date(), 60 * after.hour + after.minute
        for number in range(min(_LONGEST, (date.max - first).days)):
            if not self._on(day := first + timedelta(days=number)):
                continue
            for minutes in self.times:
                if number or minutes > passed:
                    yield datetime(day.year, day.month, day.day, minutes // 60, minutes % 60)  # noqa: DTZ001

    def pause(self, after: datetime) -> int:
        """The shortest pause between two times, in minutes."""
        times = islice(self.walls(after), _SAMPLE)
        return min((int((b - a).total_seconds()) // 60 for a, b in pairwise(times)), default=_LONGEST * 1_440)

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_number, by_name = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_number or by_name) if self.either else (by_number and by_name)


def _number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= 4
