"""Builds all parts of the process from the settings: services, core, features, agent and dashboard. This module starts
none of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from bot import config, configuration, discovery, http_server
from bot import llm as language_model
from bot.contracts.channel import ChannelDeps
from bot.contracts.environment import Log
from bot.contracts.identity import UserRef
from bot.contracts.messages import Inbound
from bot.contracts.model import Model
from bot.core import feature
from bot.core.access import ACCESS_FILE, Access, AccessList, Operators
from bot.core.archive_files import ChatStore
from bot.core.attachments import FileReader, OutgoingFiles
from bot.core.chat import Chat, Phase
from bot.core.chats import TITLE, Chats
from bot.core.event_log import Alert, EventLog
from bot.core.exports import ArchiveExport, Exporter
from bot.core.feature import Door, Runtime
from bot.core.fit import AgentDeps
from bot.core.intake import Intake as CoreIntake
from bot.core.locales import Locales
from bot.core.operators import ChannelWatchdog, Maintenance, OperatorAlerts
from bot.core.outbox import Outbox, RateLimiter
from bot.core.prompt import InstructionFiles, Prompts, operator_files
from bot.core.reply import ChatReply
from bot.core.runner import Runner, Slots, Turns
from bot.core.services import Environment, Services
from bot.core.sqlite_log import FILE, SqliteLog
from bot.core.usage import UsageRecorder, UsageSums
from bot.dashboard.console import ActiveChat, Console, PartHealth
from bot.dashboard.metrics import Figures, Metrics
from bot.dashboard.server import Dashboard
from bot.http_server import Connections
from bot.importing import import_ship
from bot.llm.costs import BudgetedModel, Spending
from bot.llm.models import ContextWindows, Estimator, LearnedFile, ModelDeps
from bot.llm.wrapper import (
    Fallback,
    FallbackModel,
    ProviderFallbacks,
    RetryingModel,
    SystemRoleModel,
    reply_of,
)
from bot.resources import DiskReserve, RssMonitor
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.system import read_link
from bot.telemetry.log import JsonlLog
from bot.telemetry.redaction import Redactor
from bot.tools.builtin import Search, ToolPorts, builtin_tools
from bot.tools.dispatch import Dispatcher, Registry
from bot.tools.file_guard import FileGuard
from bot.tools.isolation import Isolation
from bot.tools.mcp.servers import McpServers
from bot.tools.permissions.patterns import Paths
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import Rules
from bot.tools.policy import Policy
from bot.tools.project import Project
from bot.tools.skills import SkillAllowlist, SkillFolder


class Gateway:
    """All parts of the process, connected but not yet started."""

    def __init__(
        self,
        settings: config.Settings,
        environment: Environment,
        log: JsonlLog,
        names: Iterable[str],
        *,
        counted: Metrics | None,
        spending: Spending,
    ) -> None:
        """Build a gateway for the channels `names`. The channels' libraries must have been imported. The gateway has a
        dashboard if `counted` is given. `log` must already report each line to `spending`.
        """
        self.settings, self.counted, clock = settings, counted, environment.clock
        self.connections = Connections(http_server.max_connections(), clock=clock, log=log)
        self.services = services = build_services(settings, environment, log, names, self.connections)
        self.channels = channels = services.channels
        self.reserve = reserve = DiskReserve(settings.home / "reserve", log)

        # Build the log and the chats.
        stored = build_log(services, reserve, lambda subject, words: alerts.tell(subject, words))  # noqa: PLW0108 - the object is created below
        self.event_log = event_log = environment.wrap_log(stored)
        make = functools.partial(
            Chat,
            mode=settings.queue.mode,
            debounce=settings.queue.debounce_ms / 1000,
            max_messages=settings.context.max_messages,
        )
        self.chats = chats = Chats(event_log, make, clock=clock, ids=services.ids)
        log.observers.append(UsageRecorder(chats).observe)
        allow = {name: frozenset(getattr(one, "allow", ())) for name, one in settings.channels.items()}
        access = Access(
            services.manifests, allow, services.operators, services.lists, services.redact, channels, log
        )
        for name in channels:
            access.prove(name)

        # Build the parts that send messages.
        self.locales = locales = Locales(chats, zone=settings.schedule.timezone)
        alerts = OperatorAlerts(services, chats, access, locales)
        limits = RateLimiter(services.manifests, clock, limits=settings.delivery.limits)
        self.files = files = OutgoingFiles(services, chats)
        outbox = Outbox(services, chats, event_log, files, limits, alerts)

        # Build the features.
        slots = Slots(settings.queue.max_concurrent_turns)
        self.door = door = Door()
        runtime = Runtime(
            **vars(services),
            chats=chats,
            event_log=event_log,
            access=access,
            alerts=alerts,
            locales=locales,
            files=files,
            live=outbox,
            limits=limits,
            models=lambda chat: self.turns.models(chat),  # noqa: PLW0108 - the object is created below
            servers=lambda: self.mcp.sources(),  # noqa: PLW0108 - the object is created below
            compact=lambda inbound: self.turns.compact(inbound),  # noqa: PLW0108 - the object is created below
            suspended=slots.suspended,
            waiting=door.waiting,
        )
        door.open(feature.found(), runtime)

        # Build the archive, the model and the agent.
        exporter: Exporter
        self.archive = archive = ChatStore(
            settings.home / "chats",
            disk=environment.disk,
            log=log,
            archive_after_lines=settings.history.archive_after_lines,
            flush=lambda: exporter.flush(),  # noqa: PLW0108 - the object is created below
        )
        exporter = Exporter(ArchiveExport(archive, event_log), event_log, clock=clock, log=log)
        self.exports = [exporter, *door.all("exports")]
        ask, root = door.asks, settings.root
        self.mcp = mcp = McpServers(
            settings.mcp, ask=ask, root=root, clock=clock, log=log, redact=services.redact
        )
        # The same model may have different limits at another address, so learned limits are stored for each address.
        llm, file = settings.llm, settings.home / "cache" / "models.json"
        provider = llm.provider if llm.base_url is None else urlsplit(llm.base_url).netloc.rpartition("@")[2]
        self.learned = learned = LearnedFile(file, provider, disk=services.disk, log=log)
        learned.load()
        self.model, self.fallbacks = build_models(services)
        self.memory = memory = RssMonitor(settings.memory.limit_mb, clock=clock, log=log)

        def reply(chat: Chat, turn: str, to: Inbound) -> ChatReply:
            channel = channels[to.channel]
            return ChatReply(
                chat,
                turn,
                to,
                chats,
                split=channel.split,
                show=functools.partial(door.display.preview, chat) if door.display else lambda *_: None,
                limits=channel.reading_limits if settings.delivery.long_as_files else None,
                redact=services.redact,
                files=files,
            )

        agent = self._agent(alerts, access, spending)
        reader = FileReader(services, memory)
        self.turns = turns = Turns(agent, chats, event_log, reply, reader, door=door, access=access)

        # Build the parts that receive messages.
        self.runner = Runner(services, chats, event_log, outbox, door, locales, turns, slots, alerts)
        self.intake = CoreIntake(
            services, chats, event_log, access, door, alerts, archive, locales, turns.models
        )
        self.import_ship = functools.partial(
            import_ship,
            settings.home,
            make,
            needs_turn=door.needs_turn,
            is_operator=lambda inbound: access.is_operator(inbound.person),
        )

        # Build the health checks and the dashboard.
        self.watch = ChannelWatchdog(services, alerts)
        self.maintenance = Maintenance(
            services, event_log, reserve, self.model, learned, mcp, memory, turns.summaries, alerts
        )
        self.dashboard = self._dashboard(counted) if counted and settings.dashboard.enabled else None

    def agent_with(self, settings: config.Settings) -> AgentDeps:
        """Return the agent with new values for the settings that apply to new turns (`bot.lifecycle.OF_TURNS`)."""
        agent = self.turns.agent
        windows = build_windows(settings.llm, self.learned, self.services.log)
        models = dataclasses.replace(agent.models, windows=windows, **model_choice(settings.llm))
        agent = dataclasses.replace(agent, settings=settings, models=models)
        return dataclasses.replace(agent, dispatcher=build_dispatcher(agent, agent.registry, self.door))

    def _agent(self, alerts: OperatorAlerts, access: Access, spending: Spending) -> AgentDeps:
        """Build the agent that all chats share, and the interfaces through which its tools use other packages."""
        services, settings, door, llm = self.services, self.settings, self.door, self.settings.llm
        log, root, shell, engine = services.log, settings.root, settings.shell, settings.web_search
        project, choice = Project(settings.root), model_choice(settings.llm)
        windows = build_windows(llm, self.learned, log)
        model = build_model(self, windows, alerts, spending)
        prices = configuration.prices_of(llm)
        models = ModelDeps(model, windows=windows, estimator=Estimator(self.learned), prices=prices, **choice)
        ports = ToolPorts(
            history=self.archive.search,
            artifacts=services.artifacts,
            skills=services.skills,
            clock=services.clock,
            memory=services.notes,
            project=project,
            isolation=Isolation(
                root,
                required=shell.isolation == "required",
                network=shell.network,
                limits=shell.limits,
                code=project.code,
                guard=services.guard,
            ),
            chats_of=access.chats_of,
            catalog=self.mcp,
            permalink=access.permalink,
            **door.ports,
            guard=services.guard,
            search=None
            if engine is None
            else Search(engine, choice["fast_model"], lambda request: reply_of(model.stream(request))),
        )
        registry = Registry(builtin_tools(ports), self.mcp)
        instructions = InstructionFiles(root, log, services.guard, everywhere=operator_files(os.environ))
        sources = settings.prompt.sources(root)
        prompts = Prompts(settings.name, services.skills, instructions, services.redact, **sources)
        return AgentDeps(
            **vars(services),
            models=models,
            archive=self.archive,
            registry=registry,
            dispatcher=build_dispatcher(services, registry, door),
            task_events=door.display.tasks if door.display else lambda _: None,
            approvals=door.approvals,
            alerts=alerts,
            prompts=prompts,
        )

    # -- health ----------------------------------------------------------------------------------------------

    def parts(self) -> dict[str, PartHealth]:
        """Return the health of each part of the gateway, keyed by the part's name (`/readyz`)."""
        services, memory, model, reserve = self.services, self.memory, self.model, self.reserve
        now, storage, limit = services.clock.now(), self.event_log.trouble, memory.limit / 2**20
        used = "not known" if memory.used is None else f"{memory.used / 2**20:.0f} of {limit:.0f} MB"

        def ago(then: float | None) -> float | None:
            return None if then is None else max(0.0, round(now - then, 1))

        found = {
            "journal": PartHealth(ok=not storage, detail=storage),
            "disk": PartHealth(ok=not reserve.trouble, detail=reserve.trouble or str(reserve.space or "")),
            "model": PartHealth(
                ok=model.trouble is None,
                detail=model.trouble.cause if model.trouble else "" if model.asked else "not asked yet",
                heard=ago(model.asked),
                needed=model.last,
            ),
            "memory": PartHealth(ok=not memory.full, detail=used),
        }
        if problem := services.lists.problem:
            # The last valid access list stays in use, so the gateway remains ready.
            found["access"] = PartHealth(ok=False, detail=problem, needed=False)
        if role := services.leadership.role():
            found["cluster"] = PartHealth(ok=True, detail=role)
        for name, server in self.mcp.servers.items():
            trouble = server.lasting_trouble(0.0)
            found[f"mcp {name}"] = PartHealth(ok=not trouble, detail=trouble, needed=False)
        for name, channel in self.channels.items():
            health, silence = channel.health(), self.watch.silent(name)
            detail = health.detail
            if silence is not None:
                detail = f"silent for {silence:.0f} s; {detail}".rstrip("; ")
            ok = health.connected and silence is None
            found[name] = PartHealth(ok=ok, detail=detail, heard=ago(health.last_heard))
        return found

    def active(self) -> list[ActiveChat]:
        """Return the chats in which a turn runs or messages wait for a turn."""
        found = []
        for chat in self.chats:
            turn, key, waiting = chat.turn, str(chat.key), len(chat.waiting)
            if turn is not None:
                state = "suspended" if turn.phase is Phase.SUSPENDED else "running"
                found.append(ActiveChat(key, state, waiting, turn.id, turn.first.ts / 1000))
            elif waiting:
                found.append(ActiveChat(key, "queued", waiting))
        return found

    def figures(self) -> Figures:
        """Return the numbers that `/metrics` reads when somebody asks for the page."""
        space = self.reserve.space
        return {
            "shipmate_turns_running": self.runner.running,
            "shipmate_queue_messages": sum(len(chat.waiting) for chat in self.chats),
            "shipmate_conversations": len(list(self.chats)),
            "shipmate_memory_bytes": self.memory.used,
            "shipmate_memory_limit_bytes": self.memory.limit,
            "shipmate_disk_free_bytes": None if space is None else space.free,
            "shipmate_disk_bytes": None if space is None else space.total,
            "shipmate_part_ok": {name: part.ok for name, part in self.parts().items()},
            "shipmate_log_dropped_lines_total": self.services.log.lost,
        }

    def _dashboard(self, counted: Metrics) -> Dashboard:
        settings, clock = self.settings, self.services.clock
        console = Console(
            parts=self.parts,
            figures=self.figures,
            active=self.active,
            settings=lambda: config.shown_leaves(self.turns.agent.settings),
            channels=lambda: sorted(self.channels),
            titles=lambda: {key: one["name"] for key, one in self.chats.facts[TITLE].items()},
            recalls=self.door.ports.get("recall"),
            waiting=self.intake.console_board,
            decide=self.intake.decide,
            archive=self.archive,
            usage=UsageSums(settings.home, settings.engine.database_url),
            logs=settings.home / "logs",
            disk=self.services.disk,
            clock=clock,
        )
        counted.figures, server = self.figures, self.connections.server()
        return Dashboard(settings.dashboard, self.parts, counted, console, clock=clock, server=server)


