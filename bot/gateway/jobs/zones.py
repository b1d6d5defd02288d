"""Time zones: the wall clock at a moment, and the moment of a time on a wall clock."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo


def wall(moment: float, where: tzinfo) -> datetime:
    """The time on the wall clock at a moment (epoch seconds), without a zone."""
    return datetime.fromtimestamp(moment, where).replace(tzinfo=None)


def instant(shown: datetime, where: tzinfo) -> float:
    """The epoch seconds at which the clocks show a time (without a zone): the first of two, and of a time that they skip
    the first moment after the gap. Never decreases with the time.
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
    """True where the clocks show this time, once or twice."""
    return wall(instant(shown, where), where) == shown


def twice(shown: datetime, where: tzinfo) -> bool:
    """True where the clocks show this time twice."""
    return _offset(shown.replace(tzinfo=where, fold=0)) > _offset(shown.replace(tzinfo=where, fold=1))


def written(moment: float, where: tzinfo) -> str:
    """A moment for models: the day of the week, and ISO 8601 with the zone's offset."""
    local = datetime.fromtimestamp(moment, where)
    exact = "seconds" if local.second else "minutes"
    return f"{_DAYS[local.weekday()]} {local.isoformat(timespec=exact)}"


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta(0)
