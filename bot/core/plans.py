"""Schedules of jobs: once, by a cron expression, or at fixed intervals.

Wall-clock times follow the time zone. A time that the clocks skip runs at the first moment after the gap; a
time that occurs twice runs only the first time. `every` counts elapsed time.

Cron expressions have five fields, as in crontab(5). `cronsim` parses each field and finds the times. Sunday
is 0 and 7. If both day of month and day of week are restricted, either field may match. This module adds
names such as `@daily`, `?`, ranges that end on Sunday, and errors that name the field.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Literal

from cronsim import CronSim, CronSimError

from bot import errors, text
from bot.contracts.base import Frozen
from bot.words import say, times

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
"""Pattern for an open range with a step: `4/2` starts on Thursday and ends on Saturday, while `cronsim`
would accept Sunday as day 7.
"""
_LONGEST = 50 * 366
"""Max days into the future in which `cronsim` searches for a due time."""
_SAMPLE = 50
"""Number of due days that are examined to find the shortest interval."""


@dataclass(frozen=True, slots=True)
class Cron:
    expression: str
    """Cron expression in the form that `cronsim` reads."""

    @classmethod
    @functools.lru_cache(maxsize=1_000)
    def read(cls, words: str) -> Cron:
        """Parse a cron expression. Raises `ValueError` with the expected form."""
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
        """Yield the due wall-clock times after this time, without a time zone."""
        return CronSim(self.expression, after)

    def pause(self, after: datetime) -> int:
        """Return the shortest interval between due times in minutes."""
        found = CronSim(self.expression, after)
        times = sorted(60 * hour + minute for hour in found.hours for minute in found.minutes)
        _, _, days = self.expression.split(maxsplit=2)
        firsts = islice(CronSim(f"0 0 {days}", after), _SAMPLE)
        apart = min(((b - a).days for a, b in pairwise(firsts)), default=_LONGEST)
        pauses = [b - a for a, b in pairwise(times)]
        return min([*pauses, 1_440 * apart - times[-1] + times[0]])


def _check(place: int, field: str) -> None:
    """Raise a `ValueError` that names the cron field and the wrong item."""
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


MOST_MISSED = 100
"""Max missed due times that are counted individually."""
FARTHEST = 10 * 366 * 86_400.0
"""Max seconds that a plan may lie in the future."""
LONGEST_EVERY = 366 * 86_400
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MOST_TIMES = 4
"""Max times of day listed in a plan's description."""
_EVERY = re.compile(r"every ([1-9][0-9]{0,5}) ?(m|h|d|w)[a-z]*", re.IGNORECASE | re.ASCII)
_CRON = re.compile(r"\S+(?: \S+){2,}")
"""Pattern for text with more words than a time has, which is taken as a cron expression with a wrong number
of fields.
"""
_BACK = (86_400.0, 40 * 86_400.0, 400 * 86_400.0, 9 * 366 * 86_400.0)


class Plan(Frozen):
    """Schedule of a job. `at` and `begin` are epoch seconds, `every` is in seconds. `zone` is the person's
    time zone, even if only the display uses it. `said` is the schedule as the person or the model wrote
    it.
    """

    kind: Literal["once", "cron", "every"]
    zone: str
    said: str
    begin: float
    at: float = 0.0
    every: int = 0

    @property
    def where(self) -> tzinfo:
        return times.zone(self.zone)

    def following(self, moment: float) -> float | None:
        """Return the first due time after a moment (epoch seconds); None if there is none."""
        if self.kind == "once":
            return self.at if self.at > moment else None
        if self.kind == "every":
            return self.begin + self.every * max(1, math.floor((moment - self.begin) / self.every) + 1)
        return next(self._after(moment), None)

    def _after(self, moment: float) -> Iterator[float]:
        """Yield the due times of a cron expression after a moment. Several times in one gap of the clocks
        count as one.
        """
        where, last = self.where, moment
        for shown in Cron.read(self.said).walls(wall(moment, where)):
            due = instant(shown, where)
            if due > last:
                last = due
                yield due

    def passed(self, first: float, now: float) -> tuple[float, int]:
        """Return the last due time up to now, and the number of due times since `first`, at most `MOST_MISSED`."""
        if self.kind == "once":
            return first, 1
        if self.kind == "every":
            count = math.floor((now - first) / self.every)
            return first + count * self.every, min(count + 1, MOST_MISSED)
        last, count = first, 1
        for due in self._after(first):
            if due > now:
                return last, count
            last, count = due, count + 1
            if count == MOST_MISSED:
                break
        return self._last(last, now), count

    def _last(self, known: float, now: float) -> float:
        """Return the last due time of a cron expression up to now, no earlier than `known`."""
        for back in _BACK:
            found = known
            for due in self._after(max(known, now - back)):
                if due > now:
                    break
                found = due
            if found > known:
                return found
        return known

    def describe(self) -> str:
        """Return a short description of the plan."""
        if self.kind == "once":
            return "once"
        return f"cron {self.said}" if self.kind == "cron" else f"every {self.said}"


