"""When a job is due, compared with a clock that is watched minute by minute."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import errors
from bot.core import plans
from bot.core.plans import Cron, Plan
from bot.words import speaking, times
from tests.shares import one_in

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Cairo",
    "America/St_Johns",
    "Pacific/Apia",
    "Asia/Tehran",
    "Pacific/Chatham",
    "Africa/Casablanca",
)
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()


def at(words: str, zone: str) -> float:
    return datetime.fromisoformat(words).replace(tzinfo=times.zone(zone)).timestamp()


def cron(words: str, zone: str = "UTC") -> Plan:
    return Plan(kind="cron", zone=zone, said=words, begin=0.0)


def local(plan: Plan, after: float, count: int) -> list[str]:
    found: list[str] = []
    moment = plan.following(after)
    while moment is not None and len(found) < count:
        found.append(datetime.fromtimestamp(moment, plan.where).strftime("%m-%d %H:%M"))
        moment = plan.following(moment)
    return found


# ---------------------------------------------------------------- cron


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "0 9 * * 1-5",
            ["03-02 09:00", "03-03 09:00", "03-04 09:00", "03-05 09:00", "03-06 09:00", "03-09 09:00"],
        ),
        ("0 9 * * 0", ["03-08 09:00", "03-15 09:00"]),
        ("0 9 * * 7", ["03-08 09:00", "03-15 09:00"]),
        ("0 9 * * sun", ["03-08 09:00", "03-15 09:00"]),
        ("0 9 * * SAT-SUN", ["03-07 09:00", "03-08 09:00", "03-14 09:00"]),
        ("0 9 * * 5-7", ["03-06 09:00", "03-07 09:00", "03-08 09:00", "03-13 09:00"]),
        ("30 8 13 * 5", ["03-06 08:30", "03-13 08:30", "03-20 08:30"]),
        ("0 0 */10 * 1", ["03-11 00:00", "05-11 00:00"][:0] or ["05-11 00:00"]),
        ("*/20 13 * * *", ["03-01 13:00", "03-01 13:20", "03-01 13:40", "03-02 13:00"]),
        ("5/20 13 * * *", ["03-01 13:05", "03-01 13:25", "03-01 13:45", "03-02 13:05"]),
        ("0 12 29 feb *", ["02-29 12:00"]),
        ("@daily", ["03-02 00:00", "03-03 00:00"]),
        ("0 12,18 * mar,5 *", ["03-01 18:00", "03-02 12:00"]),
        ("0 0 ? * MON", ["03-02 00:00", "03-09 00:00"]),
    ],
)
def test_an_expression_means_what_crontab_says(words: str, expected: list[str]) -> None:
    assert local(cron(words), NOW, len(expected)) == expected


def test_the_29_february_is_waited_for_over_a_century_without_one() -> None:
    plan = cron("0 0 29 2 *")
    after = datetime(2096, 3, 1, tzinfo=UTC).timestamp()
    following = plan.following(after)
    assert following is not None
    assert datetime.fromtimestamp(following, UTC).year == 2104


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("* * * *", "expected five fields"),
        ("0 9 * * * *", "expected five fields"),
        ("60 * * * *", "expected 0-59, `*`, lists, ranges or steps for the minute, got '60'"),
        ("0 24 * * *", "for the hour, got '24'"),
        ("0 0 0 * *", "for the day of the month, got '0'"),
        ("0 0 * 13 *", "expected 1-12 or jan-dec"),
        ("0 0 * * 8", "expected 0-7 or sun-sat"),
        ("0 0 * * mo", "got 'mo'"),
        ("5-1 * * * *", "got '5-1'"),
        ("*/0 * * * *", "got '*/0'"),
        ("1,,2 * * * *", "got ''"),
        ("0 0 L * *", "got 'l'"),
        ("٣ * * * *", "for the minute"),
        ("0 0 30 2 *", "a day that exists"),
    ],
)
def test_an_expression_that_is_none_says_what_is_expected(words: str, told: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        Cron.read(words)
    assert told in str(caught.value)


def by_watching(plan: Plan, begin: float, end: float) -> list[float]:
    """The times of a cron expression by looking at the zone's clocks each minute: each time that they show is one, the
    first time that they show it; what they skip is one at the first minute after.
    """
    wanted = Cron.read(plan.said)
    fits = set(_walls(wanted, begin - 2 * 86_400, end + 2 * 86_400))
    found, seen, before = [], set[datetime](), plans.wall(begin - 60, plan.where)
    for moment in range(int(begin) - 200 * 60, int(end), 60):
        shown = plans.wall(moment, plan.where)
        passed = [
            before + timedelta(minutes=n) for n in range(1, int((shown - before).total_seconds()) // 60 + 1)
        ]
        if any(one in fits and one not in seen for one in (passed or [shown])) and moment > begin:
            found.append(float(moment))
        seen.update(passed or [shown])
        before = shown
    return found


def _walls(wanted: Cron, begin: float, end: float) -> list[datetime]:
    first, last = (datetime.fromtimestamp(one, UTC).replace(tzinfo=None) for one in (begin, end))
    found = []
    for shown in wanted.walls(first - timedelta(days=1)):
        if shown > last + timedelta(days=1):
            break
        found.append(shown)
    return found


def changes(where: tzinfo, year: int) -> list[float]:
    """The moments of a year at which a zone's clocks are changed, to the minute."""
    days = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(367)]
    found = []
    for day, next_day in pairwise(days):
        if day.astimezone(where).utcoffset() != next_day.astimezone(where).utcoffset():
            steps = [day + timedelta(minutes=15 * number) for number in range(97)]
            offsets = [step.astimezone(where).utcoffset() for step in steps]
            found += [
                step.timestamp() for step, (a, b) in zip(steps[1:], pairwise(offsets), strict=True) if a != b
            ]
    return found


