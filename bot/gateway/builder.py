"""Builds a gateway from what it stands on; each part is built from those before it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bot.access_list import AccessList
from bot.contracts.agent import Agent
from bot.contracts.archive import Archive
from bot.contracts.artifacts import Artifacts
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Alert, Clock, Ids, Log, Redact
from bot.contracts.identity import UserRef
from bot.contracts.journal import Journal
from bot.contracts.memory_files import MemoryFiles
from bot.contracts.model import Transcriber
from bot.core.access import Access, InboundCleaner, Memberships
from bot.core.attachments import Limits as FileLimits
from bot.core.attachments import RssMonitor
from bot.core.chat import MODES
from bot.core.leadership import Leadership, SoleLeader
from bot.core.locales import Locales
from bot.core.long_blocks import LongBlocks
from bot.core.operator_chats import OperatorChats
from bot.core.rate_limit import RateLimiter
from bot.features.jobs.job import JobLimits
from bot.features.jobs.service import JobService
from bot.features.listening.participation import UnaddressedMessages
from bot.features.live.preview_parts import Previewing
from bot.gateway.admissions import AdmissionService
from bot.gateway.approvals import ApprovalService
from bot.gateway.attachments import RecordingFileReader
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import LIMIT, Backlog, InFlight
from bot.gateway.commands import Commands, Servers
from bot.gateway.deletions import DeletionService
from bot.gateway.delivery import Delivery
from bot.gateway.direct_chats import DirectConversations
from bot.gateway.effects import EffectRunner
from bot.gateway.inbound_archiver import InboundArchiver
from bot.gateway.intake import GatewayIntake, InboundRouter
from bot.gateway.jobs.due import DueJobs
from bot.gateway.jobs.store import JobStore
from bot.gateway.live.message import NONE, LiveDeps, Previews, Progress
from bot.gateway.operators import OperatorAlerts, QuestionCopies
from bot.gateway.outbox.files import OutgoingFiles
from bot.gateway.outbox.worker import OutboxWorker
from bot.gateway.participation import Participation
from bot.gateway.questions import QuestionService
from bot.gateway.receipt import Receipts
from bot.gateway.recovery import Recovery
from bot.gateway.retries import Retries
from bot.gateway.stops import Stops
from bot.gateway.turn_inputs import TurnInputs
from bot.gateway.turn_queue import DiskSpace, TurnQueue, TurnSuspension
from bot.gateway.turn_runner import TurnRunner


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The settings of the gateway. `allow` is by channel; `limits`: messages keep to the pace of their platforms."""

    name: str
    allow: Mapping[str, frozenset[str]]
    max_concurrent: int = 8
    mode: str = "steer"
    debounce: float = 0.0
    most_waiting: int = LIMIT
    timezone: str = "UTC"
    limits: bool = True
    jobs: JobLimits = field(default_factory=JobLimits)
    files: FileLimits = field(default_factory=FileLimits)
    previewing: Previewing = NONE
    long_as_files: bool = True


@dataclass(frozen=True, slots=True)
class GatewayDeps:
    """The collaborators of a gateway. `operators` are those of now."""

    settings: GatewaySettings
    channels: Mapping[str, Channel]
    manifests: Mapping[str, Manifest]
    journal: Journal
    archive: Archive
    artifacts: Artifacts
    memory_files: MemoryFiles
    lists: AccessList
    operators: Collection[UserRef]
    redact: Redact
    outgoing: OutgoingFiles
    disk: DiskSpace
    clock: Clock
    ids: Ids
    log: Log
    transcriber: Transcriber | None = None
    """Hears voice notes; None where nobody does."""
    leadership: Leadership = field(default_factory=SoleLeader)


@dataclass(frozen=True, slots=True)
class AgentServices:
    """The part of the gateway that the agent and its tools use, and the rest is built on."""

    tasks: BackgroundTasks
    locales: Locales
    backlog: Backlog
    turn_queue: TurnQueue
    memberships: Memberships
    access: Access
    delivery: Delivery
    alerts: OperatorAlerts
    suspension: TurnSuspension
    admissions: AdmissionService
    approvals: ApprovalService
    questions: QuestionService
    job_store: JobStore
    jobs: JobService


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """The parts of the gateway that the process starts, asks and stops."""

    tasks: BackgroundTasks
    turn_queue: TurnQueue
    recovery: Recovery
    files: RecordingFileReader
    deletions: DeletionService
    stops: Stops
    commands: Commands
    router: InboundRouter
    intake: GatewayIntake
    turns: TurnRunner
    admissions: AdmissionService
    approvals: ApprovalService
    due_jobs: DueJobs

    def start(self) -> None:
        """Run turns, read back what waits, and see who is let in, from now on."""
        self.tasks.serve(self.admissions.watch())
        self.turns.start()
        self.recovery.start()


