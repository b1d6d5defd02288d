"""Periodic jobs run, whether they are functions or coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from bot import periodic_jobs
from bot.periodic_jobs import PeriodicJob, PeriodicJobs
from bot.testing.log import MemoryLog


async def tidy(done: asyncio.Event) -> None:
    done.set()


MADE: dict[str, Callable[[asyncio.Event], Callable[[], Awaitable[None]]]] = {
    "a partial": lambda done: partial(tidy, done),
    "a function that returns a coroutine": lambda done: lambda: tidy(done),
    "a task": lambda done: lambda: asyncio.ensure_future(tidy(done)),
}


@pytest.mark.parametrize("made", MADE)
async def test_a_chore_is_done_whatever_it_is_made_of(made: str) -> None:
    done, log = asyncio.Event(), MemoryLog()
    housekeeping = PeriodicJobs([PeriodicJob("tidy", 0.01, MADE[made](done))], log)
    housekeeping.start()
    try:
        async with asyncio.timeout(90):
            await done.wait()
    finally:
        housekeeping.stop()
    assert log.at("error") == []


async def test_a_chore_that_fails_is_told_and_done_again() -> None:
    log, times, twice = MemoryLog(), [], asyncio.Event()

    async def broken() -> None:
        times.append(1)
        if len(times) > 1:
            twice.set()
        raise OSError("no space left")

    housekeeping = PeriodicJobs([PeriodicJob("tidy", 0.01, broken)], log)
    housekeeping.start()
    try:
        async with asyncio.timeout(90):
            await twice.wait()
    finally:
        housekeeping.stop()
    assert log.at("error")[0].message == "the periodic job tidy failed: OSError: no space left"


async def test_a_chore_that_is_cut_off_by_a_stop_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    log, begun, ended = MemoryLog(), asyncio.Event(), asyncio.Event()

    async def long() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    housekeeping = PeriodicJobs([PeriodicJob("tidy", 0.01, long)], log)
    housekeeping.start()
    async with asyncio.timeout(90):
        await begun.wait()
        housekeeping.stop()
        await ended.wait()
    assert log.at("error") == []
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []


async def test_chores_go_on_though_the_clock_was_set_back_by_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_jobs, "LOOK_EVERY", 0.01)
    done = asyncio.Event()

    async def tidy() -> None:
        done.set()

    housekeeping = PeriodicJobs([PeriodicJob("tidy", 0.05, tidy)], MemoryLog())
    housekeeping.start()
    # Set the state that results from a clock set back by thirty days.
    (job,) = housekeeping._apscheduler.get_jobs()
    job.modify(next_run_time=job.next_run_time + timedelta(days=30))
    async with asyncio.timeout(90):
        await done.wait()
    housekeeping.stop()
