"""Formats numbers for the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest value, median and 99th percentile of many values."""

    min: float
    p50: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Compute the spread by nearest rank, so that every figure is a measured value."""
        ranked = sorted(values)
        return cls(ranked[0], _rank(ranked, 0.50), _rank(ranked, 0.99))


def _rank(ranked: Sequence[float], share: float) -> float:
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def number(value: float) -> str:
    """Return a number with about three significant digits and thousands separators."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def paired(label: str, ours: Sequence[float], theirs: Sequence[float]) -> tuple[str, dict[str, float]]:
    """Return a report line, and the same figures as a dict."""
    a, b = Spread.of(ours), Spread.of(theirs)
    cells = [number(value) for spread in (a, b) for value in (spread.min, spread.p50, spread.p99)]
    ratios = (_over(a.p50, b.p50), _over(a.p99, b.p99))
    line = f"  {label:<30}" + "".join(f"{cell:>9}" for cell in cells)
    line += "".join(f"{ratio:>8.2f}" for ratio in ratios)
    tail = _over(a.p99, a.p50)
    return line, {"shipmate": a.p50, "plain": b.p50, "ratio": ratios[0], "ratioP99": ratios[1], "tail": tail}


def heading(title: str, ours: str = "shipmate", theirs: str = "plain script") -> str:
    """Return the column headings for the lines of `paired`."""
    names = ("min", "p50", "p99") * 2
    top = f"{'':<32}{ours:>27}{theirs:>27}{'ratio':>16}"
    return f"{top}\n{title:<32}" + "".join(f"{name:>9}" for name in names) + f"{'p50':>8}{'p99':>8}"


def _over(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else 0.0


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the least-squares slope of `ys` over `xs`; 0 if all `xs` are equal."""
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    width = sum((one - x) ** 2 for one in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / width if width else 0.0
