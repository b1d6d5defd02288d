"""Runs periodic jobs with APScheduler. After a delay, a job runs once, however many runs were missed.

APScheduler uses the system's time of day. If the clock is set back, all jobs would stop until the old time is reached again. If
the clock is set forward, computing the missed runs would block the event loop. This module prevents both.
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

LOOK_EVERY = 5.0  # interval in seconds between two checks for a clock that was set back


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that runs every `seconds` seconds. An exception in a run is logged and does not prevent later runs."""

    name: str
    seconds: float
    run: Callable[[], Awaitable[object]]


class _Trigger(IntervalTrigger):  # type: ignore[misc]
    """Trigger that replaces several missed runs by one run."""

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        following: datetime = super().get_next_fire_time(previous_fire_time, now)
        passed: timedelta = max(timedelta(), now - following) // self.interval * self.interval
        return following + passed


class PeriodicJobs:
    """Runs periodic jobs while the gateway runs. `start` needs a running event loop. `stop` cancels running jobs."""

    def __init__(self, jobs: list[PeriodicJob], log: Log) -> None:
        self._log = log
        self._look: asyncio.TimerHandle | None = None
        self._stopped = False
        self._apscheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._apscheduler.add_listener(self._failed, EVENT_JOB_ERROR)
        for job in jobs:
            trigger = _Trigger(seconds=job.seconds, timezone=UTC)
            self._apscheduler.add_job(self._run, trigger, args=(job,), id=job.name, name=job.name)

    def start(self) -> None:
        self._apscheduler.start()
        self._watch()

    def stop(self) -> None:
        self._stopped = True
        if self._look is not None:
            self._look.cancel()
        if self._apscheduler.running:
            self._apscheduler.shutdown(wait=False)

    def _watch(self) -> None:
        """Reschedule each job whose next run is too far in the future, because the clock was set back."""
        now = base.datetime.now(UTC)  # APScheduler's clock
        for job in self._apscheduler.get_jobs():
            latest = now + job.trigger.interval
            if job.next_run_time > latest + timedelta(seconds=1):
                job.modify(next_run_time=latest)
        self._look = asyncio.get_running_loop().call_later(LOOK_EVERY, self._watch)

    def _failed(self, event: JobExecutionEvent) -> None:
        words = f"the periodic job {event.job_id} failed: {type(event.exception).__name__}: {event.exception}"
        self._log.write("error", words, level="error", chore=event.job_id)

    async def _run(self, job: PeriodicJob) -> None:
        # APScheduler awaits only coroutine functions, not other functions that return a coroutine.
        try:
            await job.run()
        except asyncio.CancelledError:
            # After `stop`, the error is not raised, because APScheduler would report a cancelled job as failed.
            if not self._stopped:
                raise
