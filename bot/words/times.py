"""Functions that write times for people, in the language and the time zone of the running task."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from bot.words import reader, say


def zone(name: str) -> tzinfo:
    """Return a time zone of the tz database. Raises `ValueError` if no time zone has this name."""
    if name == "UTC":
        return UTC  # UTC is known even on a machine without a tz database
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"no time zone is called {name!r}") from error


def local(moment: float) -> datetime:
    """Return a time (epoch seconds) in the running task's time zone, or in UTC if this machine does not know that
    zone.
    """
    return datetime.fromtimestamp(moment, _clocks() or UTC)


def _clocks() -> tzinfo | None:
    try:
        return zone(reader().zone)
    except ValueError:  # the zone was chosen on another machine, which has a newer tz database
        return None


def clock(moment: float) -> str:
    """Return the time of day, such as `15:40`, for a text that names the time zone elsewhere."""
    return f"{local(moment):%H:%M}"


def hour(moment: float) -> str:
    """Return the time of day. If a reader may be in another time zone, the text names the zone, as in
    `15:40 CET`.
    """
    if reader().own and _clocks() is not None:
        return clock(moment)
    zone = local(moment).tzname() or ""
    if zone.startswith(("+", "-")):  # a zone without a name, such as +0530
        sign, hours, minutes = zone[0], int(zone[1:3]), zone[3:5]
        zone = f"UTC{sign}{hours}{':' + minutes if minutes else ''}"
    return say("time.hour", hour=clock(moment), zone=zone)


def date(moment: float) -> str:
    """Return the day and the time of day, as in `Thu 26 Nov 2026, 15:40`."""
    shown = local(moment)
    weekday = say("time.weekdays").split()[shown.weekday()]
    month = say("time.months").split()[shown.month - 1]
    return say("time.date", weekday=weekday, day=shown.day, month=month, year=shown.year, hour=hour(moment))


def recent(moment: float, now: float) -> str:
    """Return the time of a past event: only the time of day if the event was today."""
    today = local(moment).date() == local(now).date()
    return say("time.today", hour=hour(moment)) if today else date(moment)
