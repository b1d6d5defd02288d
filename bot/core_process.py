"""Wires the core that has one log (`SHIPMATE_CORE=log`), which is built beside the gateway and is going to take its place."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from bot import config, errors, text
from bot.agent import reattach
from bot.agent.deps import AgentDeps
from bot.agent.pool import AgentPool
from bot.agent.user_message import instructions, said_by_servers, user_message
from bot.composition import (
    build_agent,
    build_channels,
    build_dashboard,
    build_mcp,
    build_services,
    build_transcriber,
    gateway_deps,
    view_limits,
    with_settings,
)
from bot.contracts.agent import CompactResult, NoArrivals, TurnRequest
from bot.contracts.approvals import Unattended
from bot.contracts.base import Message
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, SeenFile
from bot.contracts.provenance import unpacked
from bot.core import events, feature, prompt, quotes
from bot.core.access import InboundCleaner
from bot.core.alerts import OperatorAlerts
from bot.core.archive.export import ArchiveExport
from bot.core.archive.store import ChatStore
from bot.core.assembly import Frozen
from bot.core.attachments import FileReader
from bot.core.attachments import Limits as FileLimits
from bot.core.chat import MODES, Chat, Phase
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.events import Codec, EventData, Remembered
from bot.core.exports import Exporter
from bot.core.feature import Door, Runtime
from bot.core.fit import Fit, Frame
from bot.core.found_tools import PutBack
from bot.core.frames import Frames
from bot.core.injection import OlderMessages
from bot.core.intake import Intake
from bot.core.live_messages import LiveMessages
from bot.core.locales import FactLocales, Locales
from bot.core.long_blocks import LongBlocks
from bot.core.loop import Loop, LoopPorts
from bot.core.models import ModelDeps
from bot.core.notes.memories import Memories, SavedMemory
from bot.core.operator_chats import OperatorChats
from bot.core.outbox import Outbox
from bot.core.outgoing_files import OutgoingFiles, OutgoingLimits
from bot.core.rate_limit import RateLimiter
from bot.core.reply import ChatReply, ReplyPorts
from bot.core.runner import Runner, Slots
from bot.core.saying import Saying
from bot.core.sqlite_log import SqliteLog
from bot.core.summaries import Summaries
from bot.core.tasks.turn_tasks import TurnTasks
from bot.core.tasks.worker import TaskPorts
from bot.core.tool_calls import ToolCalls
from bot.dashboard.console import ActiveChat
from bot.dashboard.metrics import LogMetrics, MetricsPage
from bot.disk_reserve import ReservedDisk
from bot.gateway.approvals import ApprovalService
from bot.gateway.background import BackgroundTasks
from bot.gateway.builder import AgentServices, build_agent_services
from bot.gateway.operators import OperatorAlerts as OldAlerts
from bot.lifecycle import (
    CHECK_SECONDS,
    KEEP_LEARNED_SECONDS,
    Environment,
    GatewayFigures,
    Readiness,
    Say,
    Services,
    Serving,
    check_model,
    connect_all,
)
from bot.llm.budgets import Spending
from bot.periodic_jobs import PeriodicJob, PeriodicJobs
from bot.reload import ConfigurationReload
from bot.rss_monitor import RssMonitor
from bot.telemetry import JsonlLog, context

DRAIN_SECONDS = 8.0
LOOK_SECONDS = 5.0
"""Interval between two looks at the memory that the process takes."""


@contextlib.asynccontextmanager
async def serving(  # noqa: PLR0915 - the wiring of one process, in order
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    names: Iterable[str],
    *,
    say: Say,
    stop: asyncio.Event,
    counted: LogMetrics | None = None,
    spending: Spending,
) -> AsyncIterator[Serving]:
    """Serve these channels for the block, and the dashboard where there are figures that it has `counted`. `spending` has the log's lines."""
    services = build_services(settings, environment, log)
    channels = build_channels(services, names)
    shared = build_agent_services(gateway_deps(services, channels))
    boot, codec = environment.ids.ulid(), Codec()
    event_log = environment.event_log(
        SqliteLog(
            settings.home / "shipmate.db",
            codec,
            clock=environment.clock,
            log=log,
            reserve=services.reserve,
            alert=lambda subject, words: alerts.tell(subject, words),  # noqa: PLW0108 - it is made below
        )
    )
    make = functools.partial(
        Chat,
        mode=MODES[settings.queue.mode],
        debounce=settings.queue.debounce_ms / 1000,
        max_messages=view_limits(settings).max_messages,
    )
    chats = Chats(event_log, codec, make, clock=environment.clock, ids=environment.ids)
    limits = RateLimiter(services.manifests, environment.clock, limits=settings.delivery.limits)
    files = OutgoingFiles(
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
        alert=lambda subject, words: alerts.tell(subject, words),  # noqa: PLW0108 - it is made below
        boot=boot,
        clock=environment.clock,
        log=log,
    )
    live = LiveMessages(
        outbox,
        channels,
        chats,
        event_log,
        limits,
        boot=boot,
        clock=environment.clock,
        ids=environment.ids,
        log=log,
    )
    slots, tasks, door = Slots(settings.queue.max_concurrent_turns), BackgroundTasks(log), Door()
    runtime = build_runtime(
        services,
        shared,
        channels,
        chats,
        event_log,
        slots=slots,
        tasks=tasks,
        door=door,
        live=live,
        files=files,
        limits=limits,
        boot=boot,
        # Made below, of what features add.
        models=lambda chat: turns.models(chat),  # noqa: PLW0108
        servers=lambda: mcp.sources(),  # noqa: PLW0108
        compact=lambda inbound: turns.compact(inbound),  # noqa: PLW0108
    )
    saying, locales, alerts = runtime.saying, runtime.locales, runtime.alerts
    door.open(feature.found(), runtime)
    # The agent asks it as any `contracts.approvals.Approvals`.
    approvals = cast("ApprovalService", door.approvals or Unattended())
    shared = dataclasses.replace(
        shared, approvals=approvals, locales=locales, alerts=cast("OldAlerts", alerts), **door.ports
    )
    mcp = build_mcp(services, door.asks)
    pool = build_agent(services, shared, mcp, spending, door.display.work if door.display else None)
    long_blocks = LongBlocks(channels, on=settings.delivery.long_as_files)
    memory = RssMonitor(settings.memory.limit_mb, [], reports=shared.alerts, clock=environment.clock, log=log)

    def reply(chat: Chat, channel: str) -> ReplyPorts:
        show = _nothing if door.display is None else functools.partial(door.display.preview, chat)
        return ReplyPorts(channels[channel].split, show, services.redact, long_blocks, files)

    reader = build_reader(services, channels, memory)
    cleaner = InboundCleaner(services.redact, shared.access)
    turns = Turns(pool, chats, event_log, reply, reader, door=door, cleaner=cleaner, boot=boot)
    runner = Runner(
        chats,
        event_log,
        outbox=outbox,
        door=door,
        saying=saying,
        locales=locales,
        live=live,
        loop=turns.loop,
        turn_ended=turns.summaries.turn_ended,
        slots=slots,
        alert=alerts.tell,
        boot=boot,
        clock=environment.clock,
        log=log,
    )
    archive = ChatStore(
        settings.home / "chats",
        disk=ReservedDisk(environment.disk, services.reserve),
        log=log,
        archive_after_lines=settings.history.archive_after_lines,
        clock=environment.clock,
        flush=lambda: exporter.flush(),  # noqa: PLW0108 - it is made below
    )
    exporter = Exporter(ArchiveExport(archive, event_log), event_log, clock=environment.clock, log=log)
    intake = Intake(
        chats,
        event_log,
        shared.access,
        cleaner,
        door,
        alerts=alerts,
        archive=archive,
        locales=locales,
        name=settings.name,
        models=turns.models,
        clock=environment.clock,
        ids=environment.ids,
        log=log,
    )

    def trouble(part: str, words: str) -> None:
        say(f"{part}: {words}")

    readiness = Readiness(
        services, channels, memory=memory, mcp=mcp, storage=lambda: event_log.trouble, silent=lambda _: None
    )
    figures = GatewayFigures(
        running=lambda: runner.running,
        waiting=lambda: sum(len(chat.waiting) for chat in chats),
        conversations=lambda: len(chats),
        active=lambda: [one for chat in chats if (one := active(chat)) is not None],
        memory=memory,
        readiness=readiness,
    )
    reload = ConfigurationReload(
        settings, pool, lambda changed: with_settings(pool.deps, services, shared, changed), log
    )
    dashboard = (
        build_dashboard(services, figures, MetricsPage(counted, figures.read), reload)
        if counted is not None and settings.dashboard.enabled
        else None
    )
    async with contextlib.AsyncExitStack() as around:
        memory.start()
        around.callback(memory.stop)
        if dashboard is not None:
            await dashboard.start()
            around.push_async_callback(dashboard.stop)
        around.push_async_callback(event_log.close)
        around.push_async_callback(exporter.close)
        around.push_async_callback(services.model.close)
        around.push_async_callback(services.learned.save)
        mcp.start()
        around.push_async_callback(mcp.close)
        # Request ids tell the order of messages, even where the clock was set back while nobody ran.
        environment.ids.after(await event_log.newest())
        # What a command of before has left instructs nobody, whatever happens to it from now on.
        await asyncio.to_thread(services.vetting.find_instruction_files)
        await chats.start()
        await locales.load()
        exporter.start()
        around.push_async_callback(_stopped, channels.values(), runner, door)
        around.push_async_callback(turns.summaries.stop)
        checking = asyncio.create_task(check_model(services, pool.deps.models.name, say, trouble))
        around.callback(checking.cancel)
        for serve in door.serves:
            tasks.serve(serve())
        tasks.serve(_watch(memory, environment.clock))
        around.push_async_callback(tasks.drain, 1.0)
        await runner.start()
        await files.start()
        learns = PeriodicJob("keep what was learnt of models", KEEP_LEARNED_SECONDS, services.learned.save)
        periodic = PeriodicJobs([*door.periodic, learns], log)
        periodic.start()
        around.callback(periodic.stop)
        await connect_all(channels, intake, runner.open, say=say, stop=stop, clock=environment.clock, log=log)
        await asyncio.wait([checking], timeout=CHECK_SECONDS)
        if checking.done():
            checking.result()
        yield Serving(channels, lambda: runner.running > 0, reload, dashboard)


