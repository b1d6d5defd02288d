"""Computes the coordinates of the charts that the page `charts.html` draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from bot.telemetry.usage import UsageTotals
from bot.words import say

WIDTH, HEIGHT = 340, 130
"""Size of a chart's plot in SVG units. On a small screen a unit is a CSS pixel."""
RANGES: Mapping[str, tuple[int, int, int]] = {"day": (1, 24, 6), "month": (24, 30, 7)}
"""Spans of time that a chart can show. Each has the hours of one period, the number of periods, and the number of
periods between two labels of the time axis.
"""

Unit = Literal["number", "dollars", "ms"]
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Period:
    """The totals of one hour or day (UTC)."""

    label: str
    short: str
    usage: UsageTotals


@dataclass(frozen=True, slots=True)
class Point:
    """One value, drawn as a bar or as a point at the middle of the bar's top. `label` names the period."""

    x: float
    y: float
    width: float
    height: float
    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one or several series of points. `ticks` has the position and value of each label on the value axis;
    `times` has the position and text of each label on the time axis.
    """

    name: str
    unit: Unit
    lines: bool
    series: Mapping[str, Sequence[Point]]
    ticks: Sequence[tuple[float, float]]
    times: Sequence[tuple[float, str]]


def periods(sums: Mapping[int, UsageTotals], span: str, now: float) -> list[Period]:
    """Return all periods of a span that ends now, oldest first. Periods without data are included."""
    hours, count, _ = RANGES[span]
    last, found = int(now // (3_600 * hours)), list[Period]()
    for number in range(last - count + 1, last + 1):
        at = datetime.fromtimestamp(number * 3_600 * hours, UTC)
        date = say("dashboard.date", day=at.day, month=say("time.months").split()[at.month - 1])
        label, short = (date, date) if hours > 1 else (f"{date}, {at:%H:%M}", f"{at:%H:%M}")
        found.append(Period(label, short, sums.get(number, UsageTotals())))
    return found


def charts(shown: Sequence[Period], span: str) -> list[Chart]:
    """Return the charts of turns, cost, waiting times and errors in these periods."""
    of = [one.usage for one in shown]
    values: dict[tuple[str, Unit], dict[str, Values]] = {
        ("turns", "number"): {"turns": [one.turns for one in of]},
        ("cost", "dollars"): {"cost": [one.cost for one in of]},
        ("latency", "ms"): {"p50": [one.wait(0.5) for one in of], "p99": [one.wait(0.99) for one in of]},
        ("errors", "number"): {
            "failed_turns": [one.failed for one in of],
            "failed_calls": [one.errors.total() for one in of],
        },
    }
    return [_chart(name, unit, some, shown, RANGES[span][2]) for (name, unit), some in values.items()]


def _chart(name: str, unit: Unit, values: Mapping[str, Values], shown: Sequence[Period], every: int) -> Chart:
    """Return a chart of stacked bars, or of lines if the unit is milliseconds."""
    width, lines = WIDTH / len(shown), unit == "ms"
    columns = [[one or 0 for one in column] for column in zip(*values.values(), strict=True)]
    top = _top(max(max(column) if lines else sum(column) for column in columns), unit)
    below, series = [0.0] * len(shown), dict[str, list[Point]]()
    for each, some in values.items():
        series[each] = []
        for at, value in enumerate(some):
            if value is None or not (value or lines):
                continue
            height = HEIGHT * value / top
            y = HEIGHT - below[at] - height
            series[each].append(Point(at * width, y, width, height, shown[at].label, value))
            below[at] += 0 if lines else height
    ticks = [(HEIGHT * (1 - part), top * part) for part in (0, 0.5, 1)]
    times = [((at + 0.5) * width, one.short) for at, one in enumerate(shown) if at % every == 0]
    return Chart(name, unit, lines, series, ticks, times)


def _top(highest: float, unit: Unit) -> float:
    """Return the upper end of the value axis: the next round number. For counts, it is an even number."""
    least = {"number": 2.0, "dollars": 0.01, "ms": 1_000.0}[unit]
    if highest <= least:
        return least
    scale = 10.0 ** math.floor(math.log10(highest))
    steps = (1, 2, 4, 6, 10) if unit == "number" else (1, 2, 2.5, 5, 10)
    return next(step * scale for step in steps if step * scale >= highest)
