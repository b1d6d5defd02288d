"""Schedules of jobs: once, by a cron expression, or at fixed intervals.

Cron times are wall-clock times. When clocks are set forward, a job at a skipped time runs right after the gap. When
clocks are set back, a job at a repeated time runs once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, tzinfo
from itertools import islice, pairwise
from typing import Literal

from cronsim import CronSim, CronSimError

from bot import errors, text
from bot.contracts.base import Frozen
from bot.words import say, times

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SAMPLE = 100
"""Number of due times that are examined to find the shortest interval of a cron expression."""
MOST_MISSED = 100
"""Max number of missed due times. Further missed times are not counted."""
FARTHEST = 10 * 366 * 86_400.0
"""Max seconds between now and the time of a plan that runs once."""
LONGEST_EVERY = 366 * 86_400
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MOST_TIMES = 4
"""Max times of day listed in a plan's description."""
_EVERY = re.compile(r"every ([1-9][0-9]{0,5}) ?(m|h|d|w)[a-z]*", re.IGNORECASE | re.ASCII)
_CRON = re.compile(r"@\S+|\S+(?: \S+){2,}")
"""Pattern of a cron expression: three or more words, or a word that begins with `@`. The number of fields may be wrong."""


def cron(said: str, after: datetime, *, reverse: bool = False) -> CronSim:
    """Return the due times of a cron expression after the time `after`. If `reverse` is True, return the due times before
    `after`, latest first. Raises `ValueError`.
    """
    expression = NAMED.get(said.strip().lower(), said)
    try:
        if len(expression.split()) != 5:
            raise CronSimError("wrong number of fields")
        return CronSim(expression, after, reverse)
    except CronSimError as error:
        raise ValueError(
            "expected five fields of cron (minute, hour, day of the month, month, day of the week; Sunday is 0, but 7 at "
            "the end of a range, such as fri-7), "
            f"got {text.preview(said, 60)!r}: {str(error).lower()}"
        ) from None


class Plan(Frozen):
    """Schedule of a job. `zone` is the person's time zone, also for plans without wall-clock times. `said` is the schedule
    as a person or the model wrote it. `begin` (when the plan was made) and `at` (when a plan runs once) are epoch
    seconds; `every` is in seconds.
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
        """Return the first due time after `moment`, both in epoch seconds; None if no due time follows."""
        if self.kind == "once":
            return self.at if self.at > moment else None
        if self.kind == "every":
            return self.begin + self.every * max(1, math.floor((moment - self.begin) / self.every) + 1)
        return next(self.after(moment), None)

    def after(self, moment: float) -> Iterator[float]:
        """Yield a cron plan's due times (epoch seconds) that are later than `moment`. If several skipped times move to one due time, yield it once."""
        last = moment
        for shown in cron(self.said, datetime.fromtimestamp(moment, self.where)):
            if (due := shown.timestamp()) > last:
                last = due
                yield due

    def passed(self, first: float, now: float) -> tuple[float, int]:
        """Return the last due time up to `now`, and the number of due times from `first` to `now`, at most `MOST_MISSED`."""
        if self.kind == "once":
            return first, 1
        if self.kind == "every":
            count = math.floor((now - first) / self.every)
            return first + count * self.every, min(count + 1, MOST_MISSED)
        last, count = first, 1
        for due in self.after(first):
            if due > now:
                break
            last, count = due, count + 1
            if count == MOST_MISSED:
                # The backward search excludes its start. Start a minute after `now`, to find a due time equal to `now`.
                found = cron(self.said, datetime.fromtimestamp(now + 60, self.where), reverse=True)
                last = max(last, next(one for one in (shown.timestamp() for shown in found) if one <= now))
                break
        return last, count

    def describe(self) -> str:
        return "once" if self.kind == "once" else f"{self.kind} {self.said}"


def in_words(plan: Plan) -> str:
    """Return a description of the plan for people. The description of a complicated cron expression is the expression itself."""
    if plan.kind == "once":
        return say("plan.once")
    if plan.kind == "every":
        return say(f"plan.every_{plan.said[-1]}", count=int(plan.said[:-1]))
    found = cron(plan.said, datetime(2024, 1, 1))  # noqa: DTZ001 - the wall-clock time of any zone
    # In `days`, Monday is 0. In cronsim, Sunday is 0 or 7. Entries like "second Monday of a month" are left out.
    days = sorted({(day - 1) % 7 for day in found.weekdays if isinstance(day, int)})
    minute, names = min(found.minutes), say("time.weekdays").split()
    return say(
        f"plan.{_kind(found, days)}",
        minute=minute,
        time=", ".join(f"{hour:02}:{minute:02}" for hour in sorted(found.hours)),
        days=", ".join(names[day] for day in days),
        day=min(found.days),
        expression=plan.said,
    )


