"""Due jobs: each due time becomes one message of the job's person, whatever happens to process and clock.

The message and the job's next time are one transaction, and the message's key consists of job and time, so it
is accepted once.
"""

from __future__ import annotations

import math

from bot.contracts.base import Level
from bot.core.chat import Turn
from bot.core.chats import Fact
from bot.core.events import Received, TurnEndState
from bot.core.feature import Done, Runtime
from bot.core.outbox_row import Address
from bot.features.jobs.book import JobBook
from bot.features.jobs.job import FAILURES, JobLimits, ScheduledJob, merged
from bot.features.jobs.rights import RightToRun, note
from bot.words import speaking

JOB_SECONDS = 1.0
"""Interval in seconds of the check for due jobs."""


class DueJobs:
    """Appends due jobs to their chats."""

    def __init__(self, runtime: Runtime, book: JobBook, limits: JobLimits) -> None:
        self._run = runtime
        self._book = book
        self._limits = limits
        self._rights = RightToRun(runtime.access, runtime.channels, runtime.clock, runtime.log)
        self._seen = math.inf

    async def look(self) -> None:
        """Handle everything that is due."""
        now = self._run.clock.now()
        set_back, self._seen = now < self._seen, now
        for name in [one.id for one in self._book.all()]:
            job = self._book.get(name)
            if job is not None and job.channel in self._run.channels:
                if set_back and (again := job.replanned(now)) != job:
                    job = await self._book.put(again)
                with speaking(*self._run.locales.of_person(job.person, job.plan.zone, job.chat_type)):
                    await self._see_to(job, now)

    async def _see_to(self, job: ScheduledJob, now: float) -> None:
        if self._runs(job):
            return  # one at a time: what is due meanwhile is due once, after it
        if job.next is None:
            await self._book.remove(job)
        elif not job.paused and job.next <= now:
            await self._fire(job, job.next, now)

    def _runs(self, job: ScheduledJob) -> bool:
        """Return True while the job's last message waits or runs."""
        chat = self._run.chats.loaded(job.chat_key)
        if chat is None:
            return False
        members = chat.turn.members if chat.turn is not None else ()
        return any(one.due is not None and one.due.job == job.id for one in (*chat.waiting, *members))

    async def _fire(self, job: ScheduledJob, since: float, now: float) -> None:
        due, count = job.plan.passed(since, now)
        missed = count - 1
        after = job.model_copy(update={"next": job.plan.following(due)})
        facts = list[Fact]()
        level: Level = "info"
        if await self._run.event_log.known((job.key(due),)):
            what = "was due, and is taken in already"
        elif now - due > self._limits.grace:
            what, level = "skipped: it is too late for it", "warn"
            words = after.skipped(due, missed, self._limits.grace, unsure=self._rights.unsure(job))
            name = self._run.ids.ulid()
            to = Address(job.channel, job.chat_id, job.chat_key, job.chat_type, job.target, name)
            facts += [Fact(job.chat_key, row) for row in self._run.saying.rows(name, to, words)]
        elif (why := await self._rights.barred(job)) is None:
            return  # nobody knows yet: at the next look
        elif why:
            what, level = f"not run: {why}", "warn"
        else:
            what = "due"
            inbound = job.inbound(due, missed, now).model_copy(update={"request_id": self._run.ids.ulid()})
            facts.append(Fact(job.chat_key, Received(inbound), person=inbound.user_id, id=inbound.request_id))
        await self._run.chats.get(job.chat_key)
        if self._book.get(job.id) != job:
            return  # somebody has changed it meanwhile
        self._rights.end(job)
        self._run.chats.append(*facts, self._book.fact(after))
        note(self._run.log, job, what, due, level=level, missed=missed, user_id=job.user_id)

    def turn_ends(self, turn: Turn, state: TurnEndState) -> Done:
        """Count a job's consecutive failures, and note below its answer which missed times it covers."""
        due = turn.first.due
        job = self._book.get(due.job) if due is not None else None
        if due is None or job is None:
            return Done()
        failures = 0 if state == "answered" else job.failures + (state == "failed")
        if failures < FAILURES or job.next is None:
            counted = job.model_copy(update={"failures": failures})
            return Done(
                merged(due) if state == "answered" else "",
                (self._book.fact(counted),) if counted != job else (),
            )
        note(self._run.log, job, f"paused: it failed {FAILURES} times in a row", due.at, level="warn")
        return Done(
            job.gave_up(),
            (self._book.fact(job.model_copy(update={"failures": failures, "paused": "failed"})),),
        )
