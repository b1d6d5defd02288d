"""Times as people read them: in the language and the time zone of the running task."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from bot.words import own_zone, say
from bot.words import zone as zone_now


def zone(name: str) -> tzinfo:
    """A zone of the tz database. Raises `ValueError` where there is none of that name."""
    if name == "UTC":
        return UTC  # known everywhere, also where there is no database
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"no time zone is called {name!r}") from error


def local(moment: float) -> datetime:
    """A moment (epoch seconds) on the clocks of the reader, on those of UTC where this machine does not know their zone."""
    return datetime.fromtimestamp(moment, _clocks() or UTC)


def _clocks() -> tzinfo | None:
    try:
        return zone(zone_now())
    except ValueError:  # it was chosen on another machine, or its name has gone
        return None


def clock(moment: float) -> str:
    """The time of day, as in `15:40`, beside the name of the zone."""
    return f"{local(moment):%H:%M}"


def hour(moment: float) -> str:
    """The time of day; with the zone, as in `15:40 CET`, where that may not be the reader's."""
    if own_zone() and _clocks() is not None:
        return clock(moment)
    return say("time.hour", hour=clock(moment), zone=_abbreviation(local(moment)))


def date(moment: float) -> str:
    """The day and the time of day, as in `Thu 26 Nov 2026, 15:40`."""
    shown = local(moment)
    weekday = say("time.weekdays").split()[shown.weekday()]
    month = say("time.months").split()[shown.month - 1]
    return say("time.date", weekday=weekday, day=shown.day, month=month, year=shown.year, hour=hour(moment))


def recent(moment: float, now: float) -> str:
    """The time of something that is over: of today the time of day alone."""
    today = local(moment).date() == local(now).date()
    return say("time.today", hour=hour(moment)) if today else date(moment)


def _abbreviation(shown: datetime) -> str:
    """The zone's own short name at that time; of a zone without one how far it is from UTC, as in `UTC+5:30`."""
    name = shown.tzname() or ""
    if not name.startswith(("+", "-")):
        return name
    sign, hours, minutes = name[0], int(name[1:3]), name[3:5]
    return f"UTC{sign}{hours}{':' + minutes if minutes else ''}"
