"""The rooms of a gateway, built from its settings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from bot import config, descriptors, discovery, ports
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList, Operators
from bot.agent.claims.performed_actions import ActionRecorder
from bot.agent.deps import AgentDeps
from bot.agent.pool import AgentPool
from bot.agent.subagents.limits import Limits as TaskLimits
from bot.connections import Connections
from bot.context.assembly import Prompts
from bot.context.compaction import Policy
from bot.context.estimate import Estimator
from bot.context.instructions import InstructionFiles, operator_files
from bot.context.skills import SkillFolder
from bot.contracts.approvals import Approvals
from bot.contracts.channel import Channel, ChannelDeps, Manifest
from bot.contracts.jobs import Jobs
from bot.contracts.journal import Journal
from bot.contracts.tools import Skills
from bot.gateway.access import Access
from bot.gateway.approvals import ApprovalService
from bot.gateway.attachments.reader import FileReader
from bot.gateway.attachments.reader import Limits as FileLimits
from bot.gateway.commands import Commands
from bot.gateway.delivery import Delivery
from bot.gateway.intake import GatewayIntake
from bot.gateway.jobs.due import JobGateway
from bot.gateway.jobs.service import JobService
from bot.gateway.live.answer_preview import Previewing
from bot.gateway.live.progress import Progress
from bot.gateway.membership import Memberships
from bot.gateway.receipt import Receipts
from bot.gateway.removals import Removals
from bot.gateway.turns import Turns
from bot.history.archive import ChatStore
from bot.history.artifacts import ArtifactStore
from bot.history.memories import Memories
from bot.history.memory_files import NoteStore
from bot.history.names import encode
from bot.history.searching import SearchedArchive
from bot.history.transcript import Transcript
from bot.journal.sqlite import SqliteJournal
from bot.llm.factory import build_model
from bot.llm.health import WatchedModel
from bot.llm.learned import LearnedFile
from bot.llm.windows import Windows
from bot.reserve import Reserve, ReservedDisk
from bot.serving import Environment
from bot.system import read_link
from bot.telemetry import JsonlLog, Redactor
from bot.tools.dispatch import Dispatcher
from bot.tools.isolation import Isolation
from bot.tools.limits import Limits
from bot.tools.mcp.servers import McpServers
from bot.tools.origins import Origins
from bot.tools.permissions import Narrowing, Paths, Rules
from bot.tools.permissions.code import border
from bot.tools.policy import Policy as ToolPolicy
from bot.tools.project import Project
from bot.tools.registry import Registry, ToolPorts, builtin_tools
from bot.tools.watching import Watched
from bot.vetting import Vetting

FILE_TOOLS = frozenset({"read_file", "write_file", "edit_file", "list_dir", "search_files"})
"""With one of these, the model is told of the project's folder."""
POOL_SHARE = 4
"""The part of the memory limit that idle conversations may take: a fourth."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the agent and the gateway share."""

    settings: config.Settings
    outside: Environment
    log: JsonlLog
    redact: Redactor
    manifests: Mapping[str, Manifest]
    journal: Journal
    archive: SearchedArchive
    transcript: Transcript
    artifacts: ArtifactStore
    memory_files: NoteStore
    model: WatchedModel
    learned: LearnedFile
    windows: Windows
    mcp: McpServers
    lists: AccessList
    operators: Operators
    reserve: Reserve
    connections: Connections
    vetting: Vetting


