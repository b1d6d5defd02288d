"""Each due time has one turn: over restarts, deaths at every write, clocks that are set, and years."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.journal import ANSWERED, FAILED, STOPPED, Job
from bot.core.plans import Plan
from bot.features.jobs.job import FAILURES
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.memory_journal import MemoryJournal
from tests.unit.gateway.jobs.rig import Rig

DAY = 86_400.0
GROUP: dict[str, Any] = {
    "chat_id": "-100",
    "chat_key": "tele:chat:-100",
    "chat_type": "group",
    "target": {"chat": "-100"},
}


def moment(words: str) -> float:
    return datetime.fromisoformat(words).replace(tzinfo=UTC).timestamp()


def said(rig: Rig) -> list[str]:
    return [line.message for line in rig.log.entries if line.kind == "schedule"]


# ---------------------------------------------------------------- once, and what a turn is told


async def test_a_job_for_once_has_one_turn_and_is_gone(rig: Rig) -> None:
    name = await rig.plan("2027-01-15T09:00")
    await rig.passes(2 * 3_600)
    (inbound,) = rig.taken
    assert inbound.due is not None
    assert (inbound.due.job, inbound.due.at, inbound.due.missed) == (name, moment("2027-01-15T09:00"), 0)
    assert (inbound.text, inbound.user_id, inbound.target) == ("tell me 你好", "77", {"chat": "77"})
    assert inbound.due.words_of == ("77",)
    assert await rig.journal.jobs() == []
    assert [line.details["job"] for line in rig.log.entries if "due" in line.message] == [name]


async def test_what_repeats_goes_on_and_one_run_waits_for_the_one_before(rig: Rig) -> None:
    await rig.plan("every 1h")
    rig.end = None
    await rig.passes(3.5 * 3_600)
    assert len(rig.taken) == 1
    await rig.journal.finish(rig.taken[0].request_id, ANSWERED)
    await rig.due.look()
    await rig.due.look()
    begin = rig.times[0]
    assert rig.times == [begin, begin + 2 * 3_600]
    assert rig.taken[1].due is not None
    assert rig.taken[1].due.missed == 1
    assert rig.taken[1].due.late == 1_800


async def test_a_channel_that_is_not_connected_is_waited_for(rig: Rig) -> None:
    await rig.plan("every 30m")
    rig.ready = False
    await rig.passes(2 * 3_600)
    assert rig.taken == []
    rig.ready = True
    await rig.due.look()
    assert len(rig.times) == 1
    assert rig.taken[0].due is not None
    assert rig.taken[0].due.missed == 3


# ---------------------------------------------------------------- missed


async def test_what_was_missed_runs_once_and_late_or_is_skipped_and_said(rig: Rig) -> None:
    await rig.plan("0 * * * *")
    rig.clock.jump(3.5 * 3_600)
    rig.restart()
    await rig.due.look()
    assert rig.times == [moment("2027-01-15T11:00")]
    assert rig.taken[0].due is not None
    assert (rig.taken[0].due.missed, rig.taken[0].due.late) == (2, 1_800)
    await rig.plan("0 12 * * *", prompt="the weather")
    rig.restart()
    rig.clock.jump(4 * DAY + 6 * 3_600)
    await rig.due.look()
    await rig.due.look()
    (told,) = [words for words in rig.told.words if "the weather" in words]
    assert told == (
        "I've skipped “the weather”: it was due Tue 19 Jan 2027, 12:00 UTC, and I couldn't run it within "
        "120 minutes. It was due 4 times before that, too. It's due next Wed 20 Jan 2027, 12:00 UTC."
    )
    assert len([one for one in rig.taken if one.text == "the weather"]) == 0
    await rig.passes(DAY, 600)
    assert len([one for one in rig.taken if one.text == "the weather"]) == 1


async def test_a_job_for_once_that_is_too_late_is_said_and_gone(rig: Rig) -> None:
    await rig.plan("2027-01-15T09:00")
    rig.clock.jump(DAY)
    await rig.due.look()
    await rig.due.look()
    assert rig.taken == []
    assert len(rig.told.words) == 1
    assert "skipped" in rig.told.words[0]
    assert await rig.journal.jobs() == []


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize("by", [3_600.0, 9 * DAY])
async def test_a_clock_that_is_set_back_makes_nothing_run_twice_or_wait(rig: Rig, by: float) -> None:
    await rig.plan("0 9 * * *")
    await rig.plan("every 1h")
    await rig.passes(2 * DAY, 900)
    served = [one for one in rig.times if datetime.fromtimestamp(one, UTC).strftime("%H:%M") == "09:00"]
    rig.clock.jump(-by)
    if by > DAY:
        rig.restart()
    before = len(rig.taken)
    await rig.passes(by + DAY, 900)
    crons = [one.due.at for one in rig.taken if one.due is not None and one.due.plan == "cron 0 9 * * *"]
    assert len(crons) == len(set(crons))
    assert set(served) <= set(crons)
    assert max(crons) > max(served)
    hours = [
        one.ts / 1000 for one in rig.taken[before:] if one.due is not None and one.due.plan == "every 1h"
    ]
    assert len(hours) == pytest.approx((by + DAY) / 3_600, abs=2)


@pytest.mark.parametrize("by", [3_600.0, 8 * 3_600.0, 30 * DAY])
async def test_a_clock_that_is_set_forward_runs_what_it_passes_once_at_the_most(rig: Rig, by: float) -> None:
    await rig.plan("*/30 * * * *")
    await rig.passes(3_600)
    before = len(rig.taken)
    rig.clock.jump(by)
    await rig.due.look()
    await rig.due.look()
    assert len(rig.taken) == before + 1
    await rig.passes(3_600)
    assert len(rig.taken) == before + 3


async def test_a_clock_that_was_wrong_for_a_while_leaves_nothing_waiting_for_that_time(rig: Rig) -> None:
    await rig.plan("0 9 * * *")
    rig.clock.jump(365 * DAY)
    await rig.due.look()
    rig.clock.jump(-365 * DAY)
    await rig.due.look()
    await rig.passes(2 * DAY, 600)
    assert [one for one in rig.times if one < moment("2027-06-01")] == [
        moment("2027-01-15T09:00"),
        moment("2027-01-16T09:00"),
    ]


@pytest.mark.parametrize("taken_in", [False, True])
async def test_a_clock_that_is_set_back_while_nobody_runs_makes_no_second_turn_of_a_time(
    rig: Rig, taken_in: bool
) -> None:
    await rig.plan("every 1h")
    rig.end = None
    rig.clock.jump(1.1 * 3_600)
    whole, rig.journal = rig.journal, FaultyJournal(rig.journal)
    rig.restart()
    # The last write says that the time was served; the one before it is the message.
    rig.journal.fail(JournalFailure("write", 3 if taken_in else 2, times=None))
    await rig.due.look()
    assert len(rig.taken) == taken_in
    rig.journal = whole
    rig.clock.jump(-3 * 3_600)
    rig.end = ANSWERED
    await rig.go_on()
    for _ in range(4):
        await rig.due.look()
    assert len(rig.taken) == 1
    await rig.passes(3_600)
    assert len(rig.taken) == 2, "and it goes on from the time that it is now"


async def test_a_turn_that_is_open_is_known_by_the_clock_under_which_it_began(rig: Rig) -> None:
    await rig.plan("every 1h")
    rig.end = None
    await rig.passes(3_600)
    rig.clock.jump(-6 * 3_600)
    await rig.passes(2 * 3_600)
    assert len(rig.taken) == 1, "one at a time"
    await rig.journal.finish(rig.taken[0].request_id, FAILED)
    await rig.due.look()
    (job,) = await rig.journal.jobs()
    assert job.spec["failures"] == 1


# ---------------------------------------------------------------- deaths


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 12))
async def test_dead_at_any_write_around_a_due_time_it_has_one_turn(rig: Rig, at: int, when: str) -> None:
    await rig.plan("every 1h")
    await rig.plan("2027-01-15T08:30", prompt="once")
    rig.clock.jump(1.9 * 3_600)
    failure = JournalFailure("write", at, times=1, when=when)  # type: ignore[arg-type]
    after = JournalFailure("write", 1, times=None)
    journal = FaultyJournal(rig.journal)
    whole, rig.journal = rig.journal, journal
    rig.restart()
    journal.fail(failure)
    await rig.due.look()
    journal.fail(after)
    rig.journal = whole
    await rig.go_on()
    for _ in range(4):
        await rig.due.look()
    assert sorted(one.text for one in rig.taken) == ["once", "tell me 你好"]
    assert [job.spec["next"] for job in await rig.journal.jobs()] == [rig.clock.now() + 0.1 * 3_600]
    await rig.passes(3_600)
    assert len(rig.taken) == 3


async def test_a_journal_that_refuses_is_tried_again_and_said_once(rig: Rig) -> None:
    await rig.plan("every 1h")
    journal = FaultyJournal(rig.journal)
    rig.journal = journal
    rig.restart()
    await rig.due.look()
    journal.fail(JournalFailure("write", times=None))
    await rig.passes(3_600 + 300)
    assert rig.taken == []
    journal.mend()
    await rig.due.look()
    assert len(rig.taken) == 1
    assert said(rig).count("jobs have to wait") == 1


# ---------------------------------------------------------------- failures


async def test_three_failures_in_a_row_pause_a_job_and_say_so(rig: Rig) -> None:
    name = await rig.plan("every 1h")
    rig.end = FAILED
    await rig.passes(2.5 * 3_600)
    rig.end = ANSWERED
    await rig.passes(3_600)
    rig.end = FAILED
    await rig.passes(10 * 3_600)
    assert len(rig.taken) == 3 + FAILURES
    assert [words.split(":")[0] for words in rig.told.words] == [f"I've paused “tell me 你好” (job {name})"]
    assert "paused: it failed three times in a row" in (await rig.desk.listed(rig.inbound())).words
    rig.restart()
    await rig.passes(3_600)
    assert len(rig.taken) == 3 + FAILURES
    assert len(rig.told.words) == 1
    await rig.desk.command(rig.inbound(command={"name": "jobs", "args": f"resume {name.lower()}"}))
    await rig.passes(3_600)
    assert len(rig.taken) == 4 + FAILURES


async def test_a_turn_that_was_stopped_is_no_failure_and_no_success(rig: Rig) -> None:
    await rig.plan("every 1h")
    for end in (FAILED, STOPPED, FAILED, STOPPED):
        rig.end = end
        await rig.passes(3_600)
    await rig.due.look()
    assert [job.spec["failures"] for job in await rig.journal.jobs()] == [2]


# ---------------------------------------------------------------- rights


async def test_whoever_is_shut_out_has_no_jobs_run_and_the_operator_reads_why(rig: Rig) -> None:
    await rig.plan("every 1h")
    rig.lists.out.add("77")
    await rig.passes(2.5 * 3_600)
    assert rig.taken == []
    notes = [line for line in rig.log.entries if "not run" in line.message]
    assert len(notes) == 2
    assert "its person is not let in any more (blocked)" in notes[0].message
    assert notes[0].level == "warn"
    rig.lists.out.clear()
    await rig.passes(3_600)
    assert len(rig.taken) == 1


# ---------------------------------------------------------------- files of other days


async def test_a_row_that_cannot_be_read_stays_and_keeps_nobody_from_theirs(rig: Rig) -> None:
    good = await rig.plan("every 1h")
    (job,) = await rig.journal.jobs()
    await rig.journal.put_job(Job("BAD001", ChatKey.parse("tele:chat:77"), {"v": 99}))
    spec = job.spec | {
        "id": "BAD002",
        "plan": job.spec["plan"] | {"zone": "Atlantis/Deep", "kind": "cron", "said": "0 0 * * *"},
    }
    await rig.journal.put_job(Job("BAD002", ChatKey.parse("tele:chat:77"), spec))
    rig.restart()
    await rig.passes(3_600)
    assert len(rig.taken) == 1
    assert [line.details["job"] for line in rig.log.at("error")] == ["BAD001", "BAD002"]
    assert {job.id for job in await rig.journal.jobs()} == {good, "BAD001", "BAD002"}


# ---------------------------------------------------------------- years


SPRING, AUTUMN, YEAR = ("2026-03-20T00:00", 40), ("2026-09-28T00:00", 40), ("2026-01-01T00:00", 366)
SPANS = [
    ("Europe/Berlin", *SPRING),
    ("Europe/Berlin", *AUTUMN),
    *(
        pytest.param(zone, *YEAR, marks=pytest.mark.torture)
        for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
    ),
]


@pytest.mark.parametrize(("zone", "begin", "days"), SPANS)
async def test_over_restarts_and_clock_changes_each_time_has_one_turn(
    zone: str, begin: str, days: int
) -> None:
    rng = random.Random(zone)
    clock = FakeClock(moment(begin))
    rig = Rig(MemoryJournal(clock), clock)
    crons = ("30 2 * * *", "0 9 * * 1-5", "15 1,2,3 * * 0", "0 12 1 */3 *")
    jobs = {await rig.plan(words, prompt=words, timezone=zone): words for words in crons}
    await rig.plan("every 19h", prompt="every 19h", timezone=zone)
    plans = {job.spec["id"]: job.spec for job in await rig.journal.jobs() if "plan" in job.spec}
    end = clock.now() + days * DAY
    while clock.now() < end:
        clock.jump(rng.choice([600.0, 6_900.0, 6_900.0, 6_900.0]))
        if rng.random() < 0.02:
            rig.restart()
        await rig.due.look()
    by_job: dict[str, list[float]] = {}
    for one in rig.taken:
        assert one.due is not None
        by_job.setdefault(one.due.job, []).append(one.due.at)
    for name, words in jobs.items():
        expected = _expected(plans[name], moment(begin), clock.now())
        runs = by_job.get(name, [])
        assert runs == sorted(set(runs))
        missed = sum(one.due.missed for one in rig.taken if one.due is not None and one.due.job == name)
        assert set(runs) <= set(expected)
        assert len(runs) + missed == len(expected), words
    assert rig.told.words == []


def _expected(spec: dict[str, object], begin: float, end: float) -> list[float]:
    plan, found = Plan.model_validate(spec["plan"]), []
    due = plan.following(begin)
    while due is not None and due <= end:
        found.append(due)
        due = plan.following(due)
    return found