def build_runtime(
    services: Services,
    shared: AgentServices,
    channels: Mapping[str, Channel],
    chats: Chats,
    event_log: EventLog,
    *,
    slots: Slots,
    tasks: BackgroundTasks,
    door: Door,
    live: LiveMessages,
    files: OutgoingFiles,
    limits: RateLimiter,
    boot: str,
    models: Callable[[ChatKey], ModelDeps],
    servers: Callable[[], Mapping[str, str]],
    compact: Callable[[Inbound], Awaitable[CompactResult]],
) -> Runtime:
    """Build the services of the core for features."""
    settings, environment, log = services.settings, services.environment, services.log
    saying = Saying(channels, services.redact)
    locales = Locales(FactLocales(chats), tasks.start, log, zone=settings.schedule.timezone)
    operators = OperatorChats(services.operators, channels, services.manifests)
    alerts = OperatorAlerts(
        chats,
        operators,
        memberships=shared.memberships,
        saying=saying,
        locales=locales,
        clock=environment.clock,
        ids=environment.ids,
        log=log,
    )
    return Runtime(
        configuration=settings,
        name=settings.name,
        models=models,
        servers=servers,
        chats=chats,
        event_log=event_log,
        channels=channels,
        manifests=services.manifests,
        access=shared.access,
        lists=services.lists,
        notes=services.memory_files,
        artifacts=services.artifacts,
        memberships=shared.memberships,
        operators=services.operators,
        operator_chats=operators,
        alerts=alerts,
        locales=locales,
        saying=saying,
        live=live,
        limits=limits,
        settings=settings.channels,
        slots=settings.queue.max_concurrent_turns,
        redact=services.redact,
        settled=services.redact.settled,
        boot=boot,
        compact=compact,
        files=files,
        suspended=slots.suspended,
        settle=door.settle,
        clock=environment.clock,
        ids=environment.ids,
        log=log,
    )


