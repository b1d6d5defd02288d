"""Due jobs: each time of a job becomes one message of the person who made it, whatever happens to process and clock.

The order is what makes it once: that a time is being served is on disk before its message is, the message has a key of
job and time that the journal takes in once, and only then the time counts as served.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Protocol

from bot import errors
from bot.contracts.base import Json, Level
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.inbound import Due, Inbound
from bot.contracts.journal import Inbox
from bot.contracts.outbound import Address
from bot.contracts.recall import KnowsMembers
from bot.core import plans
from bot.core.access import Access
from bot.core.locales import Locales
from bot.core.plans import MOST_MISSED
from bot.gateway.delivery import Delivery
from bot.gateway.jobs.store import ASK_SECONDS, JobLimits, JobStore, ScheduledJob
from bot.words import paragraph, say, speaking, times

FAILURES = 3
"""So many in a row pause a job."""
MOST_DOUBTS = 5
"""A platform is asked so often before it is believed that somebody has left: it may only have failed to answer."""
ASK_AGAIN_SECONDS = 60.0
"""Until a platform that does not say who is in a chat is asked again."""


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
        self._access = access
        self._intake = intake
        self._open_channels = open_channels
        self._journal = journal
        self._channels = channels
        self._delivery = delivery
        self._locales = locales
        self._limits = limits
        self._clock = clock
        self._ids = ids
        self._log = log
        self._seen = math.inf
        self._doubts: dict[str, int] = {}
        self._unsure: dict[str, float] = {}
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

    async def _set_back(self, job: ScheduledJob, now: float) -> None:
        """Plan the next time anew after the clock was set back, so that the job does not wait for that long. A time of a
        wall clock that comes again is found to be served.
        """
        if job.next is None or job.plan.kind != "cron":
            return
        following = job.plan.following(now)
        if following is not None and following < job.next:
            await self._book.put(job.model_copy(update={"next": following}))

    async def _begun_anew(self, job: ScheduledJob, now: float) -> ScheduledJob:
        """Count elapsed time from here after the clock was set back. Not before a time that is being served is over: that
        one is known by the moment at which the counting began.
        """
        plan = job.plan
        if plan.kind != "every" or job.next is None or job.next - now <= plan.every:
            return job
        update = {"plan": plan.model_copy(update={"begin": now}), "next": now + plan.every, "served": ()}
        return await self._book.put(job.model_copy(update=update))

    async def _see_to(self, job: ScheduledJob, now: float) -> None:
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

    async def _fire(self, job: ScheduledJob, due: float, now: float) -> None:
        if job.has_served(due):
            await self._finish_occurrence(job)
        elif now - due > self._limits.grace:
            self._note(job, "skipped: it is too late for it", due, level="warn", missed=job.missed)
            await self._finish_occurrence(job, self._skipped(job, due))
        elif (why := await self._barred(job)) is None:
            return  # nobody knows yet: at the next look
        elif why:
            self._note(job, f"not run: {why}", due, level="warn", user_id=job.user_id)
            await self._finish_occurrence(job)
        else:
            fresh = await self._intake.accept(_inbound(job, due, now))
            await self._book.put(
                job.serving(due).model_copy(update={"firing": None, "missed": 0, "open": due})
            )
            self._note(job, "due" if fresh else "was due, and is taken in already", due, missed=job.missed)

    async def _finish_occurrence(self, job: ScheduledJob, tell: str = "") -> None:
        """A time is over without a turn."""
        self._unsure.pop(job.id, None)
        if job.next is None and not tell:
            await self._book.remove(job)
        else:
            await self._book.put(job.model_copy(update={"firing": None, "missed": 0, "tell": tell}))

    async def _ended(self, job: ScheduledJob, due: float) -> ScheduledJob:
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
            update |= {"paused": "failed", "tell": self._gave_up(job)}
            self._note(job, f"paused: it failed {FAILURES} times in a row", due, level="warn")
        return await self._book.put(job.model_copy(update=update))

    async def _barred(self, job: ScheduledJob) -> str | None:
        """Why a job must not run, "" where it may; None where that is not clear yet."""
        standing = self._access.standing(job.person, job.chat_id, job.chat_type)
        if not standing.allowed:
            return f"its person is not let in any more ({standing.reason})"
        if self._delivery.gone(self._address(job)):
            return "its chat is gone"
        channel: object = self._channels.get(job.channel)
        if job.chat_type != "group" or not isinstance(channel, KnowsMembers):
            return ""
        return await self._gone_from(job, channel)

    async def _gone_from(self, job: ScheduledJob, channel: KnowsMembers) -> str | None:
        """As `_barred`, of whether its person is in its group."""
        if self._clock.monotonic() < self._unsure.get(job.id, -math.inf):
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await channel.chats_of(job.user_id, [job.chat_key], direct=False)
                if job.chat_key not in found.chats and (found.unasked or found.unanswered):
                    raise errors.ChannelUnreachable("the platform does not say who is in that chat")
        except (errors.ShipmateError, TimeoutError) as error:
            if job.id not in self._unsure:
                self._note(
                    job,
                    "has to wait: nobody can say whether its person is still in that chat",
                    job.firing,
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

    async def _tell(self, job: ScheduledJob) -> ScheduledJob:
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

    def _address(self, job: ScheduledJob) -> Address:
        """Its chat, under a name of its own."""
        return Address(job.channel, job.chat_id, job.chat_key, job.chat_type, job.target, self._ids.ulid())

    def _skipped(self, job: ScheduledJob, due: float) -> str:
        key = "jobs.skipped_membership" if job.id in self._unsure else "jobs.skipped"
        minutes = self._limits.grace / 60
        words = [say(key, id=job.id, title=job.title, time=times.date(due), minutes=minutes)]
        if job.missed:
            words.append(say("jobs.skipped_before", count=job.missed))
        if job.next is not None:
            words.append(say("jobs.skipped_next", time=times.date(job.next)))
        return paragraph(*words)

    def _gave_up(self, job: ScheduledJob) -> str:
        return say("jobs.gave_up", id=job.id, title=job.title)

    def _note(
        self, job: ScheduledJob, what: str, due: float | None, *, level: Level = "info", **more: Any
    ) -> None:
        shown = plans.written(due, job.plan.where) if due is not None else None
        self._log.write(
            "schedule",
            f"job {job.id} {what}",
            level=level,
            chat_key=job.chat_key,
            job=job.id,
            due=shown,
            **more,
        )


def merged(due: Due) -> str:
    """The sentence about times of a job that have no turn but this one; "" where there are none."""
    if not due.missed:
        return ""
    return say("jobs.merged_most" if due.missed >= MOST_MISSED - 1 else "jobs.merged", count=due.missed)


def _inbound(job: ScheduledJob, due: float, now: float) -> Inbound:
    return Inbound(
        channel=job.channel,
        chat_id=job.chat_id,
        chat_key=job.chat_key,
        chat_type=job.chat_type,
        user_id=job.user_id,
        user_name=job.user_name,
        keys=(job.key(due),),
        ts=int(now * 1000),
        target=job.target,
        text=job.prompt,
        due=Due(
            job=job.id,
            at=due,
            plan=job.plan.describe(),
            late=max(0.0, now - due),
            missed=job.missed,
            words_of=job.words_of,
            taint=job.taint,
        ),
    )
