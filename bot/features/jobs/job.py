"""A job: what a person has planned for later, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot import text
from bot.contracts.base import ChatType, Frozen
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Due, Inbound
from bot.contracts.provenance import ANYBODYS, Provenance, Taint
from bot.core.plans import MOST_MISSED, Plan
from bot.words import paragraph, say, times

ASK_SECONDS = 15.0
"""Timeout for a platform to say something of a person."""
FAILURES = 3
"""Limit of failed turns in a row: then a job is paused."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """`most` jobs in one chat; `least` seconds between two times of one; `grace` seconds that one may run late."""

    most: int = 20
    least: float = 300.0
    grace: float = 7_200.0


class ScheduledJob(Frozen):
    """One job. Times are epoch seconds.

    `next` is the time that is waited for; None: the turn of its last one is not over. `paused` says whether it is, for its failures or
    by a person.
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
    made_by: str
    """The requestId of the turn that made it."""
    next: float | None
    failures: int = 0
    paused: Literal["", "failed", "person"] = ""

    @property
    def origin(self) -> Provenance:
        """The people whose words were in view when it was made."""
        return Provenance(frozenset(self.words_of), self.taint) if self.words_of is not None else ANYBODYS

    @property
    def person(self) -> UserRef:
        return UserRef(self.channel, self.user_id)

    @property
    def title(self) -> str:
        return text.preview(self.prompt, 60)

    def key(self, due: float) -> str:
        """The key of the inbound of one due time: the log takes in none twice."""
        # What counts elapsed time begins anew where a clock was set back, and then comes to the same times again.
        since = f"{self.plan.begin:.3f}+" if self.plan.kind == "every" else ""
        return f"job:{self.id}:{since}{due:.3f}"

    def of(self, inbound: Inbound) -> bool:
        """True where it belongs to the place of a message, or to a thread there."""
        return inbound.chat_key.contains(self.chat_key)

    def inbound(self, due: float, missed: int, now: float) -> Inbound:
        """The message of one due time, with `missed` times before it for which there is none."""
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
        """As it is planned once the clock was set back, so that it does not wait for that long. A time of a wall clock that comes
        again is known by its key; elapsed time is counted from now on.
        """
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
        """The words on a time for which it is too late, as are `missed` before it."""
        key = "jobs.skipped_membership" if unsure else "jobs.skipped"
        words = [say(key, id=self.id, title=self.title, time=times.date(due), minutes=grace / 60)]
        if missed:
            words.append(say("jobs.skipped_before", count=missed))
        if self.next is not None:
            words.append(say("jobs.skipped_next", time=times.date(self.next)))
        return paragraph(*words)

    def gave_up(self) -> str:
        """The words on a job that is paused for its failures."""
        return say("jobs.gave_up", id=self.id, title=self.title)


def merged(due: Due) -> str:
    """The sentence about times of a job that have no turn but this one; "" where there are none."""
    if not due.missed:
        return ""
    return say("jobs.merged_most" if due.missed >= MOST_MISSED - 1 else "jobs.merged", count=due.missed)