def rooms_of(settings: config.Settings, outside: Environment, log: JsonlLog) -> Rooms:
    home, clock, disk = settings.home, outside.clock, outside.disk
    limit, llm = settings.history.archive_after_lines, settings.llm
    learned = LearnedFile(home / "cache" / "models.json", provider_name(settings), disk=disk, log=log)
    learned.load()
    redact, manifests = Redactor(settings.secrets), discovery.manifests()
    lists = AccessList(home / ACCESS_FILE, disk, clock)
    starters = {f"{name}:{one}" for name in settings.enabled for one in manifests[name].operators}
    reserve = Reserve(home / "reserve", log)
    lasting = ReservedDisk(disk, reserve)
    return Rooms(
        settings,
        outside,
        log,
        redact,
        manifests,
        outside.journal(SqliteJournal(home / "journal.db", clock=clock, log=log, reserve=reserve)),
        SearchedArchive(
            ChatStore(home / "chats", disk=lasting, log=log, clock=clock, archive_after_lines=limit),
            home / "index.db",
            folder=home / "chats",
            disk=disk,
            log=log,
        ),
        Transcript(home / "transcripts", disk=lasting, ids=outside.ids, clock=clock, log=log),
        ArtifactStore(home / "artifacts", disk=disk, ids=outside.ids, clock=clock, log=log),
        NoteStore(home / "memory", disk=disk, redact=redact),
        model_of(settings, outside, log),
        learned,
        Windows(learned, log=log, model=llm.model, configured=llm.context_window, max_tokens=llm.max_tokens),
        McpServers(settings.mcp, root=settings.root, clock=clock, log=log, redact=redact),
        lists,
        Operators(settings.operators | starters, lists),
        reserve,
        Connections(descriptors.connections(descriptors.limit()), clock=clock, log=log),
        Vetting(
            settings.root,
            home / "vetting.json",
            disk,
            log,
            more=instructions_of(settings),
            skills=tuple(settings.root / one for one in settings.skills.paths),
        ),
    )


def channels_of(rooms: Rooms, names: Iterable[str]) -> dict[str, Channel]:
    settings, outside = rooms.settings, rooms.outside

    async def appoint(channel: str, user_id: str) -> None:
        await asyncio.to_thread(rooms.lists.appoint, channel, user_id)
        rooms.log.write("approval", "somebody is an operator from now on", operator=f"{channel}:{user_id}")

    around = ChannelDeps(
        outside.clock,
        rooms.log,
        outside.rng,
        settings.home,
        settings.root,
        rooms.operators,
        settings.name,
        settings.llm.model if settings.llm.provider != "demo" else "the demo model",
        ports.pid_on,
        ports.user_of,
        appoint,
        rooms.connections.server,
        outside.pace,
    )
    return {
        name: outside.channel(rooms.manifests[name].build(settings.channels[name], around)) for name in names
    }


def provider_name(settings: config.Settings) -> str:
    """Whom the model is asked of: what is learnt at one address need not hold at another."""
    llm = settings.llm
    return llm.provider if llm.base_url is None else urlsplit(llm.base_url).netloc.rpartition("@")[2]


def model_name(settings: config.Settings) -> str:
    """The model that answers."""
    return settings.llm.model if settings.llm.provider != "demo" else "demo"


def model_of(settings: config.Settings, outside: Environment, log: JsonlLog) -> WatchedModel:
    llm = settings.llm
    model = build_model(
        provider=llm.provider,
        api_key=llm.api_key,
        base_url=llm.base_url,
        clock=outside.clock,
        log=log,
        ids=outside.ids,
        rng=outside.rng,
        log_messages=llm.log_messages,
        log_payload=llm.log_payload,
        pace=outside.pace,
    )
    return WatchedModel(model, clock=outside.clock)


def tool_ports(rooms: Rooms, channels: Mapping[str, Channel], skills: Skills, jobs: Jobs) -> ToolPorts:
    memberships, root, shell = Memberships(channels, rooms.log), rooms.settings.root, rooms.settings.shell
    project = Project(root)
    return ToolPorts(
        archive=rooms.archive,
        artifacts=rooms.artifacts,
        skills=skills,
        clock=rooms.outside.clock,
        memory=rooms.memory_files,
        project=project,
        isolation=Isolation(
            root,
            required=shell.isolation == "required",
            network=shell.network,
            limits=Limits(**shell.limits.model_dump()),
            code=project.code,
            vetting=rooms.vetting,
        ),
        recall=rooms.archive,
        membership=memberships,
        catalog=rooms.mcp,
        permalink=memberships.permalink,
        jobs=jobs,
        origins=Origins(root, rooms.settings.home / "origins.json", rooms.operators, rooms.outside.disk),
        vetting=rooms.vetting,
    )


