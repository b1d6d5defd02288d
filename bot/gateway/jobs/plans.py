"""The times at which a job is due: once, by a cron expression, or every so often.

What is said in times of a wall clock is kept to by the zone's clocks: a time that they skip comes at the first moment
after the gap, one that they show twice comes once, the first time. `every` counts elapsed time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, tzinfo
from typing import Literal

from bot import errors, text
from bot.contracts.base import Frozen
from bot.gateway.jobs import zones
from bot.gateway.jobs.cron import Cron

MOST_MISSED = 100
"""Missed times that are counted one by one."""
FARTHEST = 10 * 366 * 86_400.0
"""Seconds into the future that can be planned."""
LONGEST_EVERY = 366 * 86_400
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_EVERY = re.compile(r"every ([1-9][0-9]{0,5}) ?(m|h|d|w)[a-z]*", re.IGNORECASE | re.ASCII)
_CRON = re.compile(r"\S+(?: \S+){2,}")
"""More words than a time has: an expression with too few or too many fields is told so."""
_BACK = (86_400.0, 40 * 86_400.0, 400 * 86_400.0, 9 * 366 * 86_400.0)


class Plan(Frozen):
    """`at` and `begin` are epoch seconds, `every` seconds. `zone` is that of the person, also where only the listing
    needs one. `said` is what was asked for.
    """

    kind: Literal["once", "cron", "every"]
    zone: str
    said: str
    begin: float
    at: float = 0.0
    every: int = 0

    @property
    def where(self) -> tzinfo:
        return zones.zone(self.zone)

    def following(self, moment: float) -> float | None:
        """The first time after a moment; None where there is none."""
        if self.kind == "once":
            return self.at if self.at > moment else None
        if self.kind == "every":
            return self.begin + self.every * max(1, math.floor((moment - self.begin) / self.every) + 1)
        return next(self._after(moment), None)

    def _after(self, moment: float) -> Iterator[float]:
        """The next time of a cron expression after a moment. Several times in one gap are one."""
        where, last = self.where, moment
        for shown in Cron.read(self.said).walls(zones.wall(moment, where)):
            due = zones.instant(shown, where)
            if due > last:
                last = due
                yield due

    def passed(self, first: float, now: float) -> tuple[float, int]:
        """Of the times from `first` (one of them) to now the last, and how many there are: of more than `MOST_MISSED`
        so many.
        """
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
        """The last time of a cron expression until now; there is one, no earlier than the `known`."""
        for back in _BACK:
            found = known
            for due in self._after(max(known, now - back)):
                if due > now:
                    break
                found = due
            if found > known:
                return found
        return known

    def told(self) -> str:
        """The plan in words."""
        if self.kind == "once":
            return "once"
        return f"cron {self.said}" if self.kind == "cron" else f"every {self.said}"


def read(when: str, *, zone: str, now: float, least: float) -> Plan:
    """Make a plan in a zone that exists from a `contracts.jobs.JobRequest`. `least` is the shortest pause in
    seconds. Raises `errors.ToolInputInvalid`, which says what is expected.
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
    where, shown = zones.zone(zone), _moment(words)
    at = zones.instant(shown, where) if shown.tzinfo is None else shown.timestamp()
    if not now < at <= now + FARTHEST:
        raise ValueError(
            f"expected a time within the next ten years; now it is {zones.written(now, where)}, got "
            f"{zones.written(at, where)}"
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
    where = zones.zone(zone)
    pause = Cron.read(words).pause(zones.wall(now, where))
    if pause * 60 < least:
        raise ValueError(f"expected at least {least / 60:g} minutes between two times, got {pause}")
    return Plan(kind="cron", zone=zone, said=words, begin=now)


def _every(words: str, zone: str, now: float, least: float) -> Plan:
    zones.zone(zone)
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


def remark(plan: Plan) -> str:
    """The sentence about a time that the clocks skip or show twice; "" where they do neither."""
    if plan.kind != "once":
        return ""
    shown = _moment(plan.said)
    if shown.tzinfo is not None:
        return ""
    if not zones.kept(shown, plan.where):
        return " The clocks skip that time, so it comes at the first moment after."
    return (
        " The clocks show that time twice, so it comes the first time."
        if zones.twice(shown, plan.where)
        else ""
    )
