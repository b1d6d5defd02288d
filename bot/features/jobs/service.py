"""Creates, lists and cancels jobs for the model and for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bot import errors, text
from bot.contracts.channel import Channel, KnowsZones
from bot.contracts.environment import Clock, Ids, Log, Redact
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.provenance import Provenance, Taint
from bot.contracts.waiting import LoopState, OpenLoop, Viewer
from bot.core import plans
from bot.core.access import Access
from bot.core.locales import Locales, zone_named
from bot.features.jobs.job import ASK_SECONDS, JobBook, JobLimits, ScheduledJob
from bot.tools.ports import JobList, JobRequest
from bot.words import DEFAULT, UTC, say, speaking, times

SHORT = 6
"""Number of letters of a job's short name."""
LONGEST = 4_000
"""Max characters of a job's instructions."""
MOST_WORDS = 50
"""Max people recorded as sources of a job. With more people, the job counts as written by anybody."""
STATES: Mapping[str, LoopState] = {"": "", "failed": "failed", "person": "paused"}
UNKNOWN = "the default here; ask the person if theirs may differ"
IN_A_JOB = "A job is what runs now, and jobs neither make nor change jobs. Say what you would plan; the person can ask for it."


class JobService:
    """Implements `tools.ports.Jobs` and the command `/jobs`."""

    def __init__(
        self,
        book: JobBook,
        *,
        access: Access,
        channels: Mapping[str, Channel],
        limits: JobLimits,
        locales: Locales,
        timezone: str,
        redact: Redact,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._book = book
        self._access = access
        self._channels = channels
        self._limits = limits
        self._locales = locales
        self._timezone = timezone
        self._redact = redact
        self._clock = clock
        self._ids = ids
        self._log = log

    # ------------------------------------------------------------ for the model

    async def create(self, asked: JobRequest) -> str:
        inbound = asked.inbound
        _attended(inbound)
        if not asked.prompt.strip() or len(asked.prompt) > LONGEST:
            raise errors.ToolInputInvalid(
                f"- prompt: expected from 1 to {LONGEST} characters, got {len(asked.prompt)}. Nothing was scheduled."
            )
        zone, source = await self._zone(asked)
        same = [
            job
            for job in self._book.all()
            if (job.channel, job.chat_id) == (inbound.channel, inbound.chat_id)
        ]
        if len(same) >= self._limits.most:
            raise errors.ToolError(
                f"This chat has {len(same)} jobs, and cannot have more. Nothing was scheduled; one has to be "
                "cancelled first (schedule_list shows them)."
            )
        now = self._clock.now()
        plan = plans.read(asked.when, zone=zone, now=now, least=self._limits.least)
        if source == UNKNOWN and self._timezone == UTC and plans.of_a_clock(plan):
            raise errors.ToolError(
                "The person's time zone is not known. Ask them in which city they are, then try again with timezone. A "
                "time from now on needs none, with its offset (2026-03-01T09:00Z). Nothing was scheduled."
            )
        job = await self._book.put(self._made(asked, plan, now))
        if asked.timezone:
            self._locales.note_zone(inbound, zone)
        self._note(job, inbound, "made")
        return self._confirmation(job, source)

    def _made(self, asked: JobRequest, plan: plans.Plan, now: float) -> ScheduledJob:
        inbound, origin = asked.inbound, asked.origin
        known = origin.taint < Taint.FOREIGN and len(origin.people) <= MOST_WORDS
        return ScheduledJob(
            id=self._name(),
            prompt=self._redact(text.clean(asked.prompt)),
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

    def _name(self) -> str:
        while self._book.get(name := self._ids.ulid()[-SHORT:]) is not None:
            pass
        return name

    def _confirmation(self, job: ScheduledJob, source: str) -> str:
        where, moment, times = job.plan.where, job.next, list[str]()
        while moment is not None and len(times) < 3:
            times.append(plans.written(moment, where))
            moment = job.plan.following(moment)
        return (
            f"Scheduled as job {job.id} ({job.plan.describe()}): {', then '.join(times)}. Time zone: {job.plan.zone} "
            f"({source}).{plans.remark(job.plan)} It runs here as a turn of its own with the rights of the person; what "
            f"needs an approval is refused in it. If I cannot run it in time it runs late, up to "
            f"{self._limits.grace / 60:g} minutes, else it is skipped and said. Tell the person when it is due."
        )

    async def listed(self, inbound: Inbound) -> JobList:
        _attended(inbound)
        with speaking(DEFAULT):
            return await self._list(inbound, _exact)

    async def cancel(self, inbound: Inbound, job: str) -> str:
        _attended(inbound)
        with speaking(DEFAULT):
            found = await self._named(inbound, job)
        if isinstance(found, str):
            raise errors.ToolError(found)
        await self._cancel(inbound, found)
        # Anybody may have written the job's text, so only people see it, not the model.
        return f"Job {found.id} is cancelled."

    # ------------------------------------------------------------ for people

    async def command(self, inbound: Inbound, prefix: str = "/") -> str:
        """Run `/jobs [pause|resume|cancel NAME]` and return the answer. Raises `errors.StorageError`."""
        words = inbound.args.split()
        if not words or words == ["list"]:
            return (await self._list(inbound, _shown)).words
        verbs = {"pause": self._pause, "resume": self._resume, "cancel": self._cancel}
        verb = verbs.get(words[0].lower())
        if verb is None or len(words) != 2:
            return say("jobs.how", prefix=prefix)
        found = await self._named(inbound, words[1], anywhere=inbound.chat_type == "direct")
        return found if isinstance(found, str) else await verb(inbound, found)

    async def of_person(self, person: UserRef) -> list[str]:
        """Return one line for each job of a person, in all chats. Raises `errors.StorageError`."""
        return [_line(job, _shown) for job in self._book.all() if job.person == person]

    def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the jobs that a person sees on the board."""
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

    async def _list(self, inbound: Inbound, when: Callable[[ScheduledJob, float], str]) -> JobList:
        found = [job for job in self._book.all() if job.of(inbound)]
        origin = Provenance(frozenset(job.user_id for job in found))
        for job in found:
            origin |= job.origin
        return JobList("\n".join(_line(job, when) for job in found) or say("jobs.none"), origin)

    async def _named(self, inbound: Inbound, name: str, *, anywhere: bool = False) -> ScheduledJob | str:
        """Return the named job if the person may change it; otherwise a sentence that says why not. `anywhere` also
        finds the person's jobs in other chats.
        """
        job = self._book.get(name.strip().upper())
        may = job is not None and (job.person == inbound.person or self._access.is_operator(inbound.person))
        if job is None or not (job.of(inbound) or (anywhere and may)):
            here = ", ".join(one.id for one in self._book.all() if one.of(inbound))
            return say("jobs.unknown", names=here) if here else say("jobs.none")
        if not may:
            return say("jobs.not_yours", id=job.id)
        return job

    async def _cancel(self, inbound: Inbound, job: ScheduledJob) -> str:
        await self._book.remove(job)
        self._note(job, inbound, "cancelled")
        return say("jobs.cancelled", id=job.id, title=job.title)

    async def _pause(self, inbound: Inbound, job: ScheduledJob) -> str:
        await self._book.put(job.model_copy(update={"paused": "person"}))
        self._note(job, inbound, "paused")
        return say("jobs.paused", id=job.id)

    async def _resume(self, inbound: Inbound, job: ScheduledJob) -> str:
        moment = job.plan.following(self._clock.now())
        if moment is None:
            return say("jobs.passed", id=job.id)
        await self._book.put(job.model_copy(update={"paused": "", "failures": 0, "next": moment}))
        self._note(job, inbound, "resumed")
        return say("jobs.resumed", id=job.id, time=times.date(moment))

    # ------------------------------------------------------------ inside

    async def _zone(self, asked: JobRequest) -> tuple[str, str]:
        """Return the asking person's time zone, and how it is known."""
        person = asked.inbound.person
        known = self._locales.locale(person)
        if named := asked.timezone.strip():
            if (zone := await asyncio.to_thread(zone_named, named, self._clock.now())) is None:
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
        return self._timezone, UNKNOWN

    async def _platform(self, channel: str, user_id: str) -> str:
        knows: object = self._channels.get(channel)
        if not isinstance(knows, KnowsZones):
            return ""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                told = await knows.zone_of(user_id) or ""
            times.zone(told)
        except (errors.ShipmateError, TimeoutError, ValueError) as error:
            self._log.write(
                "schedule",
                "a person's time zone is not known",
                level="debug",
                user_id=user_id,
                cause=type(error).__name__,
            )
            return ""
        return told

    def _note(self, job: ScheduledJob, inbound: Inbound, what: str) -> None:
        self._log.write(
            "schedule",
            f"job {job.id} {what}",
            chat_key=job.chat_key,
            job=job.id,
            by=str(inbound.person),
            plan=job.plan.describe(),
        )


def _attended(inbound: Inbound) -> None:
    if inbound.due is not None:
        raise errors.ToolError(IN_A_JOB)


def _exact(job: ScheduledJob, due: float) -> str:
    """Return a time in the job's zone, worded for models."""
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
