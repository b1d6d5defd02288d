"""Builds a gateway from what it stands on; each part is built from those before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bot.contracts.agent import Agent
from bot.contracts.archive import Archive
from bot.contracts.artifacts import Artifacts
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Clock, Ids, Log, Redact
from bot.contracts.journal import Journal
from bot.contracts.memory_files import MemoryFiles
from bot.gateway.access import Access, Lists
from bot.gateway.approvals import ApprovalService
from bot.gateway.attachments.reader import FileReader, Memory
from bot.gateway.attachments.reader import Limits as FileLimits
from bot.gateway.backlog import LIMIT
from bot.gateway.commands import Commands, Servers
from bot.gateway.delivery import Delivery
from bot.gateway.intake import GatewayIntake, Pending
from bot.gateway.jobs.due import DueJobs, JobLimits
from bot.gateway.jobs.service import JobService
from bot.gateway.jobs.store import JobStore
from bot.gateway.lanes import DiskSpace
from bot.gateway.live.answer_preview import NONE, Previewing
from bot.gateway.membership import Memberships
from bot.gateway.operations.alerts import OperatorAlerts
from bot.gateway.questions import QuestionService
from bot.gateway.receipt import Receipts
from bot.gateway.removals import Removals
from bot.gateway.turns import Turns


class AccessLists(Lists, Pending, Protocol):
    """Whom operators have let in or shut out, and who waits for that (`bot.access_list.AccessList`)."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What of ship.json is about the gateway. `allow` is by channel; `limits`: messages keep to the pace of their platforms."""

    name: str
    operators: Collection[str]
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


@dataclass(frozen=True, slots=True)
class GatewayDeps:
    """What a gateway stands on. `operators` are those of now, the settings have those of the file."""

    settings: GatewaySettings
    channels: Mapping[str, Channel]
    manifests: Mapping[str, Manifest]
    journal: Journal
    archive: Archive
    artifacts: Artifacts
    memory_files: MemoryFiles
    lists: AccessLists
    operators: Collection[str]
    redact: Redact
    disk: DiskSpace
    clock: Clock
    ids: Ids
    log: Log


@dataclass(frozen=True, slots=True)
class AgentServices:
    """What of the gateway the agent and its tools use."""

    access: Access
    memberships: Memberships
    delivery: Delivery
    alerts: OperatorAlerts
    approvals: ApprovalService
    questions: QuestionService
    job_store: JobStore
    jobs: JobService


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What of the gateway the process starts, asks and stops."""

    turns: Turns
    files: FileReader
    intake: GatewayIntake
    due_jobs: DueJobs


def build_agent_services(deps: GatewayDeps) -> AgentServices:
    """Build what the agent needs. Raises `errors.ConfigError` where a channel would let in a stranger."""
    settings, clock, ids, log = deps.settings, deps.clock, deps.ids, deps.log
    memberships = Memberships(deps.channels, log)
    access = Access(deps.manifests, settings.allow, deps.operators, deps.lists, memberships)
    for name in deps.channels:
        access.prove(name)
    delivery = Delivery(
        deps.channels,
        deps.manifests,
        journal=deps.journal,
        archive=deps.archive,
        redact=deps.redact,
        clock=clock,
        ids=ids,
        log=log,
        limits=settings.limits,
        previewing=settings.previewing,
    )
    alerts = OperatorAlerts(
        settings.operators,
        deps.channels,
        deps.manifests,
        journal=deps.journal,
        delivery=delivery,
        clock=clock,
        ids=ids,
        log=log,
    )
    approvals = ApprovalService(
        journal=deps.journal,
        delivery=delivery,
        operators=deps.operators,
        channels=deps.channels,
        manifests=deps.manifests,
        clock=clock,
        ids=ids,
        log=log,
    )
    questions = QuestionService(approvals=approvals, delivery=delivery, clock=clock, ids=ids, log=log)
    job_store = JobStore(deps.journal, log)
    jobs = JobService(
        job_store,
        access=access,
        channels=deps.channels,
        limits=settings.jobs,
        timezone=settings.timezone,
        redact=deps.redact,
        clock=clock,
        ids=ids,
        log=log,
    )
    return AgentServices(access, memberships, delivery, alerts, approvals, questions, job_store, jobs)


def build_gateway(
    deps: GatewayDeps, services: AgentServices, agent: Agent, *, memory: Memory, servers: Servers
) -> GatewayParts:
    """Build the rest: what comes in, its turns, commands and jobs."""
    settings, clock, ids, log = deps.settings, deps.clock, deps.ids, deps.log
    access, delivery, approvals, jobs = services.access, services.delivery, services.approvals, services.jobs
    files = FileReader(
        deps.channels,
        deps.manifests,
        steps=deps.journal,
        artifacts=deps.artifacts,
        redact=deps.redact,
        memory=memory,
        clock=clock,
        log=log,
        limits=settings.files,
    )
    turns = Turns(
        agent=agent,
        channels=deps.channels,
        manifests=deps.manifests,
        journal=deps.journal,
        delivery=delivery,
        access=access,
        approvals=approvals,
        files=files,
        clock=clock,
        log=log,
        max_concurrent=settings.max_concurrent,
        mode=settings.mode,
        debounce=settings.debounce,
        most_waiting=settings.most_waiting,
        disk=deps.disk,
    )
    intake = GatewayIntake(
        access=access,
        journal=deps.journal,
        archive=deps.archive,
        delivery=delivery,
        pending=deps.lists,
        redact=deps.redact,
        queue=turns.queue,
        beside=turns.lanes.beside,
        halt=turns.stops.at_once,
        alerts=services.alerts,
        approvals=approvals,
        clock=clock,
        ids=ids,
        log=log,
    )
    turns.intake = intake
    turns.removals = Removals(
        journal=deps.journal,
        archive=deps.archive,
        artifacts=deps.artifacts,
        memory=deps.memory_files,
        agent=agent,
        access=access,
        manifests=deps.manifests,
        jobs=jobs,
        clock=clock,
        log=log,
    )
    turns.commands = Commands(
        name=settings.name,
        agent=agent,
        lanes=turns.lanes,
        access=access,
        manifests=deps.manifests,
        stops=turns.stops,
        approvals=approvals,
        receipts=Receipts(deps.journal),
        removals=turns.removals,
        jobs=jobs,
        servers=servers,
    )
    due_jobs = DueJobs(
        services.job_store,
        access=access,
        intake=intake,
        open_channels=turns.backlog,
        journal=deps.journal,
        channels=deps.channels,
        delivery=delivery,
        limits=settings.jobs,
        clock=clock,
        ids=ids,
        log=log,
    )
    return GatewayParts(turns, files, intake, due_jobs)
