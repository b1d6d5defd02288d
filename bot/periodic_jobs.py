"""Runs periodic jobs with APScheduler.

By default APScheduler 3 silently skips a job that is more than a second late. Here such a job runs once, however late it is. APScheduler
uses the system's time of day. If the clock were set back, all jobs would stop until the clock reaches the old time again. If the clock
were set forward, computing each missed run would block the event loop. This module corrects both cases.
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
"""Interval in seconds between two checks whether the clock was set back."""
_SLACK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A job that runs every `seconds` seconds. If a run raises an exception, the exception is logged and
    later runs still happen.
    """

    name: str
    seconds: float
    run: Callable[[], Awaitable[object]]


class _Trigger(IntervalTrigger):  # type: ignore[misc]
    """Trigger that skips all missed runs except the last."""

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
        """Start the jobs. Needs a running event loop."""
        self._apscheduler.start()
        self._watch()

    def stop(self) -> None:
        """Cancel running jobs and start no further jobs. Can be called without `start`."""
        self._stopped = True
        if self._look is not None:
            self._look.cancel()
        if self._apscheduler.running:
            self._apscheduler.shutdown(wait=False)

    def _watch(self) -> None:
        """Reschedule jobs whose next run is too far away because the clock was set back."""
        now = base.datetime.now(UTC)  # APScheduler's clock
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
        # APScheduler awaits coroutine functions only, not functions that return a coroutine.
        try:
            await chore.run()
        except asyncio.CancelledError:
            # APScheduler would report a job that our stop cancelled as failed.
            if not self._stopped:
                raise
