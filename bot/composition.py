"""Builds all parts of the process from the settings: services, core, features, agent and dashboard. Nothing is started
here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from bot import config, configuration, discovery, errors, http_server
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList, Operators
from bot.config.schema import descriptions
from bot.contracts.channel import Channel, ChannelDeps
from bot.contracts.environment import Log
from bot.contracts.identity import UserRef
from bot.contracts.model import Model
from bot.core import feature
from bot.core.access import Access, InboundCleaner, Memberships
from bot.core.agent import AgentDeps, Manner, ModelDeps
from bot.core.archive_files import ChatStore
from bot.core.attachments import FileReader
from bot.core.chat import MODES, Chat
from bot.core.chats import Chats
from bot.core.conversation_list import given_names
from bot.core.estimate import Estimator
from bot.core.event_log import Alert, EventLog
from bot.core.exports import ArchiveExport, Exporter
from bot.core.fallback import Fallback, FallbackModel, ProviderFallbacks
from bot.core.feature import Door, Runtime
from bot.core.instructions import InstructionFiles, operator_files
from bot.core.intake import Intake as CoreIntake
from bot.core.locales import Locales
from bot.core.long_blocks import LongBlocks
from bot.core.maintenance import Maintenance
from bot.core.operators import OperatorAlerts, OperatorChats
from bot.core.outbox import Leadership, Outbox
from bot.core.outgoing import Saying
from bot.core.outgoing_files import OutgoingFiles, OutgoingLimits
from bot.core.prompt import Prompts
from bot.core.rate_limit import RateLimiter
from bot.core.reply import ReplyPorts
from bot.core.runner import Runner, Slots
from bot.core.sqlite_log import FILE, SqliteLog
from bot.core.turns import Turns
from bot.core.usage import UsageRecorder, UsageSums
from bot.dashboard.console import Console, PartHealth
from bot.dashboard.metrics import Figures, LogMetrics, MetricsPage
from bot.dashboard.server import Dashboard
from bot.disk_reserve import DiskReserve
from bot.health import ChannelWatchdog, GatewayHealth
from bot.http_server import Connections
from bot.importing import import_ship
from bot.llm import wrapper
from bot.llm.budgets import BudgetedModel, Spending, day_of
from bot.llm.transcription import HttpTranscriber
from bot.llm.windows import ContextWindows, LearnedFile
from bot.llm.wrapper import SystemRoleModel, WatchedModel, reply_of, usage_of
from bot.reload import ConfigurationReload
from bot.rss_monitor import RssMonitor
from bot.services import Environment, Services
from bot.storage.artifacts import ArtifactStore
from bot.storage.file_names import encode
from bot.storage.notes import Memories, NoteStore
from bot.system import read_link
from bot.telemetry import JsonlLog, Redactor
from bot.tools.builtin import Search, ToolPorts, builtin_tools
from bot.tools.context import Recalls
from bot.tools.dispatch import CallWatcher, Dispatcher
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.mcp.servers import McpServers
from bot.tools.permissions.matching import Paths
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import Rules
from bot.tools.policy import Policy
from bot.tools.project import Project
from bot.tools.registry import Registry
from bot.tools.skills import SkillAllowlist, SkillFolder
from bot.vetting import Vetting

FILE_TOOLS = frozenset({"read_file", "write_file", "edit_file", "list_dir", "search_files"})
"""Names of the file tools. If any of these tools exists, the prompt describes the project's folder."""


