"""Cron expressions of five fields, as crontab(5) has them: `cronsim` reads each field and finds the times.

Sunday is 0 and 7, and where both the day of the month and the day of the week are restricted, either suffices. Here stands
what `cronsim` does without: names such as `@daily`, `?`, ranges that end on Sunday, and an error that names the field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise

from cronsim import CronSim, CronSimError

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of the month", "1-31"),
    ("month", "1-12 or jan-dec"),
    ("day of the week", "0-7 or sun-sat"),
)
_ITEM = re.compile(r"(?:\*|(?:\d{1,4}|[a-z]{3})(?:-(?:\d{1,4}|[a-z]{3}))?)(?:/\d{1,4})?", re.ASCII)
_TO_SUNDAY = re.compile(r"(?<=[1-6a-z]-)(?:sun|0)\b")
_OPEN = re.compile(r"(?<![-\w])(\w+)/")
"""`4/2` begins on Thursday and ends on Saturday; to `cronsim` Sunday is its day 7."""
_LONGEST = 50 * 366
"""Days after which `cronsim` gives up looking."""
_SAMPLE = 50
"""Days that are looked at for the shortest pause."""


@dataclass(frozen=True, slots=True)
class Cron:
    expression: str
    """As `cronsim` reads it."""

    @classmethod
    @functools.lru_cache(maxsize=1_000)
    def read(cls, words: str) -> Cron:
        """Raises `ValueError`, which says what is expected."""
        fields = NAMED.get(words.strip().lower(), words).lower().split()
        if len(fields) != len(FIELDS):
            raise ValueError(
                "expected five fields (minute, hour, day of the month, month, day of the week; Sunday is 0), "
                f"got {len(fields)}"
            )
        fields = [re.sub(r"^\?", "*", field) for field in fields]
        fields[-1] = _TO_SUNDAY.sub("7", _OPEN.sub(r"\1-6/", fields[-1]))
        for place, field in enumerate(fields):
            _check(place, field)
        expression = " ".join(fields)
        try:
            CronSim(expression, datetime(2024, 1, 1))  # noqa: DTZ001 - what clocks show, in any zone
        except CronSimError:
            raise ValueError("expected a day that exists, got one that never comes") from None
        return cls(expression)

    def walls(self, after: datetime) -> Iterator[datetime]:
        """Every time that clocks show after one that they show, without zones."""
        return CronSim(self.expression, after)

    def pause(self, after: datetime) -> int:
        """The shortest pause between two times, in minutes."""
        found = CronSim(self.expression, after)
        times = sorted(60 * hour + minute for hour in found.hours for minute in found.minutes)
        _, _, days = self.expression.split(maxsplit=2)
        firsts = islice(CronSim(f"0 0 {days}", after), _SAMPLE)
        apart = min(((b - a).days for a, b in pairwise(firsts)), default=_LONGEST)
        pauses = [b - a for a, b in pairwise(times)]
        return min([*pauses, 1_440 * apart - times[-1] + times[0]])


def _check(place: int, field: str) -> None:
    """Raises `ValueError`, which names the field and the item of its list that is wrong."""
    name, values = FIELDS[place]
    for item in field.split(","):
        alone = ["*"] * len(FIELDS)
        alone[place] = item
        try:
            if _ITEM.fullmatch(item) is None:
                raise CronSimError(item)
            CronSim(" ".join(alone), datetime(2024, 1, 1))  # noqa: DTZ001 - what clocks show, in any zone
        except CronSimError:
            raise ValueError(
                f"expected {values}, `*`, lists, ranges or steps for the {name}, got {item[:40]!r}"
            ) from None
