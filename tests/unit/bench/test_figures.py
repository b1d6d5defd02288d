"""The bench's own arithmetic."""

from __future__ import annotations

import pytest

from tests.bench import figures


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([5.0], (5.0, 5.0, 5.0)),
        ([3.0, 1.0, 2.0], (1.0, 2.0, 3.0)),
        ([4.0, 3.0, 2.0, 1.0], (1.0, 2.0, 4.0)),
        ([float(n) for n in range(200, 0, -1)], (1.0, 100.0, 198.0)),
    ],
)
def test_a_spread_is_made_of_values_that_were_measured(
    values: list[float], spread: tuple[float, float, float]
) -> None:
    found = figures.Spread.of(values)
    assert (found.min, found.p50, found.p99) == spread


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.456, "0.46"), (9.99, "9.99"), (12.34, "12.3"), (123.4, "123"), (20_456.7, "20,457")],
)
def test_a_number_has_three_digits_that_matter(value: float, shown: str) -> None:
    assert figures.number(value) == shown


def test_a_line_has_both_programs_and_their_ratios_under_its_heading() -> None:
    line, found = figures.paired("both", [10.0, 20.0, 40.0], [5.0, 10.0, 10.0])
    assert line.split() == ["both", "10.0", "20.0", "40.0", "5.00", "10.0", "10.0", "2.00", "4.00"]
    assert found == {"shipmate": 20.0, "plain": 10.0, "ratio": 2.0, "ratioP99": 4.0, "tail": 2.0}
    assert {len(row) for row in (*figures.heading("x").splitlines(), line)} == {len(line)}
