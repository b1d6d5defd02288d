"""Runs periodic jobs with APScheduler.

APScheduler 3 skips a job that is late by more than a second, silently; here a late job runs once, however late. It goes
by the time of day: where a clock is set back, it would wait until that time has come again; where it is set forward, it would
go through each time in between, the event loop standing still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers import base
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from bot.contracts.environment import Log

LOOK_EVERY = 5.0
"""Seconds between two looks at whether the clock was set back."""
_SLACK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that runs every `seconds`. An exception is logged; the next run comes all the same."""

    name: str
    seconds: float
    run: Callable[[], Awaitable[object]]


class _Trigger(IntervalTrigger):  # type: ignore[misc]
    """Of times that have passed gives the last alone."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        following: datetime = super().get_next_fire_time(previous_fire_time, now)
        passed: timedelta = max(timedelta(), now - following) // self.interval * self.interval
        return following + passed


class PeriodicJobs:
    """Runs periodic jobs while the gateway runs."""

    def __init__(self, chores: list[PeriodicJob], log: Log) -> None:
        self._log = log
        self._look: asyncio.TimerHandle | None = None
        self._stopped = False
        self._apscheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._apscheduler.add_listener(self._failed, EVENT_JOB_ERROR)
        for chore in chores:
            self._apscheduler.add_job(
                self._run,
                _Trigger(seconds=chore.seconds, timezone=UTC),
                args=(chore,),
                id=chore.name,
                name=chore.name,
            )

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._apscheduler.start()
        self._watch()

    def stop(self) -> None:
        """Cancel what runs, and run nothing more. Safe to call without `start`."""
        self._stopped = True
        if self._look is not None:
            self._look.cancel()
        if self._apscheduler.running:
            self._apscheduler.shutdown(wait=False)

    def _watch(self) -> None:
        """Pull in jobs whose next run is too far away: the clock was set back meanwhile."""
        now = base.datetime.now(UTC)  # the clock that APScheduler goes by
        for job in self._apscheduler.get_jobs():
            latest = now + job.trigger.interval
            if job.next_run_time > latest + _SLACK:
                job.modify(next_run_time=latest)
        self._look = asyncio.get_running_loop().call_later(LOOK_EVERY, self._watch)

    def _failed(self, event: JobExecutionEvent) -> None:
        error = event.exception
        self._log.write(
            "error",
            f"the periodic job {event.job_id} failed: {type(error).__name__}: {error}",
            level="error",
            chore=event.job_id,
        )

    async def _run(self, chore: PeriodicJob) -> None:
        # APScheduler awaits what is a coroutine function by itself, and nothing that only returns a coroutine.
        try:
            await chore.run()
        except asyncio.CancelledError:
            # It would tell of a job that is cancelled by its stop as of one that failed.
            if not self._stopped:
                raise