class Gateway:
    """All parts of the process, connected but not yet started."""

    def __init__(
        self,
        settings: config.Settings,
        environment: Environment,
        log: JsonlLog,
        names: Iterable[str],
        *,
        counted: LogMetrics | None,
        spending: Spending,
    ) -> None:
        """Build a gateway for the channels `names`. The channels' libraries must have been imported. The gateway has a
        dashboard if `counted` is given. `spending` observes the log.
        """
        clock, ids, boot = environment.clock, environment.ids, environment.ids.ulid()
        self.services = services = build_services(settings, environment, log)
        self.channels = channels = build_channels(services, names)
        memberships = Memberships(channels, log)
        allow = {name: frozenset(getattr(one, "allow", ())) for name, one in settings.channels.items()}
        access = Access(services.manifests, allow, services.operators, services.lists, memberships)
        for name in channels:
            access.prove(name)
        self.event_log = event_log = environment.event_log(
            build_log(services, lambda subject, words: alerts.tell(subject, words))  # noqa: PLW0108 - the object is created below
        )
        make = functools.partial(
            Chat,
            mode=MODES[settings.queue.mode],
            debounce=settings.queue.debounce_ms / 1000,
            max_messages=settings.context.max_messages,
        )
        self.chats = chats = Chats(event_log, make, clock=clock, ids=ids)
        saying = Saying(channels, services.redact)
        log.observers.append(UsageRecorder(chats).observe)
        slots = Slots(settings.queue.max_concurrent_turns)
        self.door = door = Door()
        self.locales = locales = Locales(chats, zone=settings.schedule.timezone)
        operators = OperatorChats(services.operators, channels, services.manifests)
        alerts = OperatorAlerts(
            chats,
            operators,
            memberships=memberships,
            saying=saying,
            locales=locales,
            clock=clock,
            ids=ids,
            log=log,
        )
        limits = RateLimiter(services.manifests, clock, limits=settings.delivery.limits)
        self.files = files = OutgoingFiles(
            settings.home / "outgoing",
            channels,
            chats,
            disk=environment.disk,
            redact=services.redact,
            log=log,
            limits=OutgoingLimits(file=settings.delivery.max_file_mb * 1_000_000),
        )
        outbox = Outbox(
            channels,
            chats,
            event_log,
            files,
            limits,
            alert=alerts.tell,
            leadership=environment.leadership,
            boot=boot,
            clock=clock,
            ids=ids,
            log=log,
        )
        exporter: Exporter

        door.open(
            feature.found(),
            Runtime(
                configuration=settings,
                name=settings.name,
                models=lambda chat: self.turns.models(chat),  # noqa: PLW0108 - the object is created below
                chats=chats,
                event_log=event_log,
                channels=channels,
                manifests=services.manifests,
                access=access,
                lists=services.lists,
                notes=services.memory_files,
                artifacts=services.artifacts,
                memberships=memberships,
                operators=services.operators,
                operator_chats=operators,
                alerts=alerts,
                locales=locales,
                saying=saying,
                live=outbox,
                limits=limits,
                settings=settings.channels,
                slots=settings.queue.max_concurrent_turns,
                redact=services.redact,
                settled=services.redact.settled,
                boot=boot,
                compact=lambda inbound: self.turns.compact(inbound),  # noqa: PLW0108 - the object is created below
                files=files,
                suspended=slots.suspended,
                servers=lambda: self.mcp.sources(),  # noqa: PLW0108 - the object is created below
                settle=door.settle,
                waiting=door.waiting,
                clock=clock,
                disk=environment.disk,
                ids=ids,
                log=log,
            ),
        )
        self.archive = archive = ChatStore(
            settings.home / "chats",
            disk=environment.disk,
            log=log,
            archive_after_lines=settings.history.archive_after_lines,
            flush=lambda: exporter.flush(),  # noqa: PLW0108 - the object is created below
        )
        exporter = Exporter(ArchiveExport(archive, event_log), event_log, clock=clock, log=log)
        self.mcp = mcp = McpServers(
            settings.mcp,
            questions=door.asks,
            root=settings.root,
            clock=clock,
            log=log,
            redact=services.redact,
        )
        self.memory = memory = RssMonitor(settings.memory.limit_mb, reports=alerts, clock=clock, log=log)
        long_blocks = LongBlocks(channels, on=settings.delivery.long_as_files)

        def reply(chat: Chat, channel: str) -> ReplyPorts:
            show = functools.partial(door.display.preview, chat) if door.display else lambda *_: None
            return ReplyPorts(channels[channel].split, show, services.redact, long_blocks, files)

        cleaner = InboundCleaner(services.redact, access)
        self.turns = turns = Turns(
            build_agent(
                services,
                door,
                mcp,
                archive=archive,
                alerts=alerts,
                memberships=memberships,
                spending=spending,
            ),
            chats,
            event_log,
            reply,
            build_reader(services, channels, memory),
            door=door,
            cleaner=cleaner,
            boot=boot,
        )
        self.runner = runner = Runner(
            chats,
            event_log,
            outbox=outbox,
            door=door,
            saying=saying,
            locales=locales,
            loop=turns.loop,
            turn_ended=turns.summaries.turn_ended,
            slots=slots,
            alert=alerts.tell,
            boot=boot,
            clock=clock,
            log=log,
        )
        self.intake = intake = CoreIntake(
            chats,
            event_log,
            access,
            cleaner,
            door,
            alerts=alerts,
            archive=archive,
            models=turns.models,
            locales=locales,
            name=settings.name,
            clock=clock,
            ids=ids,
            log=log,
        )
        self.watch = watch = ChannelWatchdog(channels, services.manifests, alerts, clock=clock, log=log)
        self.health = health = GatewayHealth(services, channels, event_log, memory, mcp, watch, runner, chats)
        self.reload = reload = ConfigurationReload(
            settings, turns.use, lambda changed: with_settings(turns.agent, services, door, changed), log
        )
        self.dashboard = (
            build_dashboard(
                services,
                archive,
                health,
                MetricsPage(counted, health.figures),
                reload,
                recalls=door.ports.get("recall"),
                intake=intake,
            )
            if counted is not None and settings.dashboard.enabled
            else None
        )
        self.maintenance = Maintenance(
            event_log,
            services.reserve,
            services.model,
            services.learned,
            mcp,
            memory,
            services.artifacts,
            turns.summaries,
            alerts,
            log,
        )
        self.import_ship = functools.partial(
            import_ship,
            settings.home,
            make,
            needs_turn=door.needs_turn,
            is_operator=lambda inbound: access.is_operator(inbound.person),
        )
        self.exports = [exporter, *door.exports]
        self.counted = counted


