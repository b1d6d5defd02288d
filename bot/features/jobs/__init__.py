"""Scheduled jobs: at its due time, a job sends a text to the chat, as a message from the person who scheduled it.

Each due time produces at most one message, even after a crash or a change of the clock. One transaction writes the message
and the job's next due time. The message's key contains the job's id and the due time, and the log accepts each key only
once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from bot import errors, text
from bot.contracts.base import Level
from bot.contracts.channel import HomeSection, KnowsMembers, KnowsZones
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.provenance import Provenance, Taint
from bot.contracts.waiting import LoopState, OpenLoop, Viewer
from bot.core import plans
from bot.core.chat import Turn
from bot.core.chats import Fact
from bot.core.events import Received, TurnEndState
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.core.locales import zone_named
from bot.core.outgoing import Address
from bot.features.jobs.job import FAILURES, JobBook, ScheduledJob, merged
from bot.periodic_jobs import PeriodicJob
from bot.tools.context import JobRequest
from bot.words import DEFAULT, UTC, say, speaking, times

JOB_SECONDS = 1.0  # interval in seconds between checks for due jobs
ASK_SECONDS, ASK_AGAIN_SECONDS = 15.0, 60.0
"""Timeout in seconds of a question to the platform about a person, and seconds until a failed question is repeated."""
SHORT = 6  # number of letters of a job's short name
LONGEST = 4_000  # max characters of a job's instructions
MOST_WORDS = 50
"""Max people recorded as authors of a job's text. A text with more authors counts as written by anybody."""
MOST_SHOWN = 10  # max jobs shown on a person's home page
STATES: Mapping[str, LoopState] = {"": "", "failed": "failed", "person": "paused"}
UNKNOWN = "the default here; ask the person if theirs may differ"
IN_A_JOB = "A job is what runs now, and jobs neither make nor change jobs. Say what you would plan; the person can ask for it."


def note(
    log: Log, job: ScheduledJob, what: str, due: float | None, *, level: Level = "info", **more: Any
) -> None:
    """Write a log entry about a job and one of its due times."""
    shown = plans.written(due, job.plan.where) if due is not None else None
    words = f"job {job.id} {what}"
    log.write("schedule", words, level=level, chat_key=job.chat_key, job=job.id, due=shown, **more)


