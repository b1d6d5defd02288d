"""Due times of jobs are compared with a clock that is checked minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot import errors
from bot.core import plans
from bot.core.plans import Plan
from bot.words import speaking, times

ZONES = (  # noqa: SIM905 - a list would take a page
    "UTC Europe/Berlin America/New_York America/Sao_Paulo Australia/Lord_Howe Asia/Kolkata "
    "Africa/Cairo America/St_Johns Pacific/Apia Asia/Tehran Pacific/Chatham Africa/Casablanca"
).split()
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
        ("0 9 * * 5-7", ["03-06 09:00", "03-07 09:00", "03-08 09:00", "03-13 09:00"]),
        ("0 9 * * fri-7", ["03-06 09:00", "03-07 09:00", "03-08 09:00", "03-13 09:00"]),
        ("30 8 13 * 5", ["03-06 08:30", "03-13 08:30", "03-20 08:30"]),
        ("0 0 */10 * 1", ["05-11 00:00"]),
        ("*/20 13 * * *", ["03-01 13:00", "03-01 13:20", "03-01 13:40", "03-02 13:00"]),
        ("5/20 13 * * *", ["03-01 13:05", "03-01 13:25", "03-01 13:45", "03-02 13:05"]),
        ("0 12 29 feb *", ["02-29 12:00"]),
        ("@daily", ["03-02 00:00", "03-03 00:00"]),
        ("0 12,18 * mar,5 *", ["03-01 18:00", "03-02 12:00"]),
    ],
)
def test_an_expression_means_what_crontab_says(words: str, expected: list[str]) -> None:
    assert local(cron(words), NOW, len(expected)) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("* * * *", "wrong number of fields"),
        ("0 9 * * * *", "wrong number of fields"),
        ("60 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 0 * *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * mo", "bad day-of-week"),
        ("0 9 * * fri-sun", "7 at the end of a range, such as fri-7"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
    ],
)
def test_an_expression_that_is_none_says_what_is_expected(words: str, told: str) -> None:
    with pytest.raises(errors.ToolInputInvalid, match="expected five fields of cron") as caught:
        plans.read(words, zone="UTC", now=NOW, least=300)
    assert told in str(caught.value)


def test_a_time_in_a_gap_comes_at_the_first_moment_after_and_one_in_a_fold_once() -> None:
    berlin = cron("30 2 * * *", "Europe/Berlin")
    assert local(berlin, at("2026-03-28T12:00", "Europe/Berlin"), 2) == ["03-29 03:00", "03-30 02:30"]
    fold = berlin.following(at("2026-10-24T12:00", "Europe/Berlin"))
    assert fold == datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()
    assert local(berlin, fold, 1) == ["10-26 02:30"]


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["*/15 * * * *", "0 9 * * 1-5", "0 0 1 * *"]),
    st.floats(1.7e9, 1.9e9),
    st.floats(0, 9e6),
)
@example("UTC", "*/15 * * * *", 1.7e9, 562_500.0)  # the present moment is due itself
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("2026-03-02T09:00", "2026-03-02T09:00+01:00"),
        ("2026-03-02 09:00:30", "2026-03-02T09:00:30+01:00"),
        ("2026-03-02T09:00Z", "2026-03-02T10:00+01:00"),
        ("2026-03-02T09:00-05:00", "2026-03-02T15:00+01:00"),
        ("20260302T0900", "2026-03-02T09:00+01:00"),
        ("2026-03-29T02:30", "2026-03-29T03:30+02:00"),
        ("2026-10-25T02:30", "2026-10-25T02:30+02:00"),
    ],
)
def test_a_time_is_that_of_the_person_unless_it_says_otherwise(words: str, expected: str) -> None:
    plan = plans.read(words, zone="Europe/Berlin", now=NOW, least=300)
    assert plan.kind == "once"
    assert plans.written(plan.at, plan.where).split()[1] == expected
    assert plan.following(NOW) == plan.at
    assert plan.following(plan.at) is None


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
        ("tomorrow at 9", "wrong number of fields"),
        ("", "expected a time in ISO 8601"),
        ("every", "a number with m, h, d or w"),
        ("every 0h", "a number with m, h, d or w"),
        ("every 1m", "from 5 minutes to 366 days"),
        ("every 9999d", "from 5 minutes to 366 days"),
        ("* * * * *", "at least 5 minutes between two times, got 1"),
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