def build_services(settings: config.Settings, environment: Environment, log: JsonlLog) -> Services:
    """Build the services on which the core depends."""
    home, llm, clock, disk = settings.home, settings.llm, environment.clock, environment.disk
    # A model may have other limits at another address, so what is learnt is stored by address.
    provider = llm.provider if llm.base_url is None else urlsplit(llm.base_url).netloc.rpartition("@")[2]
    learned = LearnedFile(home / "cache" / "models.json", provider, disk=disk, log=log)
    learned.load()
    redact, manifests = Redactor(settings.secrets), discovery.manifests()
    lists = AccessList(home / ACCESS_FILE, disk, clock)
    starters = {UserRef(name, one) for name in settings.enabled for one in manifests[name].operators}
    prompt_files = settings.prompt.sources(settings.root).values()
    vetting = Vetting(
        settings.root,
        home / "vetting.json",
        disk,
        log,
        more=(*operator_files(os.environ), *(one for one in prompt_files if isinstance(one, Path))),
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
        DiskReserve(home / "reserve", log),
        Connections(http_server.max_connections(), clock=clock, log=log),
        vetting,
        SkillFolder(settings.root, settings.skills.paths, log, vetting),
        fallbacks,
    )


def build_log(services: Services, alert: Alert) -> EventLog:
    """Build the log of all chats."""
    settings, environment, log = services.settings, services.environment, services.log
    if (url := settings.engine.database_url) is not None:
        from bot.core.postgres_log import PostgresLog  # needs the optional PostgreSQL library

        return PostgresLog(
            url,
            settings.home / "exports.json",
            epoch=environment.leadership.epoch,
            disk=environment.disk,
            clock=environment.clock,
            log=log,
            alert=alert,
        )
    path = settings.home / FILE
    return SqliteLog(path, clock=environment.clock, log=log, reserve=services.reserve, alert=alert, mend=True)


def build_windows(llm: config.Llm, learned: LearnedFile, log: JsonlLog) -> ContextWindows:
    return ContextWindows(
        learned, log=log, model=llm.model, configured=llm.context_window, max_tokens=llm.max_tokens
    )


