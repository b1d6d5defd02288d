"""Times are shown in a person's time zone and language."""

from __future__ import annotations

import pytest

from bot.words import speaking, times

WINTER, SUMMER = 1_800_000_000.0, 1_815_552_000.0


@pytest.mark.parametrize(
    ("code", "zone", "moment", "hour", "date"),
    [
        ("en", "UTC", WINTER, "08:00 UTC", "Fri 15 Jan 2027, 08:00 UTC"),
        ("en", "Europe/Berlin", WINTER, "09:00 CET", "Fri 15 Jan 2027, 09:00 CET"),
        ("en", "Europe/Berlin", SUMMER, "10:00 CEST", "Wed 14 Jul 2027, 10:00 CEST"),
        ("zh", "Asia/Shanghai", WINTER, "16:00 CST", "2027年1月15日（周五）16:00 CST"),
        ("en", "America/Sao_Paulo", WINTER, "05:00 UTC-3", "Fri 15 Jan 2027, 05:00 UTC-3"),
        ("en", "Asia/Kathmandu", WINTER, "13:45 UTC+5:45", "Fri 15 Jan 2027, 13:45 UTC+5:45"),
        ("en", "Pacific/Kiritimati", WINTER, "22:00 UTC+14", "Fri 15 Jan 2027, 22:00 UTC+14"),
    ],
)
def test_a_moment_is_told_with_the_name_that_its_zone_has_then(
    code: str, zone: str, moment: float, hour: str, date: str
) -> None:
    with speaking(code, zone):
        assert (times.hour(moment), times.date(moment)) == (hour, date)


def test_the_days_are_those_of_the_reader() -> None:
    with speaking("en", "Asia/Tokyo"):
        assert times.recent(WINTER, WINTER + 6 * 3_600) == "today 17:00 JST"
        assert times.recent(WINTER, WINTER + 8 * 3_600) == "Fri 15 Jan 2027, 17:00 JST"


def test_both_times_that_clocks_show_twice_have_names_of_their_own() -> None:
    first = 1_793_511_000.0  # 1 November 2026
    with speaking("en", "America/New_York"):
        assert [times.hour(first + hour * 3_600) for hour in range(3)] == [
            "01:30 EDT",
            "01:30 EST",
            "02:30 EST",
        ]


def test_a_zone_outlives_another_language_and_ends_with_its_block() -> None:
    with speaking("en", "Asia/Tokyo"):
        with speaking("zh"):
            assert times.hour(WINTER) == "17:00 JST"
        assert times.hour(WINTER) == "17:00 JST"
    assert times.hour(WINTER) == "08:00 UTC"


def test_where_a_machine_does_not_know_a_zone_the_time_is_that_of_utc() -> None:
    with speaking("en", "Europe/Nowhere"):
        assert times.hour(WINTER) == "08:00 UTC"


def test_readers_whose_zone_is_known_are_told_times_without_its_name() -> None:
    with speaking("en", "Asia/Tokyo", own=True):
        assert (times.hour(WINTER), times.date(WINTER)) == ("17:00", "Fri 15 Jan 2027, 17:00")
        with speaking("zh"):
            assert times.date(WINTER) == "2027年1月15日（周五）17:00"
        with speaking("en", "UTC"):
            assert times.hour(WINTER) == "08:00 UTC"
    with speaking("en", "Europe/Nowhere", own=True):
        assert times.hour(WINTER) == "08:00 UTC"