def build_services(
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    names: Iterable[str],
    connections: Connections,
) -> Services:
    """Build the services and the channels with these `names`."""
    home, root, clock, disk = settings.home, settings.root, environment.clock, environment.disk
    redact, manifests = Redactor(settings.secrets), discovery.manifests()
    lists = AccessList(home / ACCESS_FILE, disk, clock)
    starters = {UserRef(name, one) for name in settings.enabled for one in manifests[name].operators}
    operators = Operators(settings.operators | starters, lists)

    async def appoint(person: UserRef) -> None:
        await asyncio.to_thread(lists.appoint, person)
        log.write("approval", "somebody is an operator from now on", operator=str(person))

    around = ChannelDeps(
        clock,
        log,
        environment.rng,
        home,
        root,
        disk,
        operators,
        settings.name,
        http_server.user_of,
        appoint,
        connections.server,
        environment.pace,
    )
    own = [one for one in settings.prompt.sources(root).values() if isinstance(one, Path)]
    skills = tuple(root / one for one in settings.skills.paths)
    guard = FileGuard(
        root,
        home / "origins.json",
        disk,
        log,
        operators=operators,
        more=(*operator_files(os.environ), *own),
        skills=skills,
    )
    return Services(
        **vars(environment),
        settings=settings,
        log=log,
        boot=environment.ids.ulid(),
        redact=redact,
        manifests=manifests,
        channels={
            name: environment.wrap_channel(manifests[name].build(settings.channels[name], around))
            for name in names
        },
        lists=lists,
        operators=operators,
        artifacts=ArtifactStore(home / "artifacts", disk=disk, ids=environment.ids, clock=clock, log=log),
        notes=NoteStore(home / "memory", disk=disk, redact=redact),
        guard=guard,
        skills=SkillFolder(root, settings.skills.paths, log, guard),
    )