def build_models(
    settings: config.Settings, environment: Environment, log: JsonlLog, artifacts: ArtifactStore
) -> tuple[WatchedModel, list[Fallback]]:
    """Build the clients of the model and of its fallbacks."""
    llm = settings.llm
    build = functools.partial(
        wrapper.build_model,
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
        http_server.port_owner,
        http_server.user_of,
        appoint,
        services.connections.server,
        environment.pace,
    )
    return {
        name: environment.channel(services.manifests[name].build(settings.channels[name], around))
        for name in names
    }


def build_reader(services: Services, channels: Mapping[str, Channel], memory: RssMonitor) -> FileReader:
    """Build the reader of attachments."""
    files = services.settings.files
    speech = files.transcription
    return FileReader(
        channels,
        services.manifests,
        artifacts=services.artifacts,
        redact=services.redact,
        rss_monitor=memory,
        clock=services.environment.clock,
        log=services.log,
        limits=files,
        transcriber=None
        if speech.base_url is None
        else HttpTranscriber(speech.base_url, speech.model, speech.api_key),
    )


def build_agent(
    services: Services,
    door: Door,
    mcp: McpServers,
    *,
    archive: ChatStore,
    alerts: OperatorAlerts,
    memberships: Memberships,
    spending: Spending,
) -> AgentDeps:
    """Build the agent that all chats share."""
    settings, environment, log = services.settings, services.environment, services.log
    clock = environment.clock
    model = build_model(services, alerts, door, spending)
    ports = build_tool_ports(services, door, mcp, model, archive=archive, memberships=memberships)
    registry = Registry(builtin_tools(ports), mcp)
    return AgentDeps(
        models=ModelDeps(
            model=model,
            windows=services.windows,
            **model_choice(settings.llm),
            estimator=Estimator(services.learned),
            prices=configuration.prices_of(settings.llm),
        ),
        archive=archive,
        memories=Memories(settings.home / "memory", disk=environment.disk),
        notes=services.memory_files,
        artifacts=services.artifacts,
        limits=settings.context,
        tasks=settings.subagents,
        registry=registry,
        dispatcher=build_dispatcher(services, registry, door),
        task_events=door.display.tasks if door.display else lambda _: None,
        approvals=door.approvals,
        operators=alerts,
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


def build_model(services: Services, alerts: OperatorAlerts, door: Door, spending: Spending) -> Model:
    """Return the model with wrappers that record requests, ask fallbacks and enforce budgets."""
    settings, environment, log = services.settings, services.environment, services.log
    first: Model = door.model(services.model)
    if settings.llm.provider_fallbacks:
        first = ProviderFallbacks(first)
    model: Model = SystemRoleModel(first, services.windows)
    if services.fallbacks:
        others = [(door.model(one), name) for one, name in services.fallbacks]
        model = FallbackModel(model, others, clock=environment.clock, log=log, operators=alerts)
    if limits := settings.budgets.limits:
        model = BudgetedModel(
            model, spending, limits, approvals=door.approvals, operators=alerts, clock=environment.clock
        )
    return model


def model_choice(llm: config.Llm) -> dict[str, Any]:
    """Return the fields of `ModelDeps` that ship.json sets."""
    return {
        "default_model": "demo" if llm.provider == "demo" else llm.model,
        "fast_model": "" if llm.provider == "demo" else llm.fast_model,
        "manner": Manner(llm.effort, llm.thinking),
        "purposes": {name: Manner(one.effort, one.thinking, one.model) for name, one in llm.purposes.items()},
    }


def with_settings(deps: AgentDeps, services: Services, door: Door, settings: config.Settings) -> AgentDeps:
    """Return the agent's dependencies with new values for the settings that apply to new turns (`bot.reload.OF_TURNS`).
    The result shares everything else with `deps`.
    """
    changed = dataclasses.replace(
        services, settings=settings, windows=build_windows(settings.llm, services.learned, services.log)
    )
    return dataclasses.replace(
        deps,
        models=dataclasses.replace(deps.models, windows=changed.windows, **model_choice(settings.llm)),
        limits=settings.context,
        tasks=settings.subagents,
        dispatcher=build_dispatcher(changed, deps.registry, door),
    )


def build_tool_ports(
    services: Services,
    door: Door,
    mcp: McpServers,
    model: Model,
    *,
    archive: ChatStore,
    memberships: Memberships,
) -> ToolPorts:
    """Build the interfaces through which tools use other packages."""
    engine = services.settings.web_search
    root, shell = services.settings.root, services.settings.shell
    project = Project(root)
    return ToolPorts(
        history=archive.search,
        artifacts=services.artifacts,
        skills=services.skills,
        clock=services.environment.clock,
        memory=services.memory_files,
        project=project,
        isolation=Isolation(
            root,
            required=shell.isolation == "required",
            network=shell.network,
            limits=shell.limits,
            code=project.code,
            vetting=services.vetting,
        ),
        membership=memberships,
        catalog=mcp,
        permalink=memberships.permalink,
        **door.ports,
        origins=FileProvenance(
            root, services.settings.home / "origins.json", services.operators, services.environment.disk
        ),
        vetting=services.vetting,
        search=None
        if engine is None
        else Search(
            engine,
            model_choice(services.settings.llm)["fast_model"],
            lambda request: reply_of(model.stream(request)),
        ),
    )


def build_dispatcher(services: Services, registry: Registry, door: Door) -> Dispatcher:
    """Build the dispatcher of tool calls. It applies the permissions, and the wrappers that features add to each call."""
    settings, environment = services.settings, services.environment
    paths, zone = Paths(str(settings.root), read_link), settings.schedule.timezone
    policy = Policy(
        registry,
        Rules(paths, protected_code(settings.root), **settings.permissions.model_dump()),
        paths,
        operators=services.operators,
        zone=UTC if zone == "UTC" else ZoneInfo(zone),
        clock=environment.clock,
        log=services.log,
        redact=services.redact,
        approvals=door.approvals,
        narrowing=SkillAllowlist(services.skills, paths),
        vetting=services.vetting,
    )
    around = door.around_calls(policy, registry)
    return Dispatcher(
        registry,
        clock=environment.clock,
        log=services.log,
        log_content=settings.llm.log_messages,
        redact=services.redact,
        artifacts=services.artifacts,
        around=CallWatcher(around, registry, door.display.calls) if door.display else around,
        pictures=settings.files.pictures,
    )


def build_dashboard(
    services: Services,
    archive: ChatStore,
    health: GatewayHealth,
    metrics: MetricsPage,
    reload: ConfigurationReload,
    *,
    recalls: Recalls | None,
    intake: CoreIntake,
) -> Dashboard:
    """Build the dashboard of the process that leads."""
    home, clock = services.settings.home, services.environment.clock
    console = Console(
        parts=health.parts,
        figures=health.figures,
        active=health.active,
        settings=lambda: config.shown_leaves(reload.settings),
        about=functools.partial(descriptions, services.manifests),
        channels=lambda: sorted(health.channels),
        titles=lambda: given_names(health.chats),
        recalls=recalls,
        waiting=intake.console_board,
        decide=intake.decide,
        archive=archive,
        usage=UsageSums(home, services.settings.engine.database_url),
        logs=home / "logs",
        disk=services.environment.disk,
        clock=clock,
    )
    server = services.connections.server()
    return Dashboard(services.settings.dashboard, health.parts, metrics, console, clock=clock, server=server)


@contextlib.asynccontextmanager
async def standing_by(
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    leadership: Leadership,
    counted: LogMetrics,
) -> AsyncIterator[None]:
    """Serve the health pages at the dashboard's address while another process leads."""

    def parts() -> dict[str, PartHealth]:
        return {"cluster": PartHealth(ok=True, detail=leadership.role())}

    def figures() -> Figures:
        return {"shipmate_part_ok": {name: part.ok for name, part in parts().items()}}

    clock = environment.clock
    connections = Connections(http_server.max_connections(), clock=clock, log=log)
    metrics = MetricsPage(counted, figures)
    page = Dashboard(settings.dashboard, parts, metrics, None, clock=clock, server=connections.server())
    if settings.dashboard.enabled:
        await page.start()
    try:
        yield
    finally:
        await page.stop()


def load_spending(spending: Spending, settings: config.Settings, environment: Environment, log: Log) -> None:
    """Load today's costs if there are budgets, before the first model call. This call blocks and raises nothing."""
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
