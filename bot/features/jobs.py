"""Scheduled jobs: at its due time, a job sends a text to the chat, as a message from the person who scheduled it.

Each due time produces at most one message, even after a crash or a change of the clock. One transaction writes the message
and the job's next due time. The message's key contains the job's id and the due time, and the log accepts each key only
once.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from bot import errors, text
from bot.contracts.approvals import OpenLoop, Viewer
from bot.contracts.base import ChatType, Frozen, Json, Level
from bot.contracts.channel import HomeSection
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ANYBODYS, Due, Inbound, Provenance, Taint
from bot.core import outgoing, plans
from bot.core.chat import Turn
from bot.core.chats import Fact
from bot.core.events import FactSet, Received, TurnEndState
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.locales import zone_named
from bot.core.outgoing import Address
from bot.core.plans import MOST_MISSED, Plan
from bot.periodic_jobs import PeriodicJob
from bot.words import DEFAULT, UTC, paragraph, say, speaking, times

JOB = "job"  # kind of the `FactSet` events that store jobs
JOB_SECONDS = 1.0  # interval in seconds between checks for due jobs
ASK_SECONDS, ASK_AGAIN_SECONDS = 15.0, 60.0
"""Timeout of a request that looks up a person on the platform, and delay before a failed lookup is repeated, in seconds."""
FAILURES = 3  # number of consecutive failed turns after which a job is paused
SHORT = 6  # number of letters of a job's short name
LONGEST = 4_000  # max characters of a job's instructions
MOST_WORDS = 50
"""Max people recorded as authors of a job's text. A text with more authors counts as written by anybody."""
PLACE = ("channel", "chat_id", "chat_key", "chat_type")
MOST_SHOWN = 10  # max jobs shown on a person's home page
UNKNOWN = "the default here; ask the person if theirs may differ"
IN_A_JOB = "A job is what runs now, and jobs neither make nor change jobs. Say what you would plan; the person can ask for it."


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
    """Ids of the authors of all text that was in the model's context when the job was created; None if anybody may be an author."""
    taint: Taint = Taint.NONE
    made_by: str  # id of the request whose turn created the job
    next: float | None
    failures: int = 0
    paused: Literal["", "failed", "person"] = ""

    @property
    def origin(self) -> Provenance:
        return Provenance(frozenset(self.words_of), self.taint) if self.words_of is not None else ANYBODYS

    @property
    def person(self) -> UserRef:
        return UserRef(self.channel, self.user_id)

    @property
    def title(self) -> str:
        return text.preview(self.prompt, 60)

    def of(self, inbound: Inbound) -> bool:
        """Return True if the job belongs to the chat of this message, or to one of its threads."""
        return inbound.chat_key.contains(self.chat_key)

    def inbound(self, due: float, missed: int, now: float, request_id: str) -> Inbound:
        """Return the message for the due time `due`. The message also covers the `missed` due times before `due`."""
        # If the clock is set back, an interval job restarts and may repeat due times. The start time makes the keys unique.
        since = f"{self.plan.begin:.3f}+" if self.plan.kind == "every" else ""
        of_job = {
            "job": self.id,
            "plan": self.plan.describe(),
            "words_of": self.words_of,
            "taint": self.taint,
        }
        return Inbound(
            **{name: getattr(self, name) for name in (*PLACE, "target", "user_id", "user_name")},
            keys=(f"job:{self.id}:{since}{due:.3f}",),
            request_id=request_id,
            ts=int(now * 1000),
            text=self.prompt,
            due=Due(at=due, late=max(0.0, now - due), missed=missed, **of_job),
        )

    def replanned(self, now: float) -> ScheduledJob:
        """Return the job with a new due time, after the clock was set back. An interval job restarts at `now`."""
        plan, update = self.plan, dict[str, Any]()
        if self.next is not None and plan.kind == "cron":
            update = {"next": min(self.next, plan.following(now) or self.next)}
        elif self.next is not None and plan.kind == "every" and self.next - now > plan.every:
            update = {"plan": plan.model_copy(update={"begin": now}), "next": now + plan.every}
        return self.model_copy(update=update)

    def line(self, *, exact: bool = False) -> str:
        """Return the job as a line of a list for people; if `exact` is True, for the model."""
        if self.paused or self.next is None:
            state = say(f"jobs.state_{_STATES[self.paused] or 'running'}")
        else:
            due = plans.written(self.next, self.plan.where) if exact else times.date(self.next)
            state = say("jobs.state_next", time=due)
        return say(
            "jobs.line",
            plan=self.plan.describe() if exact else plans.in_words(self.plan),
            who=text.preview(self.user_name or self.user_id, 60),
            id=self.id,
            zone=self.plan.zone,
            state=state,
            title=self.title,
        )

    def fact(self, *, over: bool = False, **changes: Any) -> Fact:
        """Return the event that stores the job with these changes. If the job is `over`, the event deletes it."""
        spec = None if over else self.model_copy(update=changes).model_dump(by_alias=True, mode="json")
        return Fact(self.chat_key, FactSet(JOB, self.id, spec), self.made_by)