def build_log(services: Services, reserve: DiskReserve, alert: Alert) -> EventLog:
    """Build the log of all chats."""
    home, clock, log = services.settings.home, services.clock, services.log
    if (url := services.settings.engine.database_url) is None:
        return SqliteLog(home / FILE, clock=clock, log=log, reserve=reserve, alert=alert, mend=True)
    from bot.core.postgres_log import PostgresLog  # needs the optional PostgreSQL library

    cursors, epoch = home / "exports.json", services.leadership.epoch
    return PostgresLog(url, cursors, epoch=epoch, disk=services.disk, clock=clock, log=log, alert=alert)


def build_windows(llm: config.Llm, learned: LearnedFile, log: Log) -> ContextWindows:
    return ContextWindows(
        learned, log=log, model=llm.model, configured=llm.context_window, tokens=llm.max_tokens
    )


def build_models(services: Services) -> tuple[RetryingModel, list[Fallback]]:
    """Build the clients of the model and of its fallbacks."""
    llm = services.settings.llm
    build = functools.partial(
        language_model.build_model,
        provider=llm.provider,
        clock=services.clock,
        log=services.log,
        ids=services.ids,
        rng=services.rng,
        log_messages=llm.log_messages,
        log_payload=llm.log_payload,
        retry_seconds=llm.retry_seconds,
        prices=configuration.prices_of(llm),
        pace=services.pace,
        artifacts=services.artifacts,
    )
    first = build(api_key=llm.api_key, base_url=llm.base_url, last=not llm.fallback)
    others: list[Fallback] = []
    for one in llm.fallback:
        key, address, last = one.api_key or llm.api_key, one.address(llm.base_url), one is llm.fallback[-1]
        others.append((build(api_key=key, base_url=address, last=last), one.model))
    return first, others