def _kind(found: CronSim, days: list[int]) -> str:
    """Return the key, without `plan.`, of the sentence that fully describes a cron expression. Return "cron" if no sentence does."""
    _, _, hour, day, month, weekday = found.parts
    if month != "*" or len(found.minutes) > 1 or "#" in weekday or "L" in f"{day}{weekday}":
        return "cron"
    if hour == day == weekday == "*":
        return "hourly"
    if len(found.hours) > _MOST_TIMES or not (day == "*" or (day.isdecimal() and weekday == "*")):
        return "cron"
    if day != "*" or weekday == "*":
        return "daily" if day == "*" else "monthly"
    return "workdays" if days == [*range(5)] else "weekly"


def said(when: str) -> str:
    """Describe the schedule `when` of a job for people. A schedule that runs once or is invalid is returned unchanged."""
    try:
        plan = read(when, zone="UTC", now=0, least=0)
    except errors.ToolInputInvalid:
        return when
    return when if plan.kind == "once" else in_words(plan)


def read(when: str, *, zone: str, now: float, least: float) -> Plan:
    """Parse the schedule `when` of a job (see `tools.context.Jobs.create`). `zone` is the name of a time zone, `now` is in epoch
    seconds, and `least` is the min interval in seconds. Raises `errors.ToolInputInvalid`, which explains the valid forms.
    """
    words = " ".join(when.split())
    try:
        where = times.zone(zone)
        if words.lower().startswith("every"):
            match = _EVERY.fullmatch(words)
            if match is None:
                raise ValueError(
                    "expected a number with m, h, d or w, such as every 30m or every 2h, "
                    f"got {text.preview(words, 40)!r}"
                )
            count, unit = match[1], match[2].lower()
            seconds = int(count) * _UNITS[unit]
            plan = Plan(kind="every", zone=zone, said=f"{count}{unit}", begin=now, every=seconds)
            if not least <= plan.every <= LONGEST_EVERY:
                raise ValueError(f"expected from {least / 60:g} minutes to 366 days, got {words}")
        elif _CRON.fullmatch(words):
            plan = Plan(kind="cron", zone=zone, said=words, begin=now)
            pauses = [after - before for before, after in pairwise(islice(plan.after(now), _SAMPLE))]
            if (shortest := min(pauses, default=least)) < least:
                raise ValueError(
                    f"expected at least {least / 60:g} minutes between two times, got {shortest / 60:g}"
                )
        else:
            shown = _moment(words)
            at = (shown if shown.tzinfo is not None else shown.replace(tzinfo=where)).timestamp()
            if not now < at <= now + FARTHEST:
                raise ValueError(
                    f"expected a time within the next ten years; now it is {written(now, where)}, got "
                    f"{written(at, where)}"
                )
            plan = Plan(kind="once", zone=zone, said=words, begin=now, at=at)
    except (ValueError, OverflowError) as error:
        raise errors.ToolInputInvalid(f"- when: {error}. Nothing was scheduled.") from error
    return plan


def _moment(words: str) -> datetime:
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(
            "expected a time in ISO 8601 such as 2026-03-01T09:00 or 2026-03-01T09:00+01:00, five fields of cron such "
            f"as 0 9 * * 1-5, or every 2h; got {text.preview(words, 40)!r}"
        ) from None
    if len(words) <= len("2026-03-01") and moment.date() == date.fromisoformat(words):
        raise ValueError(f"expected a time of day too, such as {words[:10]}T09:00")
    return moment


def of_a_clock(plan: Plan) -> bool:
    """Return True if the plan uses wall-clock times."""
    return plan.kind == "cron" or (plan.kind == "once" and _moment(plan.said).tzinfo is None)


def written(moment: float, where: tzinfo) -> str:
    """Return a moment (epoch seconds) as text for the model: weekday, and local time in ISO 8601 with the UTC offset."""
    local = datetime.fromtimestamp(moment, where)
    exact = "seconds" if local.second else "minutes"
    # The weekday must not depend on the system's language.
    weekday = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[local.weekday()]
    return f"{weekday} {local.isoformat(timespec=exact)}"