def build_delivery(
    channels: Mapping[str, Channel],
    manifests: Mapping[str, Manifest],
    *,
    journal: Journal,
    archive: Archive,
    files: OutgoingFiles,
    alerts: asyncio.Queue[Alert],
    leadership: Leadership,
    redact: Redact,
    clock: Clock,
    ids: Ids,
    log: Log,
    limits: bool,
    previewing: Previewing,
    long_as_files: bool,
) -> Delivery:
    """Build the way out: the outbox, and the messages that change while a turn runs. `alerts` gets what operators should
    know of it.
    """
    outbox = OutboxWorker(
        channels,
        journal=journal,
        archive=archive,
        files=files,
        limits=RateLimiter(manifests, clock, limits=limits),
        alerts=alerts,
        leadership=leadership,
        clock=clock,
        ids=ids,
        log=log,
    )
    live = LiveDeps(outbox, clock, log)
    long_blocks = LongBlocks(channels, on=long_as_files)
    return Delivery(
        channels,
        journal=journal,
        outbox=outbox,
        files=files,
        previews=Previews(live, manifests, previewing, long_blocks),
        progress=Progress(live, manifests, previewing.after),
        long_blocks=long_blocks,
        redact=redact,
        log=log,
    )


def build_agent_services(deps: GatewayDeps) -> AgentServices:
    """Build what the agent needs. Raises `errors.ConfigError` where a channel would let in a stranger."""
    settings, channels, manifests, journal = deps.settings, deps.channels, deps.manifests, deps.journal
    clock, ids, log = deps.clock, deps.ids, deps.log
    mode = MODES[settings.mode]

    tasks = BackgroundTasks(log)
    locales = Locales(journal, tasks.start, log, zone=settings.timezone)
    backlog = Backlog(settings.most_waiting)
    turn_queue = TurnQueue(
        limit=settings.max_concurrent,
        mode=mode,
        debounce=settings.debounce,
        backlog=backlog,
        disk=deps.disk,
        tasks=tasks,
        clock=clock,
    )
    memberships = Memberships(channels, log)
    access = Access(manifests, settings.allow, deps.operators, deps.lists, memberships)
    for name in channels:
        access.prove(name)
    raised: asyncio.Queue[Alert] = asyncio.Queue()
    delivery = build_delivery(
        channels,
        manifests,
        journal=journal,
        archive=deps.archive,
        files=deps.outgoing,
        alerts=raised,
        leadership=deps.leadership,
        redact=deps.redact,
        clock=clock,
        ids=ids,
        log=log,
        limits=settings.limits,
        previewing=settings.previewing,
        long_as_files=settings.long_as_files,
    )
    chats = OperatorChats(deps.operators, channels, manifests)
    alerts = OperatorAlerts(
        chats,
        memberships=memberships,
        raised=raised,
        journal=journal,
        delivery=delivery,
        locales=locales,
        clock=clock,
        ids=ids,
        log=log,
    )
    suspension = TurnSuspension(turn_queue, journal.post)
    copies = QuestionCopies(journal, delivery, log)
    admissions = AdmissionService(
        journal=journal,
        delivery=delivery,
        lists=deps.lists,
        access=access,
        memberships=memberships,
        chats=chats,
        copies=copies,
        locales=locales,
        manifests=manifests,
        clock=clock,
        log=log,
    )
    approvals = ApprovalService(
        suspension=suspension,
        journal=journal,
        delivery=delivery,
        operators=deps.operators,
        chats=chats,
        memberships=memberships,
        copies=copies,
        locales=locales,
        admissions=admissions,
        manifests=manifests,
        clock=clock,
        ids=ids,
        log=log,
    )
    questions = QuestionService(suspension=suspension, delivery=delivery, clock=clock, ids=ids, log=log)
    job_store = JobStore(journal, log)
    jobs = JobService(
        job_store,
        access=access,
        channels=channels,
        limits=settings.jobs,
        locales=locales,
        timezone=settings.timezone,
        redact=deps.redact,
        clock=clock,
        ids=ids,
        log=log,
    )
    return AgentServices(
        tasks,
        locales,
        backlog,
        turn_queue,
        memberships,
        access,
        delivery,
        alerts,
        suspension,
        admissions,
        approvals,
        questions,
        job_store,
        jobs,
    )