def build_reader(services: Services, channels: Mapping[str, Channel], memory: RssMonitor) -> FileReader:
    """The reader of the files that people send."""
    files = services.settings.files
    return FileReader(
        channels,
        services.manifests,
        artifacts=services.artifacts,
        redact=services.redact,
        rss_monitor=memory,
        clock=services.environment.clock,
        log=services.log,
        limits=FileLimits(
            files.max_bytes,
            files.max_packed_bytes,
            files.per_message,
            pictures=files.pictures,
            pages=files.pdf_pages,
        ),
        transcriber=build_transcriber(files.transcription),
    )


async def _watch(memory: RssMonitor, clock: Clock) -> None:
    """Look at the memory every few seconds."""
    while True:
        await memory.look()
        await clock.sleep(LOOK_SECONDS)


def active(chat: Chat) -> ActiveChat | None:
    """A chat as the console shows it; None where nothing runs or waits."""
    turn, waiting = chat.turn, len(chat.waiting)
    if turn is None:
        return ActiveChat(str(chat.key), "waits", waiting, "", None) if waiting else None
    state = "waits for an approval" if turn.phase is Phase.SUSPENDED else "runs"
    return ActiveChat(str(chat.key), state, waiting, turn.id, turn.first.ts / 1000)


class Turns:
    """Makes the loop of each turn, with the prompt and the tools of the agent."""

    def __init__(
        self,
        pool: AgentPool,
        chats: Chats,
        event_log: EventLog,
        reply: Callable[[Chat, str], ReplyPorts],
        files: FileReader,
        *,
        door: Door,
        cleaner: InboundCleaner,
        boot: str,
    ) -> None:
        self._door = door
        self._cleaner = cleaner
        self._pool = pool
        self._chats = chats
        self._event_log = event_log
        self._reply = reply
        self._files = files
        self._boot = boot

        async def freeze(key: ChatKey, channel: str, models: ModelDeps) -> Frozen:
            return await dataclasses.replace(self._agent, models=models).freeze(key, channel)

        async def put_back(
            chat: Chat, gone: Sequence[Message], kept: Sequence[Message], most: float
        ) -> PutBack:
            agent, person = self._agent, context.current().person
            dropped = reattach.DroppedMessages(gone, kept)
            return await reattach.put_back(dropped, agent, min(reattach.room(agent), most), chat.key, person)

        agent = self._agent
        self.summaries = Summaries(
            lambda chat, data: chats.append(Fact(chat.key, data)),
            MemoryFiles(agent.history.memories, agent.clock) if agent.history.memories is not None else None,
            put_back,
            agent.operators,
            agent.clock,
            agent.ids,
            agent.log,
        )
        self._frames = Frames(freeze, clock=self._agent.clock, log=self._agent.log)

    @property
    def _agent(self) -> AgentDeps:
        """The agent of turns that begin now."""
        return self._pool.deps

    def loop(self, chat: Chat, turn: str) -> Loop:
        """The loop of a turn that has begun."""
        agent = self._agent
        if chat.turn is None:
            raise errors.ShipmateError(f"turn {turn} is over")
        first = chat.turn.first

        news = dict[str, str]()

        display = self._door.display
        if display is not None:
            display.begin(chat.turn)

        async def tell(inbound: Inbound) -> events.Told | None:
            files = await self._seen(chat, turn, inbound)
            if files is None or not (inbound.says or any(one.read for one in files)):
                return None
            seen = [*chat.context.view(), *chat.context.current()]
            opens = not chat.context.current()
            wrong = chat.context.wrong if opens else ()
            edits = chat.untold_edits if opens else []
            quoted = [quotes.edited(one) for one in edits]
            quoted += await self._door.before_turn(chat, inbound) if opens else []
            admitted = self._cleaner.admitted(inbound, quoted)
            request = TurnRequest(inbound.request_id, chat.key, inbound, admitted, arrivals=Seen(files))
            said = await user_message(
                request, agent, seen, wrong, news if opens else {}, begins=opens and not seen
            )
            return events.Told(said.message, (inbound.request_id,), tuple(one.request_id for one in edits))

        async def found(
            seen: Sequence[Message], results: Message, touched: Sequence[Path]
        ) -> Sequence[Message]:
            told = await instructions(list(touched), agent, seen) if touched else None
            return [one for one in (said_by_servers(results, agent, seen), told) if one is not None]

        def append(data: EventData) -> None:
            self._chats.append(Fact(chat.key, data, turn))

        quiet = all(one.overheard for one in chat.turn.members)
        fit = self._fit(chat, turn, "overheard" if quiet else "turn")
        models = fit.models
        reply = ChatReply(chat, turn, first, self._chats, self._reply(chat, first.channel))
        wrapped = self._door.wrapped(chat, reply, agent.registry)
        tasks = TaskPorts(
            self._chats,
            self._event_log,
            fit,
            agent.limits,
            agent.limits.tasks,
            agent.registry,
            agent.dispatcher,
            agent.approvals,
            agent.history.artifacts,
            agent.task_events,
            found,
            agent.root,
            self._boot,
            agent.clock,
            agent.ids,
            agent.log,
            agent.redact,
            agent.settled,
        )
        calls = ToolCalls(
            chat,
            turn,
            self._chats,
            self._event_log,
            agent.dispatcher,
            reply=wrapped,
            queued=reply.queued,
            boot=self._boot,
            undeclared=lambda: agent.registry.behind(fit.tools),
            injection=OlderMessages(chat, turn, agent.limits.max_injected, append, agent.ids),
            tasks=TurnTasks(chat, tasks),
        )
        ports = LoopPorts(
            models.model,
            functools.partial(self._frame, chat, first, models, news),
            tell,
            lambda results, touched: found([*chat.context.view(), *chat.context.current()], results, touched),
            self.summaries.before_turn,
            self.summaries.before_asking,
            calls,
            reply,
            wrapped,
            fit,
            agent.ids.ulid,
            agent.redact,
            agent.settled,
            self._boot,
            agent.log,
        )
        return Loop(chat, turn, self._chats, ports)

    async def _seen(self, chat: Chat, turn: str, inbound: Inbound) -> Sequence[SeenFile] | None:
        """The outcome of the files of a message, which are read once; None where the message is gone."""
        running, name = chat.turn, inbound.request_id
        if running is None or not inbound.attachments:
            return ()
        if name not in running.seen:
            try:
                files = await self._files.read(inbound)
            finally:
                if name in running.withdrawn:
                    await self._files.forget(inbound)  # it came in after the message was gone
            self._chats.append(Fact(chat.key, events.FilesRead(name, files), turn))
        return None if name in running.withdrawn else running.seen.get(name)

    async def compact(self, inbound: Inbound) -> CompactResult:
        """As `Runtime.compact`."""
        chat = await self._chats.get(inbound.chat_key)
        fit = self._fit(chat, inbound.request_id, "turn")
        fit.take(await self._frame(chat, inbound, fit.models, {}))
        return await self.summaries.compact(fit, inbound.args)

    def models(self, chat: ChatKey, purpose: str = "turn") -> ModelDeps:
        """As `Runtime.models`."""
        return self._agent.models.in_chat(chat, self._chats.facts, purpose)

    def _fit(self, chat: Chat, turn: str, purpose: str) -> Fit:
        agent = self._agent
        return Fit(
            chat,
            self.models(chat.key, purpose),
            agent.limits,
            ages=lambda name: (tool := agent.registry.get(name)) is not None and tool.ages,
            append=lambda data: self._chats.append(Fact(chat.key, data, turn)),
            clock=agent.clock,
            log=agent.log,
            redact=agent.redact,
        )

    async def _frame(self, chat: Chat, first: Inbound, models: ModelDeps, news: dict[str, str]) -> Frame:
        """Return the frame of a chat's requests; what is new in its surroundings goes into `news`."""
        agent = self._agent
        frozen, changed = await self._frames.of(chat, first, models)
        news |= changed
        rules = agent.rules.get(first.channel, "")
        facts = prompt.ChatFacts(agent.root, chat.key, first.channel, first.chat_id, first.chat_type, rules)
        hour = models.prices.hour_pays(models.name)
        system = prompt.system_blocks(frozen.static, frozen.chat(facts), hour=hour)
        return Frame(frozen, system, agent.registry.forms)


class Seen(NoArrivals):
    """The files of the one message that is told."""

    def __init__(self, found: Sequence[SeenFile]) -> None:
        self._found = found

    async def files(self, inbound: Inbound) -> Sequence[SeenFile]:
        """As `contracts.agent.Arrivals`."""
        del inbound
        return self._found


class MemoryFiles:
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


def _nothing(*_: object) -> None:
    """Shows nothing."""


async def _stopped(channels: Iterable[Channel], runner: Runner, door: Door) -> None:
    for channel in channels:
        await channel.pause()
    await runner.close(DRAIN_SECONDS)
    if door.display is not None:
        await door.display.close()
    for channel in channels:
        await channel.stop()
