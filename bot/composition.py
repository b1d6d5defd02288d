"""The one place where everything is put together, from the settings up: services, channels, agent, gateway."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from bot import config, configuration, descriptors, discovery, errors, ports, text
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList, Operators
from bot.connections import Connections
from bot.contracts.approvals import Approvals
from bot.contracts.channel import Channel, ChannelDeps
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.model import Model
from bot.contracts.provenance import unpacked
from bot.core.access import Memberships
from bot.core.agent_deps import AgentDeps, Limits
from bot.core.archive.store import ChatStore
from bot.core.assembly import Prompts
from bot.core.compaction import Policy
from bot.core.estimate import Estimator
from bot.core.event_log import EventLog
from bot.core.events import Codec, Remembered
from bot.core.fallback import Fallback, FallbackModel, ProviderFallbacks
from bot.core.feature import Display, WrapCall
from bot.core.instructions import InstructionFiles, operator_files
from bot.core.leadership import Leadership
from bot.core.models import Manner, ModelDeps
from bot.core.sql_log import Alert
from bot.core.sqlite_log import FILE, SqliteLog
from bot.core.tasks.limits import TaskLimits
from bot.core.usage import UsageSums
from bot.dashboard.console import Console, ConsoleSources, PartHealth
from bot.dashboard.metrics import Figures, LogMetrics, MetricsPage
from bot.dashboard.server import Dashboard
from bot.disk_reserve import DiskReserve
from bot.llm import factory
from bot.llm.budgets import BudgetedModel, Spending, day_of
from bot.llm.learned import LearnedFile
from bot.llm.log import usage_of
from bot.llm.transcription import Endpoint, HttpTranscriber
from bot.llm.windows import ContextWindows
from bot.llm.wrapper import SystemRoleModel, WatchedModel, reply_of
from bot.readiness import GatewayFigures
from bot.reload import ConfigurationReload
from bot.services import Environment, Services
from bot.storage.artifacts import ArtifactStore
from bot.storage.file_names import encode
from bot.storage.memories import Memories, SavedMemory
from bot.storage.notes import NoteStore
from bot.system import read_link
from bot.telemetry import JsonlLog, Redactor
from bot.tools.command_limits import CommandLimits
from bot.tools.dispatch import CallWatcher, Dispatcher
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.mcp.servers import McpServers
from bot.tools.permissions.paths import Paths
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import Rules
from bot.tools.permissions.skill_allowlist import SkillAllowlist
from bot.tools.policy import Policy as ToolPolicy
from bot.tools.ports import Jobs, Questions, Recalls
from bot.tools.project import Project
from bot.tools.registry import Registry, Search, ToolPorts, builtin_tools
from bot.tools.skills import SkillFolder
from bot.vetting import Vetting

FILE_TOOLS = frozenset({"read_file", "write_file", "edit_file", "list_dir", "search_files"})
"""With one of these, the model is told of the project's folder."""


@contextlib.asynccontextmanager
async def standing_by(
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    leadership: Leadership,
    counted: LogMetrics,
) -> AsyncIterator[None]:
    """Answer at the dashboard's address for the block, in which another process leads: alive, ready to take over, and no more."""

    def parts() -> dict[str, PartHealth]:
        return {"cluster": PartHealth(ok=True, detail=leadership.role())}

    def figures() -> Figures:
        return {"shipmate_part_ok": {name: part.ok for name, part in parts().items()}}

    where, clock = settings.dashboard, environment.clock
    connections = Connections(descriptors.connections(descriptors.limit()), clock=clock, log=log)
    page = Dashboard(
        where.host,
        where.port,
        where.token,
        parts,
        nearby="port" not in where.model_fields_set,
        metrics=MetricsPage(counted, figures),
        console=None,
        clock=clock,
        server=connections.server(),
        holder=ports.port_owner,
        user_of=ports.user_of,
    )
    if where.enabled:
        await page.start()
    try:
        yield
    finally:
        await page.stop()


def build_dashboard(
    services: Services,
    archive: ChatStore,
    figures: GatewayFigures,
    metrics: MetricsPage,
    reload: ConfigurationReload,
) -> Dashboard:
    settings, environment, home = services.settings.dashboard, services.environment, services.settings.home
    sources = ConsoleSources(
        parts=figures.readiness.parts,
        figures=figures.read,
        active=figures.active,
        settings=lambda: config.shown_leaves(reload.settings),
        pending=services.lists.pending,
        archive=archive,
        usage=UsageSums(home, services.settings.engine.database_url),
        logs=home / "logs",
        disk=environment.disk,
        clock=environment.clock,
    )
    return Dashboard(
        settings.host,
        settings.port,
        settings.token,
        figures.readiness.parts,
        nearby="port" not in settings.model_fields_set,
        metrics=metrics,
        console=Console(sources),
        clock=environment.clock,
        server=services.connections.server(),
        holder=ports.port_owner,
        user_of=ports.user_of,
    )