@pytest.mark.parametrize("name", one_in(2, ZONES))
def test_around_each_change_of_the_clocks_every_time_comes_once(name: str) -> None:
    rng, where = random.Random(name), times.zone(name)
    years = (2011, 2014, 2026)
    for change in [moment for year in years for moment in changes(where, year)]:
        for words in ("*/15 * * * *", "30 2 * * *", "0 0 * * *", _any(rng), _any(rng)):
            plan, begin, end = cron(words, name), change - 5 * 3_600, change + 5 * 3_600
            found, moment = [], plan.following(begin)
            while moment is not None and moment < end:
                found.append(moment)
                moment = plan.following(moment)
            assert found == by_watching(plan, begin, end), (name, words, change)


def _any(rng: random.Random) -> str:
    minute = rng.choice([str(rng.randrange(60)), "*/7", "0,30", "10-50/20"])
    hour = rng.choice([str(rng.randrange(4)), "*", "0-3", "*/2"])
    return f"{minute} {hour} * * {rng.choice(['*', '0', '1-5', '6'])}"


def test_a_time_in_a_gap_comes_at_the_first_moment_after_and_one_in_a_fold_once() -> None:
    berlin = cron("30 2 * * *", "Europe/Berlin")
    assert local(berlin, at("2026-03-28T12:00", "Europe/Berlin"), 2) == ["03-29 03:00", "03-30 02:30"]
    fold = berlin.following(at("2026-10-24T12:00", "Europe/Berlin"))
    assert fold == datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()
    assert local(berlin, fold, 1) == ["10-26 02:30"]
    # A day that a zone has skipped altogether (Samoa, 30 December 2011).
    assert local(cron("0 9 30 12 *", "Pacific/Apia"), at("2011-12-29T12:00", "Pacific/Apia"), 1) == [
        "12-31 00:00"
    ]


@given(st.sampled_from(ZONES), st.datetimes(datetime(1990, 1, 1), datetime(2036, 1, 1)))  # noqa: DTZ001
def test_a_moment_never_goes_back_where_the_clock_that_is_meant_does_not(name: str, shown: datetime) -> None:
    where = times.zone(name)
    moments = [plans.instant(shown + timedelta(minutes=step), where) for step in range(0, 200, 10)]
    assert moments == sorted(moments)
    if plans.kept(shown, where):
        assert plans.wall(moments[0], where) == shown


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["*/15 * * * *", "0 9 * * 1-5", "0 0 1 * *"]),
    st.floats(1.7e9, 1.9e9),
    st.floats(0, 9e6),
)
def test_of_times_that_have_passed_the_last_one_is_found_however_many_they_are(
    name: str, words: str, after: float, more: float
) -> None:
    plan = cron(words, name)
    first = plan.following(after)
    assert first is not None
    now = first + more
    last, count = plan.passed(first, now)
    following = plan.following(last)
    assert first <= last <= now
    assert following is not None
    assert following > now
    assert 1 <= count <= plans.MOST_MISSED
    if count < plans.MOST_MISSED:
        moment = first
        for _ in range(count - 1):
            moment = plan.following(moment) or 0.0
        assert moment == last


# ---------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("2026-03-02T09:00", "2026-03-02T09:00+01:00"),
        ("2026-03-02 09:00:30", "2026-03-02T09:00:30+01:00"),
        ("2026-03-02T09:00Z", "2026-03-02T10:00+01:00"),
        ("2026-03-02T09:00-05:00", "2026-03-02T15:00+01:00"),
        ("20260302T0900", "2026-03-02T09:00+01:00"),
        ("2026-03-29T02:30", "2026-03-29T03:00+02:00"),
        ("2026-10-25T02:30", "2026-10-25T02:30+02:00"),
    ],
)
def test_a_time_is_that_of_the_person_unless_it_says_otherwise(words: str, expected: str) -> None:
    plan = plans.read(words, zone="Europe/Berlin", now=NOW, least=300)
    assert plan.kind == "once"
    assert plans.written(plan.at, plan.where).split()[1] == expected
    assert plan.following(NOW) == plan.at
    assert plan.following(plan.at) is None