def build_model(
    gateway: Gateway, windows: ContextWindows, alerts: OperatorAlerts, spending: Spending
) -> Model:
    """Return the model with wrappers that record requests, ask fallbacks and enforce budgets."""
    settings, services, door = gateway.settings, gateway.services, gateway.door
    first: Model = door.model(gateway.model)
    if settings.llm.provider_fallbacks:
        first = ProviderFallbacks(first)
    model: Model = SystemRoleModel(first, windows)
    if gateway.fallbacks:
        others = [(door.model(one), name) for one, name in gateway.fallbacks]
        model = FallbackModel(model, others, clock=services.clock, log=services.log, operators=alerts)
    if limits := settings.budgets.limits:
        model = BudgetedModel(
            model, spending, limits, approvals=door.approvals, operators=alerts, clock=services.clock
        )
    return model


def model_choice(llm: config.Llm) -> dict[str, Any]:
    """Return the fields of `ModelDeps` that ship.json sets."""
    return {
        "default_model": "demo" if llm.provider == "demo" else llm.model,
        "fast_model": "" if llm.provider == "demo" else llm.fast_model,
        "effort": llm.effort,
        "thinking": llm.thinking,
        "purposes": llm.purposes,
    }


def build_dispatcher(services: Services, registry: Registry, door: Door) -> Dispatcher:
    """Build the dispatcher of tool calls. It applies the permissions, and the wrappers that features add to each call."""
    settings = services.settings
    paths, zone = Paths(str(settings.root), read_link), settings.schedule.timezone
    policy = Policy(
        registry,
        Rules(paths, protected_code(settings.root), **settings.permissions.model_dump()),
        paths,
        operators=services.operators,
        zone=UTC if zone == "UTC" else ZoneInfo(zone),
        clock=services.clock,
        log=services.log,
        redact=services.redact,
        approvals=door.approvals,
        narrowing=SkillAllowlist(services.skills, paths),
        guard=services.guard,
    )
    return Dispatcher(
        registry,
        clock=services.clock,
        log=services.log,
        log_content=settings.llm.log_messages,
        redact=services.redact,
        artifacts=services.artifacts,
        around=door.display.calls(policy, registry) if door.display else policy,
        pictures=settings.files.pictures,
    )
