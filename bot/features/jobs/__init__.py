"""Jobs: text that a person scheduled becomes a message from that person at the due time."""

from bot.contracts.channel import HomeSection
from bot.contracts.inbound import Inbound
from bot.contracts.waiting import OpenLoop, Viewer
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.features.jobs.due import JOB_SECONDS, DueJobs
from bot.features.jobs.job import JobBook, JobLimits
from bot.features.jobs.service import JobService
from bot.periodic_jobs import PeriodicJob
from bot.words import say

MOST_SHOWN = 10
"""Max jobs shown on a person's home page."""


def _build(runtime: Runtime) -> Hooks:
    planned = runtime.configuration.schedule
    limits = JobLimits(planned.max_per_chat, 60.0 * planned.min_minutes, 60.0 * planned.grace_minutes)
    book = JobBook(runtime.chats)
    due = DueJobs(runtime, book, limits)
    service = JobService(
        book,
        access=runtime.access,
        channels=runtime.channels,
        limits=limits,
        locales=runtime.locales,
        timezone=planned.timezone,
        redact=runtime.redact,
        clock=runtime.clock,
        ids=runtime.ids,
        log=runtime.log,
    )

    async def jobs(inbound: Inbound) -> Done:
        if (named := book.get(inbound.args.rpartition(" ")[2].upper())) is not None:
            await runtime.chats.get(named.chat_key)
        manifest = runtime.manifests.get(inbound.channel)
        with book.drafting() as facts:
            words = await service.command(inbound, manifest.command_prefix if manifest is not None else "/")
        return Done(words, facts)

    async def waiting(viewer: Viewer) -> list[OpenLoop]:
        return service.waiting(viewer)

    async def home(opened: Inbound) -> HomeSection:
        lines = await service.of_person(opened.person)
        more = len(lines) - MOST_SHOWN
        told = [say("home.more_jobs", count=more)] if more > 0 else []
        return HomeSection(say("home.jobs"), (*(lines[:MOST_SHOWN] or [say("home.no_jobs")]), *told))

    return Hooks(
        commands={"jobs": Command(jobs)},
        ports={"jobs": service},
        periodic=(PeriodicJob("look at what is due", JOB_SECONDS, due.look),),
        turn_ends=due.turn_ends,
        home={2: home},
        waiting=waiting,
    )


FEATURE = Feature("jobs", _build)