def build_gateway(
    deps: GatewayDeps, services: AgentServices, agent: Agent, *, rss_monitor: RssMonitor, servers: Servers
) -> GatewayParts:
    """Build the rest: what comes in, its turns, commands and jobs."""
    settings, channels, manifests, journal = deps.settings, deps.channels, deps.manifests, deps.journal
    clock, ids, log = deps.clock, deps.ids, deps.log
    mode = MODES[settings.mode]
    tasks, backlog, turn_queue = services.tasks, services.backlog, services.turn_queue
    access, delivery, approvals, jobs = services.access, services.delivery, services.approvals, services.jobs
    in_flight = InFlight()

    # What an inbound needs from its beginning to its end.
    cleaner = InboundCleaner(deps.redact, access)
    archive = InboundArchiver(journal=journal, archive=deps.archive, log=log)
    files = RecordingFileReader(
        channels,
        manifests,
        steps=journal,
        artifacts=deps.artifacts,
        redact=deps.redact,
        rss_monitor=rss_monitor,
        clock=clock,
        log=log,
        limits=settings.files,
        transcriber=deps.transcriber,
    )
    heard = UnaddressedMessages(clock)
    turn_inputs = TurnInputs(
        agent,
        channels,
        files,
        cleaner,
        heard=heard,
        alerts=services.alerts,
        journal=journal,
        archive=deps.archive,
        clock=clock,
        log=log,
    )
    deletions = DeletionService(
        journal=journal,
        archive=deps.archive,
        artifacts=deps.artifacts,
        memory_files=deps.memory_files,
        delivery=delivery,
        agent=agent,
        access=access,
        manifests=manifests,
        jobs=jobs,
        tasks=tasks,
        clock=clock,
        log=log,
        heard=heard,
    )

    effects = EffectRunner(
        agent=agent,
        turn_queue=turn_queue,
        journal=journal,
        archive=archive,
        delivery=delivery,
        approvals=approvals,
        questions=services.questions,
        turn_inputs=turn_inputs,
        backlog=backlog,
        locales=services.locales,
        tasks=tasks,
        log=log,
    )

    # What people say besides messages.
    stops = Stops(
        journal=journal,
        turn_queue=turn_queue,
        access=access,
        manifests=manifests,
        effects=effects,
        backlog=backlog,
        log=log,
    )
    participation = Participation(journal, services.questions)
    retries = Retries(
        journal=journal,
        archive=archive,
        access=access,
        effects=effects,
        delivery=delivery,
        in_flight=in_flight,
        tasks=tasks,
        clock=clock,
        ids=ids,
    )
    commands = Commands(
        name=settings.name,
        agent=agent,
        turn_queue=turn_queue,
        access=access,
        admissions=services.admissions,
        participation=participation,
        lists=deps.lists,
        channels=channels,
        manifests=manifests,
        alerts=services.alerts,
        stops=stops,
        approvals=approvals,
        receipts=Receipts(journal, deps.archive, clock),
        deletions=deletions,
        retries=retries,
        jobs=jobs,
        servers=servers,
        locales=services.locales,
        journal=journal,
        clock=clock,
        log=log,
    )

    # The way in: from the channels, from jobs, and from the journal.
    router = InboundRouter(
        agent=agent,
        journal=journal,
        backlog=backlog,
        commands=commands,
        effects=effects,
        deletions=deletions,
        archive=archive,
        in_flight=in_flight,
        turn_inputs=turn_inputs,
        tasks=tasks,
        log=log,
    )
    intake = GatewayIntake(
        access=access,
        cleaner=cleaner,
        journal=journal,
        archive=archive,
        delivery=delivery,
        participation=participation,
        heard=heard,
        commands=commands,
        router=router,
        stops=stops,
        direct=DirectConversations(journal, turn_queue, in_flight),
        in_flight=in_flight,
        alerts=services.alerts,
        approvals=approvals,
        clock=clock,
        ids=ids,
        log=log,
    )
    due_jobs = DueJobs(
        services.job_store,
        access=access,
        intake=intake,
        open_channels=backlog,
        journal=journal,
        channels=channels,
        delivery=delivery,
        locales=services.locales,
        limits=settings.jobs,
        clock=clock,
        ids=ids,
        log=log,
    )
    recovery = Recovery(
        agent=agent,
        journal=journal,
        archive=archive,
        turn_queue=turn_queue,
        backlog=backlog,
        effects=effects,
        router=router,
        in_flight=in_flight,
        locales=services.locales,
        tasks=tasks,
        clock=clock,
        log=log,
    )

    # The turns.
    turns = TurnRunner(
        agent=agent,
        manifests=manifests,
        journal=journal,
        delivery=delivery,
        approvals=approvals,
        questions=services.questions,
        files=files,
        turn_inputs=turn_inputs,
        commands=commands,
        deletions=deletions,
        effects=effects,
        turn_queue=turn_queue,
        in_flight=in_flight,
        mode=mode,
        tasks=tasks,
        clock=clock,
        log=log,
    )
    return GatewayParts(
        tasks,
        turn_queue,
        recovery,
        files,
        deletions,
        stops,
        commands,
        router,
        intake,
        turns,
        services.admissions,
        approvals,
        due_jobs,
    )