class DueJobs:
    """Appends the message of each due job to the job's chat."""

    def __init__(self, runtime: Runtime, book: JobBook) -> None:
        self._run = runtime
        self._book = book
        self._grace = 60.0 * runtime.settings.schedule.grace_minutes
        self._unsure: dict[str, float] = {}
        """Time (monotonic seconds) of the next question to the platform, by id of a job whose person may have left the chat."""
        self._seen = math.inf

    async def look(self) -> None:
        """Process every job that is due."""
        now = self._run.clock.now()
        set_back, self._seen = now < self._seen, now
        for name in [one.id for one in self._book.all()]:
            job = self._book.get(name)
            if job is None or job.channel not in self._run.channels:
                continue
            if set_back and (again := job.replanned(now)) != job:
                await self._book.append(self._book.fact(job := again))
            if self._runs(job):
                continue  # a job has at most one waiting message; its next message covers the due times in between
            if job.next is None:
                await self._book.append(self._book.fact(job, over=True))
            elif not job.paused and job.next <= now:
                with speaking(*self._run.locales.of_person(job.person, job.plan.zone, job.chat_type)):
                    await self._fire(job, job.next, now)

    def _runs(self, job: ScheduledJob) -> bool:
        """Return True while the job's last message waits or its turn runs."""
        chat = self._run.chats.loaded(job.chat_key)
        if chat is None:
            return False
        members = chat.turn.members if chat.turn is not None else ()
        return any(one.due is not None and one.due.job == job.id for one in (*chat.waiting, *members))

    async def _fire(self, job: ScheduledJob, since: float, now: float) -> None:
        due, count = job.plan.passed(since, now)
        missed, name = count - 1, self._run.ids.ulid()
        after = job.model_copy(update={"next": job.plan.following(due)})
        facts, what = list[Fact](), "due"
        level: Level = "info"
        if await self._run.event_log.known((job.key(due),)):
            what = "was due, and is taken in already"
        elif now - due > self._grace:
            what, level = "skipped: it is too late for it", "warn"
            words = after.skipped(due, missed, self._grace, unsure=job.id in self._unsure)
            to = Address(job.channel, job.chat_id, job.chat_key, job.chat_type, job.target, name)
            facts += [Fact(job.chat_key, row) for row in self._run.saying.rows(name, to, words)]
        elif (why := await self._barred(job)) is None:
            return  # the platform has not said if the person is in the group, so the next check asks again
        elif why:
            what, level = f"not run: {why}", "warn"
        else:
            inbound = job.inbound(due, missed, now).model_copy(update={"request_id": name})
            facts.append(Fact(job.chat_key, Received(inbound), person=inbound.user_id, id=name))
        await self._run.chats.get(job.chat_key)
        if self._book.get(job.id) != job:
            return  # somebody has changed the job in the meantime
        self._unsure.pop(job.id, None)
        self._run.chats.append(*facts, self._book.fact(after))
        note(self._run.log, job, what, due, level=level, missed=missed, user_id=job.user_id)

    async def _barred(self, job: ScheduledJob) -> str | None:
        """Return why a job must not run; "" if it may run. Return None if the platform does not say who is in the group."""
        standing = self._run.access.standing(job.person, job.chat_id, job.chat_type)
        if not standing.allowed:
            return f"its person is not let in any more ({standing.reason})"
        channel: object = self._run.channels.get(job.channel)
        if job.chat_type != "group" or not isinstance(channel, KnowsMembers):
            return ""
        now = self._run.clock.monotonic()
        if now < self._unsure.get(job.id, -math.inf):
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await channel.chats_of(job.user_id, [job.chat_key], direct=False)
            if job.chat_key not in found.chats and found.unanswered:
                raise errors.ChannelUnreachable("the platform does not say who is in that chat")
        except (errors.ShipmateError, TimeoutError) as error:
            if job.id not in self._unsure:
                what = "has to wait: nobody can say whether its person is still in that chat"
                cause = f"{type(error).__name__}: {error}"
                note(self._run.log, job, what, None, level="warn", cause=cause)
            self._unsure[job.id] = now + ASK_AGAIN_SECONDS
            return None
        return "" if job.chat_key in found.chats else "its person is not in that chat any more"

    def turn_ends(self, turn: Turn, state: TurnEndState) -> Done:
        """Update the job's number of consecutive failures, and pause the job after `FAILURES`. The returned note says how
        many missed due times the answer covers.
        """
        due = turn.first.due
        job = self._book.get(due.job) if due is not None else None
        if due is None or job is None:
            return Done()
        failures = 0 if state == "answered" else job.failures + (state == "failed")
        if failures < FAILURES or job.next is None:
            facts = (self._book.fact(job, failures=failures),) if failures != job.failures else ()
            return Done(merged(due) if state == "answered" else "", facts)
        note(self._run.log, job, f"paused: it failed {FAILURES} times in a row", due.at, level="warn")
        words = say("jobs.gave_up", id=job.id, title=job.title)
        return Done(words, (self._book.fact(job, failures=failures, paused="failed"),))