def in_words(plan: Plan) -> str:
    """Return a description of the plan for people. A cron expression that uses more than days and times of
    day is shown unchanged.
    """
    if plan.kind == "once":
        return say("plan.once")
    if plan.kind == "every":
        unit = plan.said[-1]
        return say(f"plan.every_{unit}", count=int(plan.said[:-1]))
    found = CronSim(Cron.read(plan.said).expression, datetime(2024, 1, 1))  # noqa: DTZ001 - what clocks show, in any zone
    minute, names = min(found.minutes), say("time.weekdays").split()
    days = _weekdays(found)
    return say(
        f"plan.{_kind(plan.said, found)}",
        minute=minute,
        time=", ".join(f"{hour:02}:{minute:02}" for hour in sorted(found.hours)),
        days=", ".join(names[day] for day in days),
        day=min(found.days),
        expression=plan.said,
    )


def said(when: str) -> str:
    """Return a description of the schedule in a `tools.context.JobRequest` for people; a single time is shown
    unchanged.
    """
    try:
        plan = read(when, zone="UTC", now=0, least=0)
    except errors.ToolInputInvalid:
        return when
    return when if plan.kind == "once" else in_words(plan)


def _weekdays(found: CronSim) -> list[int]:
    """Return the days of the week in a cron expression (Monday is 0; `cronsim` uses 0 and 7 for Sunday). The
    nth weekday of a month is left out.
    """
    return sorted({(day - 1) % 7 for day in found.weekdays if isinstance(day, int)})


def _kind(said: str, found: CronSim) -> str:
    """Return the sentence key (`plan.…`) of the sentence that describes a cron expression completely; "cron"
    if there is none.
    """
    _, hour, day, month, weekday = Cron.read(said).expression.split()
    if month != "*" or len(found.minutes) > 1 or "#" in weekday or "l" in f"{day}{weekday}":
        return "cron"
    if hour == day == weekday == "*":
        return "hourly"
    if len(found.hours) > _MOST_TIMES or not (day == "*" or (day.isdecimal() and weekday == "*")):
        return "cron"
    if day != "*" or weekday == "*":
        return "daily" if day == "*" else "monthly"
    return "workdays" if _weekdays(found) == [*range(5)] else "weekly"


def read(when: str, *, zone: str, now: float, least: float) -> Plan:
    """Return the plan for a schedule from a `tools.context.JobRequest`, in an existing zone. `least` is the
    min interval in seconds. Raises `errors.ToolInputInvalid` with the expected form.
    """
    words = " ".join(when.split())
    every = words.lower().startswith("every")
    reader = _every if every else _cron if words.startswith("@") or _CRON.fullmatch(words) else _once
    try:
        return reader(words, zone, now, least)
    except (ValueError, OverflowError) as error:
        raise errors.ToolInputInvalid(f"- when: {error}. Nothing was scheduled.") from error


