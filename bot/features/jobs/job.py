"""A scheduled job: what a person scheduled and when. The log stores each job."""

from __future__ import annotations

from typing import Any, Literal

from bot import text
from bot.contracts.base import ChatType, Frozen, Json
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Due, Inbound
from bot.contracts.provenance import ANYBODYS, Provenance, Taint
from bot.core.chats import Chats, Fact
from bot.core.events import FactSet
from bot.core.plans import MOST_MISSED, Plan
from bot.words import paragraph, say, times

FAILURES = 3  # number of consecutive failed turns after which a job is paused


class ScheduledJob(Frozen):
    """A scheduled job. Times are in epoch seconds.

    `next` is the next due time; None after the last due time. `paused` is "failed" if the job was paused after too many
    failures, "person" if a person paused it, and "" if it is not paused.
    """

    v: int = 1
    id: str
    prompt: str
    plan: Plan
    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    target: dict[str, str]
    user_id: str
    user_name: str | None = None
    words_of: tuple[str, ...] | None = None
    taint: Taint = Taint.NONE
    made_by: str  # id of the request whose turn created the job
    next: float | None
    failures: int = 0
    paused: Literal["", "failed", "person"] = ""

    @property
    def origin(self) -> Provenance:
        """Return the authors and the taint of all text that was in the model's context when the job was created."""
        return Provenance(frozenset(self.words_of), self.taint) if self.words_of is not None else ANYBODYS

    @property
    def person(self) -> UserRef:
        return UserRef(self.channel, self.user_id)

    @property
    def title(self) -> str:
        return text.preview(self.prompt, 60)

    def key(self, due: float) -> str:
        """Return the de-duplication key of the message for a due time."""
        # If the clock is set back, an interval job restarts and may repeat due times. The start time keeps the keys
        # different.
        since = f"{self.plan.begin:.3f}+" if self.plan.kind == "every" else ""
        return f"job:{self.id}:{since}{due:.3f}"

    def of(self, inbound: Inbound) -> bool:
        """Return True if the job belongs to the chat of this message, or to one of its threads."""
        return inbound.chat_key.contains(self.chat_key)

    def inbound(self, due: float, missed: int, now: float) -> Inbound:
        """Return the message for the due time `due`. The message also covers the `missed` due times before."""
        return Inbound(
            channel=self.channel,
            chat_id=self.chat_id,
            chat_key=self.chat_key,
            chat_type=self.chat_type,
            user_id=self.user_id,
            user_name=self.user_name,
            keys=(self.key(due),),
            ts=int(now * 1000),
            target=self.target,
            text=self.prompt,
            due=Due(
                job=self.id,
                at=due,
                plan=self.plan.describe(),
                late=max(0.0, now - due),
                missed=missed,
                words_of=self.words_of,
                taint=self.taint,
            ),
        )

    def replanned(self, now: float) -> ScheduledJob:
        """Return the job with a new due time, after the clock was set back. An interval job restarts at `now`."""
        plan = self.plan
        following = plan.following(now) if plan.kind == "cron" else None
        if self.next is None:
            return self
        if following is not None and following < self.next:
            return self.model_copy(update={"next": following})
        if plan.kind == "every" and self.next - now > plan.every:
            update = {"plan": plan.model_copy(update={"begin": now}), "next": now + plan.every}
            return self.model_copy(update=update)
        return self

    def skipped(self, due: float, missed: int, grace: float, *, unsure: bool) -> str:
        """Return the sentence about a due time that was skipped as too late. `missed` is the number of due times before it."""
        key = "jobs.skipped_membership" if unsure else "jobs.skipped"
        words = [say(key, id=self.id, title=self.title, time=times.date(due), minutes=grace / 60)]
        if missed:
            words.append(say("jobs.skipped_before", count=missed))
        if self.next is not None:
            words.append(say("jobs.skipped_next", time=times.date(self.next)))
        return paragraph(*words)


def merged(due: Due) -> str:
    """Return the sentence about the missed due times that this turn covers; "" if no due time was missed."""
    if not due.missed:
        return ""
    return say("jobs.merged_most" if due.missed >= MOST_MISSED - 1 else "jobs.merged", count=due.missed)


JOB = "job"  # kind of the `FactSet` events that store jobs


class JobBook:
    """Reads the jobs of all chats from the log."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._read: dict[str, tuple[Json | None, ScheduledJob | None]] = {}

    def all(self) -> list[ScheduledJob]:
        """Return all jobs, oldest first. Skip jobs that this version cannot read."""
        found = [job for name in self._chats.facts.all(JOB) if (job := self.get(name)) is not None]
        return sorted(found, key=lambda job: job.made_by)

    def get(self, name: str) -> ScheduledJob | None:
        """Return the job with this id; None if it does not exist or this version cannot read it."""
        spec = self._chats.facts.get(JOB, name)
        before, job = self._read.get(name, (None, None))
        if spec is before:
            return job
        try:
            job = None if spec is None else ScheduledJob.model_validate(spec)
            if job is not None:
                job.plan.following(0.0)  # raises for an invalid time zone or cron expression
        except (ValueError, KeyError):
            job = None
        self._read[name] = (spec, job)
        return job

    @staticmethod
    def fact(job: ScheduledJob, *, over: bool = False, **changes: Any) -> Fact:
        """Return the event that stores the job with these changes. If the job is `over`, the event deletes it."""
        spec = None if over else job.model_copy(update=changes).model_dump(by_alias=True, mode="json")
        return Fact(job.chat_key, FactSet(JOB, job.id, spec), job.made_by)

    async def append(self, fact: Fact) -> None:
        await self._chats.get(fact.chat)
        self._chats.append(fact)