class JobService:
    """Implements `tools.context.Jobs`, and runs the command `/jobs`."""

    def __init__(self, runtime: Runtime, book: JobBook) -> None:
        self._run = runtime
        self._book = book

    async def create(self, asked: JobRequest) -> str:
        inbound, limits = asked.inbound, self._run.settings.schedule
        _attended(inbound)
        if not asked.prompt.strip() or len(asked.prompt) > LONGEST:
            raise errors.ToolInputInvalid(
                f"- prompt: expected from 1 to {LONGEST} characters, got {len(asked.prompt)}. Nothing was scheduled."
            )
        zone, source = await self._zone(asked)
        here = (inbound.channel, inbound.chat_id)
        count = sum((job.channel, job.chat_id) == here for job in self._book.all())
        if count >= limits.max_per_chat:
            raise errors.ToolError(
                f"This chat has {count} jobs, and cannot have more. Nothing was scheduled; one has to be "
                "cancelled first (schedule_list shows them)."
            )
        now = self._run.clock.now()
        plan = plans.read(asked.when, zone=zone, now=now, least=60.0 * limits.min_minutes)
        if source == UNKNOWN and limits.timezone == UTC and plans.of_a_clock(plan):
            raise errors.ToolError(
                "The person's time zone is not known. Ask them in which city they are, then try again with timezone. A "
                "time from now on needs none, with its offset (2026-03-01T09:00Z). Nothing was scheduled."
            )
        job = self._made(asked, plan, now)
        await self._book.append(self._book.fact(job))
        if asked.timezone:
            self._run.locales.note_zone(inbound, zone)
        self._note(job, inbound, "made")
        return self._confirmation(job, source)

    def _made(self, asked: JobRequest, plan: plans.Plan, now: float) -> ScheduledJob:
        inbound, origin = asked.inbound, asked.origin
        known = origin.taint < Taint.FOREIGN and len(origin.people) <= MOST_WORDS
        while self._book.get(name := self._run.ids.ulid()[-SHORT:]) is not None:
            pass
        return ScheduledJob(
            id=name,
            prompt=self._run.redact(text.clean(asked.prompt)),
            plan=plan,
            channel=inbound.channel,
            chat_id=inbound.chat_id,
            chat_key=inbound.chat_key,
            chat_type=inbound.chat_type,
            target={name: value for name, value in inbound.target.items() if name != "reply_to"},
            user_id=inbound.user_id,
            user_name=inbound.user_name,
            words_of=tuple(sorted(origin.people)) if known else None,
            taint=origin.taint if known else Taint.FOREIGN,
            made_by=inbound.request_id,
            next=plan.following(now),
        )

    def _confirmation(self, job: ScheduledJob, source: str) -> str:
        where, moment, times = job.plan.where, job.next, list[str]()
        while moment is not None and len(times) < 3:
            times.append(plans.written(moment, where))
            moment = job.plan.following(moment)
        return (
            f"Scheduled as job {job.id} ({job.plan.describe()}): {', then '.join(times)}. Time zone: {job.plan.zone} "
            f"({source}).{plans.remark(job.plan)} It runs here as a turn of its own with the rights of the person; what "
            f"needs an approval is refused in it. If I cannot run it in time it runs late, up to "
            f"{self._run.settings.schedule.grace_minutes:g} minutes, else it is skipped and said. Tell the person when it is due."
        )

    async def listed(self, inbound: Inbound) -> tuple[str, Provenance]:
        _attended(inbound)
        with speaking(DEFAULT):
            return self._list(inbound, _exact)

    async def cancel(self, inbound: Inbound, job: str) -> str:
        _attended(inbound)
        with speaking(DEFAULT):
            found = self._named(inbound, job)
        if isinstance(found, str):
            raise errors.ToolError(found)
        await self._book.append(self._book.fact(found, over=True))
        self._note(found, inbound, "cancelled")
        # The model does not see the job's text, because another person may have written it. People see the text.
        return f"Job {found.id} is cancelled."

    async def _zone(self, asked: JobRequest) -> tuple[str, str]:
        person = asked.inbound.person
        known = self._run.locales.locale(person)
        if named := asked.timezone.strip():
            if (zone := await asyncio.to_thread(zone_named, named, self._run.clock.now())) is None:
                raise errors.ToolInputInvalid(
                    "- timezone: expected a name of the tz database such as Europe/Berlin, got "
                    f"{text.preview(named, 40)!r}. Nothing was scheduled."
                )
            return zone, "as asked for"
        if known.zone is not None and known.zone_chosen:
            return known.zone, "as the person has chosen"
        if told := await self._platform(person.channel, person.user_id):
            return told, f"as {person.channel} has it for the person"
        if known.zone is not None:
            return known.zone, "as the person named it before"
        return self._run.settings.schedule.timezone, UNKNOWN

    async def _platform(self, channel: str, user_id: str) -> str:
        knows: object = self._run.channels.get(channel)
        if not isinstance(knows, KnowsZones):
            return ""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                told = await knows.zone_of(user_id) or ""
            times.zone(told)
        except (errors.ShipmateError, TimeoutError, ValueError) as error:
            self._run.log.write(
                "schedule",
                "a person's time zone is not known",
                level="debug",
                user_id=user_id,
                cause=type(error).__name__,
            )
            return ""
        return told

    async def command(self, inbound: Inbound) -> Done:
        """Run `/jobs [pause|resume|cancel NAME]`. Raises `errors.StorageError`."""
        words = inbound.args.split()
        if not words or words == ["list"]:
            return Done(self._list(inbound, _shown)[0])
        verb = words[0].lower()
        if verb not in {"pause", "resume", "cancel"} or len(words) != 2:
            manifest = self._run.manifests.get(inbound.channel)
            return Done(say("jobs.how", prefix=manifest.command_prefix if manifest is not None else "/"))
        job = self._named(inbound, words[1], anywhere=inbound.chat_type == "direct")
        if isinstance(job, str):
            return Done(job)
        await self._run.chats.get(job.chat_key)
        return self._changed(job, inbound, verb)

    def _changed(self, job: ScheduledJob, inbound: Inbound, verb: str) -> Done:
        moment = job.plan.following(self._run.clock.now()) if verb == "resume" else None
        if verb == "resume" and moment is None:
            return Done(say("jobs.passed", id=job.id))
        if verb == "cancel":
            done = Done(say("jobs.cancelled", id=job.id, title=job.title), (self._book.fact(job, over=True),))
        elif moment is None:
            done = Done(say("jobs.paused", id=job.id), (self._book.fact(job, paused="person"),))
        else:
            fact = self._book.fact(job, paused="", failures=0, next=moment)
            done = Done(say("jobs.resumed", id=job.id, time=times.date(moment)), (fact,))
        self._note(job, inbound, {"cancel": "cancelled", "pause": "paused", "resume": "resumed"}[verb])
        return done

    async def home(self, opened: Inbound) -> HomeSection:
        """Return this person's jobs in all chats, for the person's home page."""
        lines = [_line(job, _shown) for job in self._book.all() if job.person == opened.person]
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
                state="running" if job.next is None else STATES[job.paused],
                acts=(("resume", "cancel") if job.paused else ("pause", "cancel"))
                if viewer.owns(job.person)
                else (),
            )
            for job in self._book.all()
            if viewer.sees(job.person, job.chat_key)
        ]

    def _list(self, inbound: Inbound, when: Callable[[ScheduledJob, float], str]) -> tuple[str, Provenance]:
        found = [job for job in self._book.all() if job.of(inbound)]
        origin = Provenance(frozenset(job.user_id for job in found))
        for job in found:
            origin |= job.origin
        return "\n".join(_line(job, when) for job in found) or say("jobs.none"), origin

    def _named(self, inbound: Inbound, name: str, *, anywhere: bool = False) -> ScheduledJob | str:
        """Return the job of this name, or the sentence that says why the person may not change it. `anywhere` includes the
        person's jobs in other chats.
        """
        job = self._book.get(name.strip().upper())
        may = job is not None and (
            job.person == inbound.person or self._run.access.is_operator(inbound.person)
        )
        if job is None or not (job.of(inbound) or (anywhere and may)):
            here = ", ".join(one.id for one in self._book.all() if one.of(inbound))
            return say("jobs.unknown", names=here) if here else say("jobs.none")
        if not may:
            return say("jobs.not_yours", id=job.id)
        return job

    def _note(self, job: ScheduledJob, inbound: Inbound, what: str) -> None:
        plan = job.plan.describe()
        note(self._run.log, job, what, None, by=str(inbound.person), plan=plan)


