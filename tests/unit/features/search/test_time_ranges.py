"""The times of which questions speak, as days."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.features.search.analysis import MOST, time_ranges

NOW = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)  # a Saturday


def days(query: str, now: int = NOW) -> list[tuple[str, str]]:
    def day(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")

    return [(day(first), day(behind)) for first, behind in time_ranges(query, now)[0]]


@pytest.mark.parametrize(
    ("query", "first", "behind"),
    [
        ("what did we say two months ago", "2026-09-01", "2026-10-01"),
        ("the plan from a couple of weeks ago", "2026-11-03", "2026-11-11"),
        ("3 years ago", "2023-01-01", "2024-01-01"),
        ("10 days ago", "2026-11-10", "2026-11-13"),
        ("in the past three weeks", "2026-10-31", "2026-11-22"),
        ("within the last year", "2025-11-20", "2026-11-22"),
        ("during the last few days", "2026-11-18", "2026-11-22"),
        ("last November", "2025-11-01", "2025-12-01"),
        ("in November", "2026-11-01", "2026-12-01"),
        ("in December", "2025-12-01", "2026-01-01"),
        ("since 2024", "2024-01-01", "2025-01-01"),
        ("2024年", "2024-01-01", "2025-01-01"),
        ("on 30 December", "2025-12-30", "2025-12-31"),
        ("on 30 December, 2023", "2023-12-30", "2023-12-31"),
        ("2026-10", "2026-10-01", "2026-11-01"),
        ("last weekend", "2026-11-14", "2026-11-16"),
        ("先々週の火曜日", "2026-11-03", "2026-11-04"),
        ("上上周五", "2026-11-06", "2026-11-07"),
        ("这周三", "2026-11-18", "2026-11-19"),
        ("三个月前", "2026-08-01", "2026-09-01"),
        ("3週間前", "2026-10-27", "2026-11-04"),
        ("十一月二", "2026-11-01", "2026-12-01"),
        ("去年", "2025-01-01", "2026-01-01"),
        ("一昨日", "2026-11-19", "2026-11-20"),
    ],
)
def test_a_question_names_days(query: str, first: str, behind: str) -> None:
    assert days(query)[0] == (first, behind)


@pytest.mark.parametrize(
    "query", ["2026-02-31", "on 31 June", "99月", "二〇", "9999年12月31日", "in the last 999 years ago"]
)
def test_days_that_no_calendar_has_are_left_out(query: str) -> None:
    for first, behind in days(query):
        assert first < behind


@pytest.mark.parametrize("now", [10**18, -(10**18), 253_402_300_800_000 * 10])
def test_a_clock_that_no_calendar_has_tells_no_time(now: int) -> None:
    assert time_ranges("yesterday", now) == ((), "yesterday")


def test_so_many_times_are_looked_at_and_no_more() -> None:
    many = " ".join(f"2026-{month:02}" for month in range(1, 13))
    assert len(days(many)) == MOST


def test_at_the_ends_of_the_calendar_nothing_is_before_or_behind() -> None:
    early = int(datetime(1, 1, 3, tzinfo=UTC).timestamp() * 1000)
    assert days("yesterday", early) in ([], [("0001-01-02", "0001-01-03")], [("1-01-02", "1-01-03")])
    assert time_ranges("5 years ago", early)[0] == ()
    assert time_ranges("last month", early)[0] == ()