def approvals_of(rooms: Rooms, channels: Mapping[str, Channel], delivery: Delivery) -> ApprovalService:
    outside = rooms.outside
    return ApprovalService(
        journal=rooms.journal,
        delivery=delivery,
        operators=rooms.operators,
        channels=channels,
        manifests=rooms.manifests,
        clock=outside.clock,
        ids=outside.ids,
        log=rooms.log,
    )


def agent_of(
    rooms: Rooms, channels: Mapping[str, Channel], approvals: Approvals, progress: Progress, jobs: Jobs
) -> AgentPool:
    settings, outside, log = rooms.settings, rooms.outside, rooms.log
    llm, clock, compaction = settings.llm, outside.clock, settings.context.compaction
    skills = SkillFolder(settings.root, settings.skills.paths, log, rooms.vetting)
    ports = tool_ports(rooms, channels, skills, jobs)
    registry = Registry(builtin_tools(ports), rooms.mcp)
    return AgentPool(
        AgentDeps(
            model=rooms.model,
            default_model=model_name(settings),
            registry=registry,
            dispatcher=dispatcher_of(rooms, registry, approvals, progress),
            transcript=rooms.transcript,
            archive=rooms.archive,
            steps=rooms.journal,
            fast_model=llm.fast_model if llm.provider != "demo" else "",
            tasks=limits_of(settings.subagents),
            task_events=progress,
            approvals=approvals,
            artifacts=rooms.artifacts,
            skills=skills,
            prompts=Prompts(
                settings.root,
                skills=skills,
                instructions=InstructionFiles(
                    settings.root,
                    encode=encode,
                    log=log,
                    everywhere=operator_files(os.environ),
                    vetting=rooms.vetting,
                ),
                log=log,
                redact=rooms.redact,
                **settings.prompt.sources(settings.root),
                has_files=not FILE_TOOLS.isdisjoint(registry.names()),
                others=ports.whose().named,
                vetting=rooms.vetting,
            ),
            vetting=rooms.vetting,
            root=settings.root,
            clock=clock,
            ids=outside.ids,
            log=log,
            max_messages=settings.context.max_messages,
            max_injected=settings.context.max_injected_messages,
            mask_threshold=settings.context.mask_threshold_tokens,
            keep_observations=settings.context.keep_recent_observations,
            windows=rooms.windows,
            estimator=Estimator(rooms.learned),
            soft_tokens=compaction.soft_tokens,
            compaction=Policy(
                compaction.enabled,
                compaction.keep_tokens,
                compaction.idle.enabled,
                compaction.idle.above_tokens,
                compaction.provider == "auto",
            ),
            memories=Memories(settings.home / "memory", disk=outside.disk),
            rules={name: manifest.rules for name, manifest in rooms.manifests.items()},
            redact=rooms.redact,
            settled=rooms.redact.settled,
        ),
        budget=settings.memory.limit_mb * 2**20 // POOL_SHARE,
    )


def dispatcher_of(rooms: Rooms, registry: Registry, approvals: Approvals, progress: Progress) -> Dispatcher:
    return Dispatcher(
        registry,
        clock=rooms.outside.clock,
        log=rooms.log,
        log_content=rooms.settings.llm.log_messages,
        redact=rooms.redact,
        artifacts=rooms.artifacts,
        around=Watched(ActionRecorder(policy_of(rooms, registry, approvals), registry), registry, progress),
    )


def limits_of(subagents: config.Subagents) -> TaskLimits:
    return TaskLimits(
        calls=subagents.max_model_calls,
        tokens=subagents.max_tokens,
        usd=subagents.max_usd,
        seconds=subagents.max_seconds,
        side_by_side=subagents.max_concurrent,
        turn_tokens=subagents.per_turn.max_tokens,
        turn_usd=subagents.per_turn.max_usd,
    )


def instructions_of(settings: config.Settings) -> tuple[Path, ...]:
    """Files that tell the model what to do, beside those of the project that do by their names."""
    sources = settings.prompt.sources(settings.root).values()
    return (*operator_files(os.environ), *(one for one in sources if isinstance(one, Path)))