def _attended(inbound: Inbound) -> None:
    if inbound.due is not None:
        raise errors.ToolError(IN_A_JOB)


def _exact(job: ScheduledJob, due: float) -> str:
    return plans.written(due, job.plan.where)


def _shown(_: ScheduledJob, due: float) -> str:
    return times.date(due)


def _line(job: ScheduledJob, when: Callable[[ScheduledJob, float], str]) -> str:
    who = job.user_name or job.user_id
    if job.paused:
        state = say("jobs.state_failed") if job.paused == "failed" else say("jobs.state_paused")
    else:
        state = (
            say("jobs.state_running")
            if job.next is None
            else say("jobs.state_next", time=when(job, job.next))
        )
    return say(
        "jobs.line",
        id=job.id,
        plan=job.plan.describe() if when is _exact else plans.in_words(job.plan),
        zone=job.plan.zone,
        state=state,
        who=text.preview(who, 60),
        title=job.title,
    )


def _build(runtime: Runtime) -> Hooks:
    book = JobBook(runtime.chats)
    due, service = DueJobs(runtime, book), JobService(runtime, book)
    return Hooks(
        commands={"jobs": Command(service.command)},
        ports={"jobs": service},
        periodic=(PeriodicJob("look at what is due", JOB_SECONDS, due.look),),
        turn_ends=due.turn_ends,
        home={2: service.home},
        waiting=service.waiting,
    )


FEATURE = Feature("jobs", _build)
