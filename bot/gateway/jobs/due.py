"""Due jobs: each time of a job becomes one message of the person who made it, whatever happens to process and clock.

The order is what makes it once: that a time is being served is on disk before its message is, the message has a key of
job and time that the journal takes in once, and only then the time counts as served.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from bot import errors
from bot.contracts.base import Json, Level
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox
from bot.contracts.outbound import Address
from bot.core.access import Access
from bot.core.locales import Locales
from bot.features.jobs.job import FAILURES, JobLimits
from bot.features.jobs.rights import RightToRun, note
from bot.gateway.delivery import Delivery
from bot.gateway.jobs.store import JobStore, JournalJob
from bot.words import speaking


class AcceptsInbound(Protocol):
    """The way in for an inbound (`bot.gateway.intake`)."""

    async def accept(self, inbound: Inbound) -> bool: ...


class OpenChannels(Protocol):
    """Tells whether a channel has connected (`bot.gateway.backlog`); before that no job of it is due."""

    def opened(self, channel: str) -> bool: ...


class DueJobs:
    """Looks at what is due, and brings it to the intake."""

    def __init__(
        self,
        book: JobStore,
        *,
        access: Access,
        intake: AcceptsInbound,
        open_channels: OpenChannels,
        journal: Inbox,
        channels: Mapping[str, Channel],
        delivery: Delivery,
        locales: Locales,
        limits: JobLimits,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._book = book
        self._rights = RightToRun(access, channels, clock, log)
        self._intake = intake
        self._open_channels = open_channels
        self._journal = journal
        self._delivery = delivery
        self._locales = locales
        self._limits = limits
        self._clock = clock
        self._ids = ids
        self._log = log
        self._seen = math.inf
        self._trouble = False

    async def look(self) -> None:
        """See to all that is due. What the journal refuses is done at the next look."""
        async with self._book.lock:
            try:
                await self._look()
            except errors.StorageError as error:
                if not self._trouble:
                    self._log.write("schedule", "jobs have to wait", level="error", cause=str(error))
                self._trouble = True
            else:
                self._trouble = False

    async def _look(self) -> None:
        await self._book.load()
        now = self._clock.now()
        if now < self._seen:
            for job in self._book.all():
                await self._set_back(job, now)
        self._seen = now
        for job in self._book.all():
            if self._open_channels.opened(job.channel):
                with speaking(*self._locales.of_person(job.person, job.plan.zone, job.chat_type)):
                    await self._see_to(job, now)

    async def _set_back(self, job: JournalJob, now: float) -> None:
        """Plan the next time anew after the clock was set back. A time of a wall clock that comes again is found to be served."""
        if job.plan.kind == "cron" and (again := job.replanned(now)) != job:
            await self._book.put(again)

    async def _begun_anew(self, job: JournalJob, now: float) -> JournalJob:
        """Count elapsed time from here after the clock was set back. Not before a time that is being served is over: that
        one is known by the moment at which the counting began.
        """
        if job.plan.kind != "every" or (again := job.replanned(now)) == job:
            return job
        return await self._book.put(again.model_copy(update={"served": ()}))

    async def _see_to(self, job: JournalJob, now: float) -> None:
        if job.tell:
            job = await self._tell(job)
            if job.tell:
                return
        if job.open is not None:
            job = await self._ended(job, job.open)
        if job.open is not None:
            return  # one at a time: what is due meanwhile is due once, after it
        if job.firing is None:
            job = await self._begun_anew(job, now)
            if job.next is None:
                await self._book.remove(job)
                return
            if job.paused or job.next > now:
                return
            due, count = job.plan.passed(job.next, now)
            update = {"firing": due, "missed": count - 1, "next": job.plan.following(due)}
            job = await self._book.put(job.model_copy(update=update))
        await self._fire(job, job.firing or 0.0, now)

    async def _fire(self, job: JournalJob, due: float, now: float) -> None:
        if job.has_served(due):
            await self._finish_occurrence(job)
        elif now - due > self._limits.grace:
            self._note(job, "skipped: it is too late for it", due, level="warn", missed=job.missed)
            words = job.skipped(due, job.missed, self._limits.grace, unsure=self._rights.unsure(job))
            await self._finish_occurrence(job, words)
        elif (why := await self._barred(job)) is None:
            return  # nobody knows yet: at the next look
        elif why:
            self._note(job, f"not run: {why}", due, level="warn", user_id=job.user_id)
            await self._finish_occurrence(job)
        else:
            fresh = await self._intake.accept(job.inbound(due, job.missed, now))
            await self._book.put(
                job.serving(due).model_copy(update={"firing": None, "missed": 0, "open": due})
            )
            self._note(job, "due" if fresh else "was due, and is taken in already", due, missed=job.missed)

    async def _finish_occurrence(self, job: JournalJob, tell: str = "") -> None:
        """A time is over without a turn."""
        self._rights.end(job)
        if job.next is None and not tell:
            await self._book.remove(job)
        else:
            await self._book.put(job.model_copy(update={"firing": None, "missed": 0, "tell": tell}))

    async def _ended(self, job: JournalJob, due: float) -> JournalJob:
        """See whether the turn of a time is over, and what it came to."""
        key = job.key(due)
        found = await self._journal.about(job.chat_key, "", key)
        record = next((one for one in found if key in one.inbound.keys), None)
        if record is not None and record.open:
            return job
        state = record.state if record is not None else None
        failures = 0 if state == "answered" else job.failures + (state == "failed")
        update: Json = {"open": None, "failures": failures}
        if failures >= FAILURES and job.next is not None:
            update |= {"paused": "failed", "tell": job.gave_up()}
            self._note(job, f"paused: it failed {FAILURES} times in a row", due, level="warn")
        return await self._book.put(job.model_copy(update=update))

    async def _barred(self, job: JournalJob) -> str | None:
        return (
            "its chat is gone" if self._delivery.gone(self._address(job)) else await self._rights.barred(job)
        )

    async def _tell(self, job: JournalJob) -> JournalJob:
        """Say in the chat what has to be said: at least once, whatever happens. Where the platform asks to wait, later."""
        to = self._address(job)
        if self._delivery.frozen(to):
            return job
        try:
            await self._delivery.send(to, job.tell, kind="notice")
        except errors.DeliveryThrottled:
            return job
        except errors.DeliveryFailed as error:
            self._note(job, "its chat could not be told", job.next, level="warn", cause=str(error))
        return await self._book.put(job.model_copy(update={"tell": ""}))

    def _address(self, job: JournalJob) -> Address:
        """Its chat, under a name of its own."""
        return Address(job.channel, job.chat_id, job.chat_key, job.chat_type, job.target, self._ids.ulid())

    def _note(
        self, job: JournalJob, what: str, due: float | None, *, level: Level = "info", **more: Any
    ) -> None:
        note(self._log, job, what, due, level=level, **more)
