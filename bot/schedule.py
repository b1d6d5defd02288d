"""The clock of housekeeping: APScheduler calls, what it calls decides.

APScheduler 3 skips a job that is late by more than a second, silently; here a late job runs once, however late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC

from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bot.contracts import Log


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to be done every `seconds`. What it raises is logged; the next time comes all the same."""

    name: str
    seconds: float
    run: Callable[[], Awaitable[None]]


class Housekeeping:
    """Runs chores while the gateway runs."""

    def __init__(self, chores: list[Chore], log: Log) -> None:
        self._log = log
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._scheduler.add_listener(self._failed, EVENT_JOB_ERROR)
        for chore in chores:
            self._scheduler.add_job(
                _done, "interval", args=(chore,), seconds=chore.seconds, id=chore.name, name=chore.name
            )

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """End. Safe to call without `start`."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _failed(self, event: JobExecutionEvent) -> None:
        error = event.exception
        self._log.write(
            "error",
            f"the chore {event.job_id} failed: {type(error).__name__}: {error}",
            level="error",
            chore=event.job_id,
        )


async def _done(chore: Chore) -> None:
    # APScheduler awaits what is a coroutine function by itself, and nothing that only returns a coroutine.
    await chore.run()