def _once(words: str, zone: str, now: float, least: float) -> Plan:
    del least
    where, shown = times.zone(zone), _moment(words)
    at = instant(shown, where) if shown.tzinfo is None else shown.timestamp()
    if not now < at <= now + FARTHEST:
        raise ValueError(
            f"expected a time within the next ten years; now it is {written(now, where)}, got "
            f"{written(at, where)}"
        )
    return Plan(kind="once", zone=zone, said=words, begin=now, at=at)


def _moment(words: str) -> datetime:
    try:
        date.fromisoformat(words)
    except ValueError:
        pass
    else:
        raise ValueError(f"expected a time of day too, such as {words[:10]}T09:00")
    try:
        return datetime.fromisoformat(words)
    except ValueError:
        shown = text.preview(words, 40)
        raise ValueError(
            "expected a time in ISO 8601 such as 2026-03-01T09:00 or 2026-03-01T09:00+01:00, five fields of cron such "
            f"as 0 9 * * 1-5, or every 2h; got {shown!r}"
        ) from None


def _cron(words: str, zone: str, now: float, least: float) -> Plan:
    where = times.zone(zone)
    pause = Cron.read(words).pause(wall(now, where))
    if pause * 60 < least:
        raise ValueError(f"expected at least {least / 60:g} minutes between two times, got {pause}")
    return Plan(kind="cron", zone=zone, said=words, begin=now)


def _every(words: str, zone: str, now: float, least: float) -> Plan:
    times.zone(zone)
    match = _EVERY.fullmatch(words)
    if match is None:
        raise ValueError(
            "expected a number with m, h, d or w, such as every 30m or every 2h, got "
            f"{text.preview(words, 40)!r}"
        )
    seconds = int(match[1]) * _UNITS[match[2].lower()]
    if not least <= seconds <= LONGEST_EVERY:
        raise ValueError(f"expected from {least / 60:g} minutes to 366 days, got {words}")
    return Plan(kind="every", zone=zone, said=f"{match[1]}{match[2].lower()}", begin=now, every=seconds)


def of_a_clock(plan: Plan) -> bool:
    """Return True if the plan uses wall-clock times."""
    return plan.kind == "cron" or (plan.kind == "once" and _moment(plan.said).tzinfo is None)


def remark(plan: Plan) -> str:
    """Return the sentence about a time that the clocks skip or show twice; "" for any other time."""
    if plan.kind != "once" or not of_a_clock(plan):
        return ""
    shown = _moment(plan.said)
    if not kept(shown, plan.where):
        return " The clocks skip that time, so it comes at the first moment after."
    return " The clocks show that time twice, so it comes the first time." if twice(shown, plan.where) else ""


def wall(moment: float, where: tzinfo) -> datetime:
    """Return the wall-clock time at a moment (epoch seconds), without a zone."""
    return datetime.fromtimestamp(moment, where).replace(tzinfo=None)


def instant(shown: datetime, where: tzinfo) -> float:
    """Return the epoch seconds of a wall-clock time: the first of two such moments, or the first moment
    after a gap. The result never decreases for later times.
    """
    first, second = shown.replace(tzinfo=where, fold=0), shown.replace(tzinfo=where, fold=1)
    before, after = _offset(first), _offset(second)
    if before >= after:
        return first.timestamp()
    low, high = int(second.timestamp()), int(first.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(datetime.fromtimestamp(middle, where)) == before:
            low = middle
        else:
            high = middle
    return float(high)


def kept(shown: datetime, where: tzinfo) -> bool:
    """Return True if the clocks show this time, that is if they do not skip it when summer time begins."""
    return wall(instant(shown, where), where) == shown


def twice(shown: datetime, where: tzinfo) -> bool:
    """Return True if the clocks show this time twice, as at the end of summer time."""
    return _offset(shown.replace(tzinfo=where, fold=0)) > _offset(shown.replace(tzinfo=where, fold=1))


def written(moment: float, where: tzinfo) -> str:
    """Return a moment in text for models: weekday and ISO 8601 with the zone's offset."""
    local = datetime.fromtimestamp(moment, where)
    exact = "seconds" if local.second else "minutes"
    return f"{_DAYS[local.weekday()]} {local.isoformat(timespec=exact)}"


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta(0)