def build_services(settings: config.Settings, environment: Environment, log: JsonlLog) -> Services:
    home, clock, disk = settings.home, environment.clock, environment.disk
    llm = settings.llm
    learned = LearnedFile(home / "cache" / "models.json", provider_name(settings), disk=disk, log=log)
    learned.load()
    redact, manifests = Redactor(settings.secrets), discovery.manifests()
    lists = AccessList(home / ACCESS_FILE, disk, clock)
    starters = {UserRef(name, one) for name in settings.enabled for one in manifests[name].operators}
    reserve = DiskReserve(home / "reserve", log)
    vetting = Vetting(
        settings.root,
        home / "vetting.json",
        disk,
        log,
        more=instructions_of(settings),
        skills=tuple(settings.root / one for one in settings.skills.paths),
    )
    artifacts = ArtifactStore(home / "artifacts", disk=disk, ids=environment.ids, clock=clock, log=log)
    model, fallbacks = build_models(settings, environment, log, artifacts)
    return Services(
        settings,
        environment,
        log,
        redact,
        manifests,
        artifacts,
        NoteStore(home / "memory", disk=disk, redact=redact),
        model,
        learned,
        build_windows(llm, learned, log),
        lists,
        Operators(settings.operators | starters, lists),
        reserve,
        Connections(descriptors.connections(descriptors.limit()), clock=clock, log=log),
        vetting,
        SkillFolder(settings.root, settings.skills.paths, log, vetting),
        fallbacks,
    )


def build_log(services: Services, codec: Codec, alert: Alert) -> EventLog:
    """The log of all chats."""
    settings, environment, log = services.settings, services.environment, services.log
    if (url := settings.engine.database_url) is not None:
        from bot.core.postgres_log import PostgresLog  # its library is there where it is wanted

        return PostgresLog(
            url,
            codec,
            settings.home / "exports.json",
            epoch=environment.leadership.epoch,
            disk=environment.disk,
            clock=environment.clock,
            log=log,
            alert=alert,
        )
    path = settings.home / FILE
    return SqliteLog(
        path, codec, clock=environment.clock, log=log, reserve=services.reserve, alert=alert, mend=True
    )


def build_windows(llm: config.Llm, learned: LearnedFile, log: JsonlLog) -> ContextWindows:
    return ContextWindows(
        learned, log=log, model=llm.model, configured=llm.context_window, max_tokens=llm.max_tokens
    )


def build_models(
    settings: config.Settings, environment: Environment, log: JsonlLog, artifacts: ArtifactStore
) -> tuple[WatchedModel, list[Fallback]]:
    """The model, and those that stand in for it."""
    llm = settings.llm
    build = functools.partial(
        factory.build_model,
        provider=llm.provider,
        clock=environment.clock,
        log=log,
        ids=environment.ids,
        rng=environment.rng,
        log_messages=llm.log_messages,
        log_payload=llm.log_payload,
        retry_seconds=llm.retry_seconds,
        prices=configuration.prices_of(llm),
        pace=environment.pace,
        artifacts=artifacts,
    )
    first = build(api_key=llm.api_key, base_url=llm.base_url, last=not llm.fallback)
    others: list[Fallback] = []
    for one in llm.fallback:
        key, address, last = one.api_key or llm.api_key, one.address(llm.base_url), one is llm.fallback[-1]
        others.append((build(api_key=key, base_url=address, last=last), one.model))
    return WatchedModel(first, clock=environment.clock, alone=not others), others


def provider_name(settings: config.Settings) -> str:
    """The provider, or the host of `llm.baseUrl`: what is learnt at one address need not hold at another."""
    llm = settings.llm
    return llm.provider if llm.base_url is None else urlsplit(llm.base_url).netloc.rpartition("@")[2]


def model_name(settings: config.Settings) -> str:
    """The model that answers."""
    return settings.llm.model if settings.llm.provider != "demo" else "demo"


def fast_model(settings: config.Settings) -> str:
    """The model that brings results together; "": the one that answers."""
    return settings.llm.fast_model if settings.llm.provider != "demo" else ""


def manners(llm: config.Llm) -> dict[str, Any]:
    """Effort and thinking of requests, and the models that differ by purpose (`bot.core.models.ModelDeps`)."""
    purposes = {name: Manner(one.effort, one.thinking, one.model) for name, one in llm.purposes.items()}
    return {"manner": Manner(llm.effort, llm.thinking), "purposes": purposes}


