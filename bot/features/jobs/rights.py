"""Whether a job may run: its person is still admitted and still in its chat."""

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
from bot.features.jobs.job import ASK_SECONDS, ScheduledJob

MOST_DOUBTS = 5
"""Platform answers needed to believe that somebody has left, since one answer may be a failure."""
ASK_AGAIN_SECONDS = 60.0
"""Seconds before a platform is asked again."""


class RightToRun:
    """Checks each due time of a job."""

    def __init__(self, access: Access, channels: Mapping[str, Channel], clock: Clock, log: Log) -> None:
        self._access = access
        self._channels = channels
        self._clock = clock
        self._log = log
        self._doubts: dict[str, int] = {}
        self._unsure: dict[str, float] = {}

    def unsure(self, job: ScheduledJob) -> bool:
        """Return True while the membership of its person is unknown."""
        return job.id in self._unsure

    def end(self, job: ScheduledJob) -> None:
        """Forget a due time."""
        self._unsure.pop(job.id, None)

    async def barred(self, job: ScheduledJob) -> str | None:
        """Return why a job must not run, "" if it may, None if that is unknown yet."""
        standing = self._access.standing(job.person, job.chat_id, job.chat_type)
        if not standing.allowed:
            return f"its person is not let in any more ({standing.reason})"
        channel: object = self._channels.get(job.channel)
        if job.chat_type != "group" or not isinstance(channel, KnowsMembers):
            return ""
        return await self._gone_from(job, channel)

    async def _gone_from(self, job: ScheduledJob, channel: KnowsMembers) -> str | None:
        """As `barred`, for the membership of its person in the group."""
        if self._clock.monotonic() < self._unsure.get(job.id, -math.inf):
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await channel.chats_of(job.user_id, [job.chat_key], direct=False)
                if job.chat_key not in found.chats and (found.unasked or found.unanswered):
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
    """Log an event of a job and its due time."""
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