_STATES: dict[str, Literal["", "failed", "paused"]] = {"": "", "failed": "failed", "person": "paused"}


@dataclass(eq=False)
class Jobs:
    """Appends the messages of due jobs, runs the command `/jobs`, and implements `tools.context.Jobs`."""

    run: Runtime
    _parsed: dict[str, tuple[Json, ScheduledJob | None]] = field(default_factory=dict)
    _ask_at: dict[str, float] = field(default_factory=dict)
    """For each job whose person may have left the chat, the time (monotonic seconds) of the next question to the platform."""
    _seen: float = math.inf

    def _all(self) -> list[ScheduledJob]:
        """Return all jobs, oldest first. Skip jobs that this version cannot read."""
        found = [job for name in self.run.chats.facts[JOB] if (job := self._get(name)) is not None]
        return sorted(found, key=lambda job: job.made_by)

    def _get(self, name: str) -> ScheduledJob | None:
        if (spec := self.run.chats.facts[JOB].get(name)) is None:
            return None
        before, job = self._parsed.get(name, (None, None))
        if spec is not before:
            try:
                job = ScheduledJob.model_validate(spec)
                job.plan.following(0.0)  # raises for an invalid time zone or cron expression
            except (ValueError, KeyError):
                job = None
            self._parsed[name] = spec, job
        return job

    async def _append(self, fact: Fact) -> None:
        await self.run.chats.get(fact.chat)
        self.run.chats.append(fact)

    def _note(self, job: ScheduledJob, what: str, due: float | None = None, **more: Any) -> None:
        shown = plans.written(due, job.plan.where) if due is not None else None
        facts = {"chat_key": job.chat_key, "job": job.id, "due": shown, **more}
        self.run.log.write("schedule", f"job {job.id} {what}", **facts)

    # ------------------------------------------------------------ due jobs

    async def look(self) -> None:
        """Process every job that is due."""
        now = self.run.clock.now()
        set_back, self._seen = now < self._seen, now
        for name in [one.id for one in self._all()]:
            job = self._get(name)
            if job is None or job.channel not in self.run.channels:
                continue
            if set_back and (again := job.replanned(now)) != job:
                await self._append((job := again).fact())
            chat = self.run.chats.loaded(job.chat_key)
            members = chat.turn.members if chat is not None and chat.turn is not None else ()
            theirs = (*chat.waiting, *members) if chat is not None else ()
            if any(one.due is not None and one.due.job == job.id for one in theirs):
                continue  # a job has at most one waiting message; its next message covers the due times in between
            if job.next is None:
                await self._append(job.fact(over=True))
            elif not job.paused and job.next <= now:
                with speaking(*self.run.locales.of_person(job.person, job.plan.zone, job.chat_type)):
                    await self._fire(job, job.next, now)

    async def _fire(self, job: ScheduledJob, since: float, now: float) -> None:
        due, count = job.plan.passed(since, now)
        missed, name, grace = count - 1, self.run.ids.ulid(), 60.0 * self.run.settings.schedule.grace_minutes
        after = job.model_copy(update={"next": job.plan.following(due)})
        inbound = job.inbound(due, missed, now, name)
        level: Level = "info"
        facts, what = list[Fact](), "due"
        if await self.run.event_log.known(inbound.keys):
            what = "was due, and is taken in already"
        elif now - due > grace:
            what, level = "skipped: it is too late for it", "warn"
            key = "jobs.skipped_membership" if job.id in self._ask_at else "jobs.skipped"
            words = paragraph(
                say(key, id=job.id, title=job.title, time=times.date(due), minutes=grace / 60),
                say("jobs.skipped_before", count=missed) if missed else "",
                say("jobs.skipped_next", time=times.date(after.next)) if after.next is not None else "",
            )
            rows = outgoing.rows(self.run, name, Address.of(inbound), words)
            facts += [Fact(job.chat_key, row) for row in rows]
        elif (why := await self._barred(job)) is None:
            return  # the platform has not said if the person is in the group, so a later check asks again
        elif why:
            what, level = f"not run: {why}", "warn"
        else:
            facts.append(Fact(job.chat_key, Received(inbound), person=inbound.user_id, id=name))
        await self.run.chats.get(job.chat_key)
        if self._get(job.id) != job:
            return  # somebody has changed the job in the meantime
        self._ask_at.pop(job.id, None)
        self.run.chats.append(*facts, after.fact())
        self._note(job, what, due, level=level, missed=missed, user_id=job.user_id)

    async def _barred(self, job: ScheduledJob) -> str | None:
        """Return the reason to skip a job; "" if it may run. Return None if the platform does not say who is in the group."""
        standing = self.run.access.standing(job.person, job.chat_id, job.chat_type)
        if not standing.allowed:
            return f"its person is not let in any more ({standing.reason})"
        channel = self.run.channels.get(job.channel)
        if job.chat_type != "group" or channel is None:
            return ""
        now = self.run.clock.monotonic()
        if now < self._ask_at.get(job.id, -math.inf):
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await channel.chats_of(job.user_id, [job.chat_key], direct=False)
            if found is None:
                return ""
            if job.chat_key not in found.chats and found.unanswered:
                raise errors.ChannelUnreachable("the platform does not say who is in that chat")
        except (errors.ShipmateError, TimeoutError) as error:
            if job.id not in self._ask_at:
                what = "has to wait: nobody can say whether its person is still in that chat"
                self._note(job, what, level="warn", cause=f"{type(error).__name__}: {error}")
            self._ask_at[job.id] = now + ASK_AGAIN_SECONDS
            return None
        return "" if job.chat_key in found.chats else "its person is not in that chat any more"

    def turn_ends(self, turn: Turn, state: TurnEndState) -> Done:
        """Update the job's number of consecutive failures, and pause the job after `FAILURES`. The returned note says how
        many missed due times the answer covers.
        """
        due = turn.first.due
        job = self._get(due.job) if due is not None else None
        if due is None or job is None:
            return Done()
        failures = 0 if state == "answered" else job.failures + (state == "failed")
        if failures < FAILURES or job.next is None:
            facts = (job.fact(failures=failures),) if failures != job.failures else ()
            merged = "jobs.merged_most" if due.missed >= MOST_MISSED - 1 else "jobs.merged"
            return Done(say(merged, count=due.missed) if due.missed and state == "answered" else "", facts)
        self._note(job, f"paused: it failed {FAILURES} times in a row", due.at, level="warn")
        words = say("jobs.gave_up", id=job.id, title=job.title)
        return Done(words, (job.fact(failures=failures, paused="failed"),))

    # ------------------------------------------------------------ for the model

    async def create(
        self, inbound: Inbound, prompt: str, when: str, *, timezone: str, origin: Provenance
    ) -> str:
        _attended(inbound)
        if not prompt.strip() or len(prompt) > LONGEST:
            raise errors.ToolInputInvalid(
                f"- prompt: expected from 1 to {LONGEST} characters, got {len(prompt)}. Nothing was scheduled."
            )
        zone, source = await self._zone(inbound.person, timezone.strip())
        here = (inbound.channel, inbound.chat_id)
        count = sum((job.channel, job.chat_id) == here for job in self._all())
        if count >= self.run.settings.schedule.max_per_chat:
            raise errors.ToolError(
                f"This chat has {count} jobs, and cannot have more. Nothing was scheduled; one has to be "
                "cancelled first (schedule_list shows them)."
            )
        now = self.run.clock.now()
        plan = plans.read(when, zone=zone, now=now, least=60.0 * self.run.settings.schedule.min_minutes)
        if source == UNKNOWN and self.run.settings.schedule.timezone == UTC and plans.of_a_clock(plan):
            raise errors.ToolError(
                "The person's time zone is not known. Ask them in which city they are, then try again with timezone. A "
                "time from now on needs none, with its offset (2026-03-01T09:00Z). Nothing was scheduled."
            )
        known = origin.taint < Taint.FOREIGN and len(origin.people) <= MOST_WORDS
        job = ScheduledJob(
            **{name: getattr(inbound, name) for name in (*PLACE, "user_id", "user_name")},
            id=self.run.ids.ulid()[-SHORT:],
            prompt=self.run.redact(text.clean(prompt)),
            plan=plan,
            target={name: value for name, value in inbound.target.items() if name != "reply_to"},
            words_of=tuple(sorted(origin.people)) if known else None,
            taint=origin.taint if known else Taint.FOREIGN,
            made_by=inbound.request_id,
            next=plan.following(now),
        )
        await self._append(job.fact())
        if timezone:
            self.run.locales.note_zone(inbound, zone)
        self._by(job, inbound, "made")
        moment, shown = job.next, list[str]()
        while moment is not None and len(shown) < 3:
            shown.append(plans.written(moment, plan.where))
            moment = plan.following(moment)
        return (
            f"Scheduled as job {job.id} ({plan.describe()}): {', then '.join(shown)}. Time zone: {plan.zone} "
            f"({source}). It runs here as a turn of its own with the rights of the person; what "
            f"needs an approval is refused in it. If I cannot run it in time it runs late, up to "
            f"{self.run.settings.schedule.grace_minutes:g} minutes, else it is skipped and said. Tell the person when it is due."
        )

    async def listed(self, inbound: Inbound) -> tuple[str, Provenance]:
        _attended(inbound)
        found = [job for job in self._all() if job.of(inbound)]
        origin = Provenance(frozenset(job.user_id for job in found))
        for job in found:
            origin |= job.origin
        with speaking(DEFAULT):
            return "\n".join(job.line(exact=True) for job in found) or say("jobs.none"), origin

    async def cancel(self, inbound: Inbound, job: str) -> str:
        _attended(inbound)
        with speaking(DEFAULT):
            found = self._named(inbound, job)
        if isinstance(found, str):
            raise errors.ToolError(found)
        await self._append(found.fact(over=True))
        self._by(found, inbound, "cancelled")
        # The model does not see the job's text, because another person may have written it. People see the text.
        return f"Job {found.id} is cancelled."

    async def _zone(self, person: UserRef, named: str) -> tuple[str, str]:
        known = self.run.locales.locale(person)
        if named:
            if (zone := await asyncio.to_thread(zone_named, named, self.run.clock.now())) is None:
                raise errors.ToolInputInvalid(
                    "- timezone: expected a name of the tz database such as Europe/Berlin, got "
                    f"{text.preview(named, 40)!r}. Nothing was scheduled."
                )
            return zone, "as asked for"
        if known.zone is not None and known.zone_chosen:
            return known.zone, "as the person has chosen"
        try:
            async with asyncio.timeout(ASK_SECONDS):
                told = await self.run.channels[person.channel].zone_of(person.user_id)
            if told:
                times.zone(told)
                return told, f"as {person.channel} has it for the person"
        except (errors.ShipmateError, TimeoutError, ValueError) as error:
            words, cause = "a person's time zone is not known", type(error).__name__
            self.run.log.write("schedule", words, level="debug", user_id=person.user_id, cause=cause)
        if known.zone is not None:
            return known.zone, "as the person named it before"
        return self.run.settings.schedule.timezone, UNKNOWN

    # ------------------------------------------------------------ for people

    async def command(self, inbound: Inbound) -> Done:
        """Run `/jobs [pause|resume|cancel NAME]`. Raises `errors.StorageError`."""
        words = inbound.args.split()
        if not words or words == ["list"]:
            lines = [job.line() for job in self._all() if job.of(inbound)]
            return Done("\n".join(lines) or say("jobs.none"))
        verb = words[0].lower()
        done = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}.get(verb)
        if done is None or len(words) != 2:
            return Done(say("jobs.how", prefix=self.run.manifests[inbound.channel].command_prefix))
        job = self._named(inbound, words[1], anywhere=inbound.chat_type == "direct")
        if isinstance(job, str):
            return Done(job)
        await self.run.chats.get(job.chat_key)
        moment = job.plan.following(self.run.clock.now())
        if verb == "resume" and moment is None:
            return Done(say("jobs.passed", id=job.id))
        fact = {
            "cancel": job.fact(over=True),
            "pause": job.fact(paused="person"),
            "resume": job.fact(paused="", failures=0, next=moment),
        }[verb]
        self._by(job, inbound, done)
        return Done(say(f"jobs.{done}", id=job.id, title=job.title, time=times.date(moment or 0.0)), (fact,))

    async def home(self, opened: Inbound) -> HomeSection:
        """Return this person's jobs in all chats, for the person's home page."""
        lines = [job.line() for job in self._all() if job.person == opened.person]
        more = len(lines) - MOST_SHOWN
        told = [say("home.more_jobs", count=more)] if more > 0 else []
        return HomeSection(say("home.jobs"), (*(lines[:MOST_SHOWN] or [say("home.no_jobs")]), *told))

    async def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the jobs that this person sees on the board."""
        return [
            OpenLoop(
                "job",
                job.id,
                job.chat_key,
                job.title,
                job.next or 0.0,
                job.person,
                job.user_name or "",
                why=f"{plans.in_words(job.plan)} ({job.plan.zone})",
                detail=job.prompt,
                due=None if job.paused else job.next,
                state="running" if job.next is None else _STATES[job.paused],
                acts=("resume" if job.paused else "pause", "cancel") if viewer.owns(job.person) else (),
            )
            for job in self._all()
            if viewer.sees(job.person, job.chat_key)
        ]

    def _named(self, inbound: Inbound, name: str, *, anywhere: bool = False) -> ScheduledJob | str:
        """Return the job of this name, or a sentence about why the person must not change it. If `anywhere` is True, also
        search the person's jobs in other chats.
        """
        job = self._get(name.strip().upper())
        may = job is not None and (
            job.person == inbound.person or self.run.access.is_operator(inbound.person)
        )
        if job is None or not (job.of(inbound) or (anywhere and may)):
            here = ", ".join(one.id for one in self._all() if one.of(inbound))
            return say("jobs.unknown", names=here) if here else say("jobs.none")
        return job if may else say("jobs.not_yours", id=job.id)

    def _by(self, job: ScheduledJob, inbound: Inbound, what: str) -> None:
        self._note(job, what, by=str(inbound.person), plan=job.plan.describe())


def _attended(inbound: Inbound) -> None:
    if inbound.due is not None:
        raise errors.ToolError(IN_A_JOB)


def _build(runtime: Runtime) -> Hooks:
    jobs = Jobs(runtime)
    return Hooks(
        commands={"jobs": Command(jobs.command)},
        ports={"jobs": jobs},
        periodic=(PeriodicJob("look at what is due", JOB_SECONDS, jobs.look),),
        turn_ends={"job": jobs.turn_ends},
        home={2: jobs.home},
        waiting=jobs.waiting,
    )


FEATURE = Feature("jobs", _build)
