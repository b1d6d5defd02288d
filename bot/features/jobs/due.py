"""Due jobs: each due time produces exactly one message from the job's person, even if the process crashes or
the clock changes.

The message and the job's next time are written in one transaction. The message's key is made of job and due
time, so the log accepts the message only once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from bot import errors
from bot.contracts.base import Level
from bot.contracts.channel import Channel, KnowsMembers
from bot.contracts.environment import Clock, Log
from bot.core import plans
from bot.core.access import Access
from bot.core.chat import Turn
from bot.core.chats import Fact
from bot.core.events import Received, TurnEndState
from bot.core.feature import Done, Runtime
from bot.core.outbox_row import Address
from bot.features.jobs.job import ASK_SECONDS, FAILURES, JobBook, JobLimits, ScheduledJob, merged
from bot.words import speaking

MOST_DOUBTS = 5
"""Min number of platform answers needed to conclude that somebody has left, because a single answer may be a
failure.
"""
ASK_AGAIN_SECONDS = 60.0
"""Interval in seconds before a platform is asked again."""


class RightToRun:
    """Checks at each due time whether the job may still run."""

    def __init__(self, access: Access, channels: Mapping[str, Channel], clock: Clock, log: Log) -> None:
        self._access = access
        self._channels = channels
        self._clock = clock
        self._log = log
        self._doubts: dict[str, int] = {}
        self._unsure: dict[str, float] = {}

    def unsure(self, job: ScheduledJob) -> bool:
        """Return True while it is unknown whether the job's person is still a member of the chat."""
        return job.id in self._unsure

    def end(self, job: ScheduledJob) -> None:
        """Forget what is known about a due time."""
        self._unsure.pop(job.id, None)

    async def barred(self, job: ScheduledJob) -> str | None:
        """Return the reason why a job must not run; "" if it may run; None if that is unknown yet."""
        standing = self._access.standing(job.person, job.chat_id, job.chat_type)
        if not standing.allowed:
            return f"its person is not let in any more ({standing.reason})"
        channel: object = self._channels.get(job.channel)
        if job.chat_type != "group" or not isinstance(channel, KnowsMembers):
            return ""
        return await self._gone_from(job, channel)

    async def _gone_from(self, job: ScheduledJob, channel: KnowsMembers) -> str | None:
        """Return, in the same form as `barred`, whether the person has left the group."""
        if self._clock.monotonic() < self._unsure.get(job.id, -math.inf):
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await channel.chats_of(job.user_id, [job.chat_key], direct=False)
                if job.chat_key not in found.chats and found.unanswered:
                    raise errors.ChannelUnreachable("the platform does not say who is in that chat")
        except (errors.ShipmateError, TimeoutError) as error:
            if job.id not in self._unsure:
                note(
                    self._log,
                    job,
                    "has to wait: nobody can say whether its person is still in that chat",
                    None,
                    level="warn",
                    cause=f"{type(error).__name__}: {error}",
                )
            self._unsure[job.id] = self._clock.monotonic() + ASK_AGAIN_SECONDS
            return None
        self._unsure.pop(job.id, None)
        doubts = 0 if job.chat_key in found.chats else self._doubts.get(job.id, 0) + 1
        self._doubts[job.id] = doubts
        if 0 < doubts < MOST_DOUBTS:
            return None
        del self._doubts[job.id]
        return "its person is not in that chat any more" if doubts else ""


def note(
    log: Log, job: ScheduledJob, what: str, due: float | None, *, level: Level = "info", **more: Any
) -> None:
    """Write a log entry about a job and its due time."""
    shown = plans.written(due, job.plan.where) if due is not None else None
    log.write(
        "schedule",
        f"job {job.id} {what}",
        level=level,
        chat_key=job.chat_key,
        job=job.id,
        due=shown,
        **more,
    )


JOB_SECONDS = 1.0
"""Interval in seconds between checks for due jobs."""


class DueJobs:
    """Appends the messages of due jobs to their chats."""

    def __init__(self, runtime: Runtime, book: JobBook, limits: JobLimits) -> None:
        self._run = runtime
        self._book = book
        self._limits = limits
        self._rights = RightToRun(runtime.access, runtime.channels, runtime.clock, runtime.log)
        self._seen = math.inf

    async def look(self) -> None:
        """Handle all jobs that are due."""
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
            return  # one message at a time: due times in between become one message afterwards
        if job.next is None:
            await self._book.remove(job)
        elif not job.paused and job.next <= now:
            await self._fire(job, job.next, now)

    def _runs(self, job: ScheduledJob) -> bool:
        """Return True while the job's last message is queued or its turn is running."""
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
            return  # membership is still unknown: the next check tries again
        elif why:
            what, level = f"not run: {why}", "warn"
        else:
            what = "due"
            inbound = job.inbound(due, missed, now).model_copy(update={"request_id": self._run.ids.ulid()})
            facts.append(Fact(job.chat_key, Received(inbound), person=inbound.user_id, id=inbound.request_id))
        await self._run.chats.get(job.chat_key)
        if self._book.get(job.id) != job:
            return  # somebody has changed the job meanwhile
        self._rights.end(job)
        self._run.chats.append(*facts, self._book.fact(after))
        note(self._run.log, job, what, due, level=level, missed=missed, user_id=job.user_id)

    def turn_ends(self, turn: Turn, state: TurnEndState) -> Done:
        """Count a job's consecutive failures. Adds a note below the turn's answer that says which missed
        times the answer covers.
        """
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