def test_what_the_clocks_do_with_a_time_is_said() -> None:
    said = [
        plans.remark(plans.read(words, zone="Europe/Berlin", now=NOW, least=300))
        for words in (
            "2026-03-29T02:30",
            "2026-10-25T02:30",
            "2026-10-25T02:30Z",
            "2026-03-29T01:59",
            "every 1h",
        )
    ]
    assert ["skip" in one for one in said] == [True, False, False, False, False]
    assert ["twice" in one for one in said] == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("words", "seconds"), [("every 30m", 1_800), ("Every 2 hours", 7_200), ("every 1d", 86_400)]
)
def test_every_counts_elapsed_time(words: str, seconds: int) -> None:
    plan = plans.read(words, zone="Europe/Berlin", now=NOW, least=300)
    assert plan.following(NOW) == NOW + seconds
    assert plan.following(NOW + seconds) == NOW + 2 * seconds
    assert plan.following(NOW + 2.5 * seconds) == NOW + 3 * seconds
    assert plan.passed(NOW + seconds, NOW + 4.5 * seconds) == (NOW + 4 * seconds, 4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("2026-02-01T09:00", "now it is Sun 2026-03-01T12:00+00:00"),
        ("2036-12-01T09:00", "within the next ten years"),
        ("2026-03-02", "a time of day too, such as 2026-03-02T09:00"),
        ("tomorrow", "or every 2h; got 'tomorrow'"),
        ("tomorrow at 9", "expected five fields"),
        ("", "expected a time in ISO 8601"),
        ("every", "a number with m, h, d or w"),
        ("every 0h", "a number with m, h, d or w"),
        ("every 1m", "from 5 minutes to 366 days"),
        ("every 9999d", "from 5 minutes to 366 days"),
        ("* * * * *", "at least 5 minutes between two times, got 1"),
        ("58 23 * * *, 1", "expected"),
        ("59 * * * *,", "expected"),
        ("0,4 9 1 1 *", "got 4"),
        ("9999-12-31T23:59:59+00:00", "ten years"),
    ],
)
def test_what_cannot_be_planned_is_answered_with_what_can(words: str, told: str) -> None:
    with pytest.raises(errors.ToolInputInvalid) as caught:
        plans.read(words, zone="UTC", now=NOW, least=300)
    assert str(caught.value).startswith("- when: expected")
    assert told in str(caught.value)
    assert str(caught.value).endswith("Nothing was scheduled.")


@pytest.mark.parametrize(
    "name", ["Nowhere/At_All", "../../etc/passwd", "/etc/localtime", "Europe", "", "\0", "x" * 300]
)
def test_a_zone_that_nobody_knows_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        times.zone(name)


@pytest.mark.parametrize(
    ("when", "english", "chinese"),
    [
        ("every 30m", "every 30 minutes", "每 30 分钟"),
        ("every 1d", "every day", "每 1 天"),
        ("0 9 * * 1-5", "Mon–Fri at 09:00", "周一至周五 09:00"),
        ("30 8,17 * * *", "every day at 08:30, 17:30", "每天 08:30, 17:30"),
        ("0 9 * * sun", "Sun at 09:00", "每逢周日 09:00"),
        ("0 9 * * 7,1", "Mon, Sun at 09:00", "每逢周一, 周日 09:00"),
        ("0 7 1 * *", "on day 1 of every month at 07:00", "每月 1 日 07:00"),
        ("@daily", "every day at 00:00", "每天 00:00"),
        ("5 * * * *", "every hour at minute 5", "每小时第 5 分"),
        ("*/20 9 * * *", "cron */20 9 * * *", "cron */20 9 * * *"),
        ("0 9 1 * 1", "cron 0 9 1 * 1", "cron 0 9 1 * 1"),
        ("0 9 * 2 *", "cron 0 9 * 2 *", "cron 0 9 * 2 *"),
        ("2027-03-01T09:00", "once", "仅一次"),
    ],
)
def test_people_read_a_plan_in_words(when: str, english: str, chinese: str) -> None:
    plan = plans.read(when, zone="UTC", now=datetime(2027, 1, 1, tzinfo=UTC).timestamp(), least=60)
    for code, words in (("en", english), ("zh", chinese)):
        with speaking(code):
            assert plans.in_words(plan) == words