def policy_of(rooms: Rooms, registry: Registry, approvals: Approvals) -> ToolPolicy:
    """What stands around each tool call."""
    settings, outside = rooms.settings, rooms.outside
    paths, zone = Paths(str(settings.root), read_link), settings.schedule.timezone
    return ToolPolicy(
        registry,
        Rules(paths, border(settings.root), **settings.permissions.model_dump()),
        paths,
        operators=rooms.operators,
        zone=UTC if zone == "UTC" else ZoneInfo(zone),
        clock=outside.clock,
        log=rooms.log,
        redact=rooms.redact,
        approvals=approvals,
        narrowing=Narrowing(
            SkillFolder(settings.root, settings.skills.paths, rooms.log, rooms.vetting), paths
        ),
        vetting=rooms.vetting,
    )


def delivery_of(rooms: Rooms, channels: dict[str, Channel]) -> Delivery:
    settings, clock, ids, log = rooms.settings, rooms.outside.clock, rooms.outside.ids, rooms.log
    return Delivery(
        channels,
        rooms.manifests,
        journal=rooms.journal,
        archive=rooms.archive,
        redact=rooms.redact,
        clock=clock,
        ids=ids,
        log=log,
        limits=settings.delivery.limits,
        previewing=Previewing.of(settings.channels, lambda words: rooms.redact(rooms.redact.settled(words))),
    )


def access_of(rooms: Rooms, channels: Mapping[str, Channel]) -> Access:
    settings = rooms.settings
    allow = {name: frozenset(getattr(one, "allow", ())) for name, one in settings.channels.items()}
    same = Memberships(channels, rooms.log).same_chat
    return Access(rooms.manifests, allow, rooms.operators, rooms.lists, same)


def files_of(rooms: Rooms, channels: Mapping[str, Channel]) -> FileReader:
    files = rooms.settings.files
    return FileReader(
        channels, rooms.manifests, steps=rooms.journal, artifacts=rooms.artifacts, redact=rooms.redact,
        clock=rooms.outside.clock, log=rooms.log, limits=FileLimits(files.max_bytes, files.per_message),
    )  # fmt: skip


def build_gateway(
    rooms: Rooms,
    channels: dict[str, Channel],
    agent: AgentPool,
    delivery: Delivery,
    approvals: ApprovalService,
    *,
    jobs: JobService,
) -> Turns:
    """The gateway: access, intake, lanes and commands."""
    settings, clock, ids, log = rooms.settings, rooms.outside.clock, rooms.outside.ids, rooms.log
    access = access_of(rooms, channels)
    for name in channels:
        access.prove(name)
    turns = Turns(
        agent=agent,
        channels=channels,
        manifests=rooms.manifests,
        journal=rooms.journal,
        delivery=delivery,
        access=access,
        approvals=approvals,
        files=files_of(rooms, channels),
        clock=clock,
        log=log,
        max_concurrent=settings.queue.max_concurrent_turns,
        mode=settings.queue.mode,
        debounce=settings.queue.debounce_ms / 1000,
        full=lambda: bool(rooms.reserve.trouble),
    )
    turns.intake = GatewayIntake(
        access=access,
        journal=rooms.journal,
        archive=rooms.archive,
        delivery=delivery,
        pending=rooms.lists,
        redact=rooms.redact,
        queue=turns.queue,
        beside=turns.lanes.beside,
        halt=turns.stops.at_once,
        clock=clock,
        ids=ids,
        log=log,
    )
    turns.removals = Removals(
        journal=rooms.journal, archive=rooms.archive, artifacts=rooms.artifacts, memory=rooms.memory_files,
        agent=agent, access=access, manifests=rooms.manifests, clock=clock, log=log, jobs=jobs.forget,
    )  # fmt: skip
    turns.commands = Commands(
        name=settings.name, agent=agent, lanes=turns.lanes, access=access, manifests=rooms.manifests, stop=turns.stop,
        approvals=approvals, receipts=Receipts(rooms.journal), forget=turns.removals.command,
        servers=rooms.mcp.sources, jobs=jobs.command,
    )  # fmt: skip
    jobs.due.gateway = JobGateway(access, turns.intake, turns.backlog.opened)
    return turns