def build_channels(services: Services, names: Iterable[str]) -> dict[str, Channel]:
    settings, environment = services.settings, services.environment

    async def appoint(person: UserRef) -> None:
        await asyncio.to_thread(services.lists.appoint, person)
        services.log.write("approval", "somebody is an operator from now on", operator=str(person))

    around = ChannelDeps(
        environment.clock,
        services.log,
        environment.rng,
        settings.home,
        settings.root,
        environment.disk,
        services.operators,
        settings.name,
        ports.port_owner,
        ports.user_of,
        appoint,
        services.connections.server,
        environment.pace,
    )
    return {
        name: environment.channel(services.manifests[name].build(settings.channels[name], around))
        for name in names
    }


def build_transcriber(settings: config.Transcription) -> HttpTranscriber | None:
    """The transcriber of voice notes; None where nothing is configured."""
    if settings.base_url is None:
        return None
    return HttpTranscriber(Endpoint(settings.base_url, settings.model, settings.api_key))


def build_mcp(services: Services, questions: Questions) -> McpServers:
    settings, environment = services.settings, services.environment
    return McpServers(
        settings.mcp,
        questions=questions,
        root=settings.root,
        clock=environment.clock,
        log=services.log,
        redact=services.redact,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class AgentServices:
    """The services of core and features for the agent and its tools."""

    archive: ChatStore
    approvals: Approvals
    alerts: OperatorNotices
    memberships: Memberships
    around_calls: WrapCall
    wrap_model: Callable[[Model], Model]
    display: Display | None = None
    jobs: Jobs | None = None
    recall: Recalls | None = None


class SessionMemories:
    """`core.summaries.MemoryFile` in the folder `memory`."""

    def __init__(self, memories: Memories, clock: Clock) -> None:
        self._memories = memories
        self._clock = clock

    async def edited(self, chat: ChatKey, known: str) -> str | None:
        """As `core.summaries.MemoryFile`."""
        kept = await self._memories.load(chat)
        return kept.markdown if kept is not None and kept.markdown != text.clean(known) else None

    async def save(self, chat: ChatKey, memory: Remembered) -> None:
        """As `core.summaries.MemoryFile`."""
        ts = int(self._clock.now() * 1000)
        covers = None if memory.covers is None else str(memory.covers)
        kept = SavedMemory(memory.markdown, covers, ts, origin=unpacked(memory.origin))
        await self._memories.save(chat, kept)


def load_spending(spending: Spending, settings: config.Settings, environment: Environment, log: Log) -> None:
    """Load the cost of today, where there are budgets: before anything is asked of the model. Blocking; raises nothing."""
    if not settings.budgets.limits:
        return
    day = day_of(environment.clock.now())
    since = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    try:
        spent = UsageSums(settings.home, settings.engine.database_url).spent(since)
    except errors.StorageError as error:
        log.write(
            "error", "the cost of today is not known: budgets begin anew", level="error", cause=str(error)
        )
        return
    prices = configuration.prices_of(settings.llm)
    spending.load(
        day,
        [
            (
                chat,
                person,
                max(one.cost, prices.at_most(model, usage_of(one.tokens)) if one.unpriced else 0.0),
            )
            for (chat, person, model), one in spent
        ],
    )


def build_agent(
    services: Services,
    gateway: AgentServices,
    mcp: McpServers,
    spending: Spending,
) -> AgentDeps:
    """Build the agent of all chats."""
    settings, environment, log = services.settings, services.environment, services.log
    clock = environment.clock
    model = build_model(services, gateway, spending)
    ports = build_tool_ports(services, gateway, mcp, model)
    registry = Registry(builtin_tools(ports), mcp)
    return AgentDeps(
        models=ModelDeps(
            model=model,
            default_model=model_name(settings),
            fast_model=fast_model(settings),
            **manners(settings.llm),
            windows=services.windows,
            estimator=Estimator(services.learned),
            prices=configuration.prices_of(settings.llm),
        ),
        archive=gateway.archive,
        memories=SessionMemories(Memories(settings.home / "memory", disk=environment.disk), clock),
        notes=services.memory_files,
        artifacts=services.artifacts,
        limits=view_limits(settings),
        registry=registry,
        dispatcher=build_dispatcher(services, registry, gateway),
        task_events=gateway.display.tasks if gateway.display else lambda _: None,
        approvals=gateway.approvals,
        operators=gateway.alerts,
        prompts=Prompts(
            settings.root,
            name=settings.name,
            skills=services.skills,
            instructions=InstructionFiles(
                settings.root,
                encode=encode,
                log=log,
                everywhere=operator_files(os.environ),
                vetting=services.vetting,
            ),
            log=log,
            redact=services.redact,
            **settings.prompt.sources(settings.root),
            has_files=not FILE_TOOLS.isdisjoint(registry.names()),
            others=ports.origins.foreign_names,
            vetting=services.vetting,
        ),
        vetting=services.vetting,
        root=settings.root,
        clock=clock,
        ids=environment.ids,
        log=log,
        rules={name: manifest.rules for name, manifest in services.manifests.items()},
        redact=services.redact,
        settled=services.redact.settled,
    )


def build_model(services: Services, gateway: AgentServices, spending: Spending) -> Model:
    """The model with all that stands around it: records, stand-ins, budgets."""
    settings, environment, log = services.settings, services.environment, services.log
    first: Model = gateway.wrap_model(services.model)
    if settings.llm.provider_fallbacks:
        first = ProviderFallbacks(first)
    model: Model = SystemRoleModel(first, services.windows)
    if services.fallbacks:
        others = [(gateway.wrap_model(one), name) for one, name in services.fallbacks]
        model = FallbackModel(model, others, clock=environment.clock, log=log, operators=gateway.alerts)
    if limits := settings.budgets.limits:
        model = BudgetedModel(
            model,
            spending,
            limits,
            approvals=gateway.approvals,
            operators=gateway.alerts,
            clock=environment.clock,
        )
    return model


def with_settings(
    deps: AgentDeps, services: Services, gateway: AgentServices, settings: config.Settings
) -> AgentDeps:
    """The agent's collaborators under other settings of turns (`bot.reload.OF_TURNS`); all else is shared."""
    changed = dataclasses.replace(
        services, settings=settings, windows=build_windows(settings.llm, services.learned, services.log)
    )
    return dataclasses.replace(
        deps,
        models=dataclasses.replace(
            deps.models,
            default_model=model_name(settings),
            fast_model=fast_model(settings),
            **manners(settings.llm),
            windows=changed.windows,
        ),
        limits=view_limits(settings),
        dispatcher=build_dispatcher(changed, deps.registry, gateway),
    )


def build_tool_ports(services: Services, gateway: AgentServices, mcp: McpServers, model: Model) -> ToolPorts:
    engine = services.settings.web_search
    root, shell = services.settings.root, services.settings.shell
    project = Project(root)
    return ToolPorts(
        history=gateway.archive.search,
        artifacts=services.artifacts,
        skills=services.skills,
        clock=services.environment.clock,
        memory=services.memory_files,
        project=project,
        isolation=Isolation(
            root,
            required=shell.isolation == "required",
            network=shell.network,
            limits=CommandLimits(**shell.limits.model_dump()),
            code=project.code,
            vetting=services.vetting,
        ),
        recall=gateway.recall,
        membership=gateway.memberships,
        catalog=mcp,
        permalink=gateway.memberships.permalink,
        jobs=gateway.jobs,
        origins=FileProvenance(
            root, services.settings.home / "origins.json", services.operators, services.environment.disk
        ),
        vetting=services.vetting,
        search=None
        if engine is None
        else Search(engine, fast_model(services.settings), lambda request: reply_of(model.stream(request))),
    )


def build_dispatcher(services: Services, registry: Registry, gateway: AgentServices) -> Dispatcher:
    around = gateway.around_calls(build_policy(services, registry, gateway.approvals), registry)
    return Dispatcher(
        registry,
        clock=services.environment.clock,
        log=services.log,
        log_content=services.settings.llm.log_messages,
        redact=services.redact,
        artifacts=services.artifacts,
        around=CallWatcher(around, registry, gateway.display.calls) if gateway.display else around,
        pictures=services.settings.files.pictures,
    )


def build_policy(services: Services, registry: Registry, approvals: Approvals) -> ToolPolicy:
    """The wrappers around each tool call."""
    settings, environment = services.settings, services.environment
    paths, zone = Paths(str(settings.root), read_link), settings.schedule.timezone
    return ToolPolicy(
        registry,
        Rules(paths, protected_code(settings.root), **settings.permissions.model_dump()),
        paths,
        operators=services.operators,
        zone=UTC if zone == "UTC" else ZoneInfo(zone),
        clock=environment.clock,
        log=services.log,
        redact=services.redact,
        approvals=approvals,
        narrowing=SkillAllowlist(services.skills, paths),
        vetting=services.vetting,
    )


def view_limits(settings: config.Settings) -> Limits:
    sizes, compaction = settings.context, settings.context.compaction
    return Limits(
        max_messages=sizes.max_messages,
        max_injected=sizes.max_injected_messages,
        soft_tokens=compaction.soft_tokens,
        mask_threshold=sizes.mask_threshold_tokens,
        keep_observations=sizes.keep_recent_observations,
        compaction=Policy(
            compaction.enabled,
            compaction.keep_tokens,
            compaction.idle.enabled,
            compaction.idle.above_tokens,
            compaction.provider == "auto",
        ),
        tasks=limits_of(settings.subagents),
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
