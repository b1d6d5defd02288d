"""The life of the process: everything is put together and connected at the start, and drained and closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from bot import config, errors
from bot.channel_watchdog import ChannelWatchdog
from bot.composition import (
    AgentServices,
    build_agent,
    build_channels,
    build_dashboard,
    build_log,
    build_mcp,
    build_services,
    build_transcriber,
    view_limits,
    with_settings,
)
from bot.contracts.approvals import Unattended
from bot.contracts.channel import Channel, Intake
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import feature
from bot.core.access import Access, InboundCleaner, Memberships
from bot.core.archive.export import ArchiveExport
from bot.core.archive.store import ChatStore
from bot.core.attachments import FileReader
from bot.core.attachments import Limits as FileLimits
from bot.core.background import BackgroundTasks
from bot.core.chat import MODES, Chat, Phase
from bot.core.chats import Chats
from bot.core.compaction import CompactResult
from bot.core.event_log import EventLog
from bot.core.events import Codec
from bot.core.exports import Exporter
from bot.core.feature import Door, Runtime
from bot.core.intake import Intake as CoreIntake
from bot.core.live_messages import LiveMessages
from bot.core.locales import FactLocales, Locales
from bot.core.long_blocks import LongBlocks
from bot.core.maintenance import Maintenance
from bot.core.models import ModelDeps
from bot.core.operators import OperatorAlerts, OperatorChats
from bot.core.outbox import Outbox
from bot.core.outgoing_files import OutgoingFiles, OutgoingLimits
from bot.core.rate_limit import RateLimiter
from bot.core.reply import ReplyPorts
from bot.core.restored import close_open
from bot.core.runner import Runner, Slots
from bot.core.saying import Saying
from bot.core.turns import Turns
from bot.core.usage import UsageRecorder
from bot.dashboard.console import ActiveChat
from bot.dashboard.metrics import LogMetrics, MetricsPage
from bot.dashboard.server import Dashboard
from bot.disk_reserve import ReservedDisk
from bot.importing.ship import end_cleanly, import_ship, remove_backup
from bot.llm.budgets import Spending
from bot.periodic_jobs import PeriodicJob, PeriodicJobs
from bot.readiness import GatewayFigures, PartLines, Readiness, Say
from bot.reload import ConfigurationReload
from bot.rss_monitor import RssMonitor
from bot.services import Environment, Services
from bot.telemetry import JsonlLog
from bot.tools.mcp.servers import McpServers

PAUSE_SECONDS = 1.0
DRAIN_SECONDS = 4.5
"""Limit of the time for running turns to end at a stop, before they are cut short."""
CLOSE_SECONDS = 1.5
LOG_SECONDS = 1.0
"""Limit of the time to write what the log has pending: with the others nine seconds."""
CHECK_SECONDS = 5.0
"""Limit of the time that a start waits for the provider's verdict on the key."""
LONGEST_RETRY = 30.0
PART_SECONDS = 2.0
"""Interval between two looks at which parts work."""
ASK_LIMITS_SECONDS = 600.0
"""Interval between two questions to a provider that did not answer the first one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """The part of what runs that its process shows. `busy`: turns run."""

    channels: Mapping[str, Channel]
    busy: Callable[[], bool]
    reload: ConfigurationReload
    dashboard: Dashboard | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Gateway:
    """All parts of the process, put together and not yet started."""

    services: Services
    channels: Mapping[str, Channel]
    event_log: EventLog
    chats: Chats
    archive: ChatStore
    exports: Sequence[Exporter]
    intake: CoreIntake
    runner: Runner
    turns: Turns
    files: OutgoingFiles
    door: Door
    locales: Locales
    tasks: BackgroundTasks
    mcp: McpServers
    memory: RssMonitor
    watch: ChannelWatchdog
    readiness: Readiness
    reload: ConfigurationReload
    maintenance: Maintenance
    import_ship: Callable[[], object | None]
    """Takes over a `.ship` of 0.1; None where there is none. Blocking."""
    close_open: Callable[[], Awaitable[None]]
    """Closes what a restored log has open."""
    counted: LogMetrics | None
    dashboard: Dashboard | None


def assemble(
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    names: Iterable[str],
    *,
    counted: LogMetrics | None,
    spending: Spending,
) -> Gateway:
    """Put a gateway together for these channels, with a dashboard where there are figures that it has `counted`. `spending` has the
    log's lines. Channels' libraries must have been imported.
    """
    clock, ids, boot, codec = environment.clock, environment.ids, environment.ids.ulid(), Codec()
    services = build_services(settings, environment, log)
    channels = build_channels(services, names)
    memberships = Memberships(channels, log)
    access = build_access(services, channels, memberships)
    event_log = environment.event_log(
        build_log(services, codec, lambda subject, words: alerts.tell(subject, words))  # noqa: PLW0108 - made below
    )
    make = functools.partial(
        Chat,
        mode=MODES[settings.queue.mode],
        debounce=settings.queue.debounce_ms / 1000,
        max_messages=view_limits(settings).max_messages,
    )
    chats = Chats(event_log, codec, make, clock=clock, ids=ids)
    saying = Saying(channels, services.redact)
    log.observers.append(UsageRecorder(chats).observe)
    tasks, slots, door = BackgroundTasks(log), Slots(settings.queue.max_concurrent_turns), Door()
    locales = Locales(FactLocales(chats), tasks.start, log, zone=settings.schedule.timezone)
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
        alert=alerts.tell,
        leadership=environment.leadership,
        boot=boot,
        clock=clock,
        log=log,
    )
    live = LiveMessages(outbox, channels, chats, event_log, limits, boot=boot, clock=clock, ids=ids, log=log)
    turns: Turns

    def models(chat: ChatKey) -> ModelDeps:
        return turns.models(chat)

    async def compact(inbound: Inbound) -> CompactResult:
        return await turns.compact(inbound)

    door.open(
        feature.found(),
        Runtime(
            configuration=settings,
            name=settings.name,
            models=models,
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
            servers=lambda: mcp.sources(),  # noqa: PLW0108 - made below
            settle=door.settle,
            clock=clock,
            disk=environment.disk,
            ids=ids,
            log=log,
        ),
    )
    exporter: Exporter

    async def flush() -> None:
        await exporter.flush()

    archive = ChatStore(
        settings.home / "chats",
        disk=ReservedDisk(environment.disk, services.reserve),
        log=log,
        archive_after_lines=settings.history.archive_after_lines,
        clock=clock,
        flush=flush,
    )
    exporter = Exporter(ArchiveExport(archive, event_log), event_log, clock=clock, log=log)
    shared = AgentServices(
        archive,
        door.approvals or Unattended(),
        alerts,
        memberships,
        door.around_calls,
        door.model,
        door.display,
        **door.ports,
    )
    mcp = build_mcp(services, door.asks)
    memory = RssMonitor(settings.memory.limit_mb, [], reports=alerts, clock=clock, log=log)
    long_blocks = LongBlocks(channels, on=settings.delivery.long_as_files)

    def reply(chat: Chat, channel: str) -> ReplyPorts:
        show = _nothing if door.display is None else functools.partial(door.display.preview, chat)
        return ReplyPorts(channels[channel].split, show, services.redact, long_blocks, files)

    cleaner = InboundCleaner(services.redact, access)
    turns = Turns(
        build_agent(services, shared, mcp, spending),
        chats,
        event_log,
        reply,
        build_reader(services, channels, memory),
        door=door,
        cleaner=cleaner,
        boot=boot,
    )
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
        clock=clock,
        log=log,
    )
    intake = CoreIntake(
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
    watch = ChannelWatchdog(channels, services.manifests, alerts, clock=clock, log=log)
    readiness = Readiness(
        services,
        channels,
        memory=memory,
        mcp=mcp,
        storage=lambda: event_log.trouble,
        silent=watch.silent,
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
        settings,
        turns.use,
        lambda changed: with_settings(turns.agent, services, shared, changed),
        log,
    )
    dashboard = (
        build_dashboard(services, archive, figures, MetricsPage(counted, figures.read), reload)
        if counted is not None and settings.dashboard.enabled
        else None
    )
    return Gateway(
        services,
        channels,
        event_log,
        chats,
        archive,
        [exporter, *door.exports],
        intake,
        runner,
        turns,
        files,
        door,
        locales,
        tasks,
        mcp,
        memory,
        watch,
        readiness,
        reload,
        Maintenance(
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
        ),
        functools.partial(
            import_ship,
            settings.home,
            codec,
            make,
            needs_turn=door.needs_turn,
            is_operator=lambda inbound: access.is_operator(inbound.person),
            prefix=lambda inbound: services.manifests[inbound.channel].command_prefix,
        ),
        functools.partial(close_open, chats, event_log, saying, locales, alerts, clock=clock, ids=ids),
        counted,
        dashboard,
    )


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, say: Say, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run a gateway for the block: everything connected at its start, everything drained and closed at its end. Raises
    `errors.ShipmateError` where it cannot start. Where `stop` is set before everything is connected, the block runs all the same and
    should end at once.
    """
    services, channels, door, tasks = gateway.services, gateway.channels, gateway.door, gateway.tasks
    environment, log, event_log = services.environment, services.log, gateway.event_log
    name, lines = gateway.turns.agent.models.name, PartLines(gateway.readiness, say)

    async def opened(channel: str) -> None:
        gateway.watch.opened(channel)
        await gateway.runner.open(channel)

    periodic = _periodic(gateway, say, lines)
    around = contextlib.AsyncExitStack()
    ends = functools.partial(_ends, around, log)
    try:
        gateway.memory.start()
        around.callback(gateway.memory.stop)
        if gateway.dashboard is not None:
            await gateway.dashboard.start()
            ends("stop the dashboard", gateway.dashboard.stop)
        ends("close the log", event_log.close, seconds=LOG_SECONDS)
        ends("end what features do", door.close)
        for export in gateway.exports:
            ends("close an export", export.close)
        ends("keep what was learnt of models", services.learned.save)
        for model in (services.model, *(one for one, _ in services.fallbacks)):
            ends("close a model", model.close)
        gateway.mcp.start()
        ends("end the MCP servers", gateway.mcp.close)
        await _read(gateway)
        for export in gateway.exports:
            export.start()
        around.push_async_callback(_stopped, gateway)
        around.push_async_callback(gateway.turns.summaries.stop)
        checking = asyncio.create_task(check_model(services, name, say, lines.tell))
        around.callback(checking.cancel)
        for serve in (*door.serves, gateway.watch.run):
            tasks.serve(serve())
        if gateway.counted is not None:
            tasks.serve(gateway.counted.watch_loop(environment.clock))
        around.push_async_callback(tasks.drain, 1.0)
        await gateway.runner.start()
        await gateway.files.start()
        periodic.start()
        around.callback(periodic.stop)
        await connect_all(
            channels, gateway.intake, opened, say=say, stop=stop, clock=environment.clock, log=log
        )
        for checked in (await asyncio.wait([checking], timeout=CHECK_SECONDS))[0]:
            checked.result()
        ends("note a clean end", functools.partial(asyncio.to_thread, end_cleanly, services.settings.home))
        yield
    finally:
        closing = asyncio.create_task(around.aclose())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # Cut short, it would leave connections and files open.
            await asyncio.wait([closing])
            raise


def _periodic(gateway: Gateway, say: Say, lines: PartLines) -> PeriodicJobs:
    """All that is done at intervals."""
    services = gateway.services

    async def ask_limits() -> None:
        await ask_limits_of(services, gateway.turns.agent.models.name, say)

    own = (
        PeriodicJob("say which parts do not work", PART_SECONDS, lines.look),
        PeriodicJob("ask what the model takes in", ASK_LIMITS_SECONDS, ask_limits),
    )
    return PeriodicJobs([*gateway.door.periodic, *gateway.maintenance.jobs(), *own], services.log)


async def _read(gateway: Gateway) -> None:
    """Read what is on disk, after a `.ship` of 0.1 was taken over. Raises `errors.StorageError`."""
    services = gateway.services
    await asyncio.to_thread(services.reserve.look)
    await gateway.memory.look()
    with errors.as_storage_error("the .ship of 0.1 cannot be imported", OSError, sqlite3.Error):
        if await asyncio.to_thread(gateway.import_ship) is not None:
            services.log.write("storage", "the .ship of 0.1 is imported, and kept in before-0.2")
        elif await asyncio.to_thread(remove_backup, services.settings.home):
            services.log.write("storage", "before-0.2, the .ship of 0.1, is removed")
    # Request ids tell the order of messages, even where the clock was set back while nobody ran.
    services.environment.ids.after(await gateway.event_log.newest())
    # What a command of before has left instructs nobody, whatever happens to it from now on.
    await asyncio.to_thread(services.vetting.find_instruction_files)
    await gateway.chats.start()
    await gateway.locales.load()
    await gateway.close_open()


def _ends(
    around: contextlib.AsyncExitStack,
    log: Log,
    what: str,
    close: Callable[[], Awaitable[object]],
    *,
    seconds: float = CLOSE_SECONDS,
) -> None:
    """Close something at the end, within a time."""

    async def end() -> None:
        await _bounded(log, what, close(), seconds)

    around.push_async_callback(end)


def build_access(services: Services, channels: Mapping[str, Channel], memberships: Memberships) -> Access:
    """Access: who may talk to the bot. Raises `errors.ConfigError` where a channel would let in a stranger."""
    allow = {name: frozenset(getattr(one, "allow", ())) for name, one in services.settings.channels.items()}
    access = Access(services.manifests, allow, services.operators, services.lists, memberships)
    for name in channels:
        access.prove(name)
    return access


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


def active(chat: Chat) -> ActiveChat | None:
    """A chat as the console shows it; None where nothing runs or waits."""
    turn, waiting = chat.turn, len(chat.waiting)
    if turn is None:
        return ActiveChat(str(chat.key), "waits", waiting, "", None) if waiting else None
    state = "waits for an approval" if turn.phase is Phase.SUSPENDED else "runs"
    return ActiveChat(str(chat.key), state, waiting, turn.id, turn.first.ts / 1000)


def _nothing(*_: object) -> None:
    """Shows nothing."""


async def _stopped(gateway: Gateway) -> None:
    """Take in nothing more, let turns end, and close the channels. What is not done in time is in the log and goes on at the next start."""
    log, channels = gateway.services.log, gateway.channels.items()
    await _together(log, {f"pause {name}": channel.pause() for name, channel in channels}, PAUSE_SECONDS)
    if not await gateway.runner.close(DRAIN_SECONDS):
        log.write("stop", "turns were cut short; they go on at the next start", level="warn")
    closings = {f"stop {name}": channel.stop() for name, channel in channels}
    if (display := gateway.door.display) is not None:
        await _bounded(log, "end what is shown", display.close(), PAUSE_SECONDS)
    await _together(log, closings, CLOSE_SECONDS)


async def _together(log: Log, steps: Mapping[str, Awaitable[object]], seconds: float) -> None:
    await asyncio.gather(*(_bounded(log, what, work, seconds) for what, work in steps.items()))


async def _bounded(log: Log, what: str, work: Awaitable[object], seconds: float) -> None:
    """One step of the end: it may fail or take too long, the others follow all the same."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        # Not waited for: what does not end in time may not end when it is cancelled either.
        task.cancel()
        log.write("stop", f"{what}: not done after {seconds:g} s", level="warn")
    elif not task.cancelled() and (error := task.exception()) is not None:
        log.write("stop", f"{what}: {type(error).__name__}: {error}", level="warn")


async def check_model(services: Services, name: str, say: Say, tell: Callable[[str, str], None]) -> None:
    """Say which model answers. A key that is refused ends the start; a provider that cannot be reached does not: `tell` tells what is
    wrong with a part.
    """
    try:
        await services.model.check()
    except errors.ModelRefused as error:
        raise errors.ConfigError(
            f"llm.apiKey: the provider refuses it ({error}); expected a valid key; get a new one, or remove it "
            "to use the demo model"
        ) from error
    except errors.ModelError as error:
        words = f"{error} I go on and ask it again with each message."
        if services.model.trouble is None:
            say(f"model: {words}")  # it passes by itself, and nothing will be heard of that
        else:
            tell("model", words)
    else:
        llm = services.settings.llm
        if not await ask_limits_of(services, name, say):
            return
        if llm.provider == "demo":
            say(
                f"the built-in demo model is answering ({llm.provider_reason}); set ANTHROPIC_API_KEY for Claude"
            )
        else:
            say(f"{llm.model} is answering")


async def ask_limits_of(services: Services, model: str, say: Say) -> bool:
    """Ask the provider how much the model takes in and gives out, unless it has said so. False where it does not have the model.
    Raises nothing.
    """
    there = True
    try:
        warning = await services.windows.ask(services.model, model)
    except errors.ModelUnknown as error:
        there = False
        warning = f"llm.model: found {model}; the provider does not have it ({error}); name one that it has"
    except errors.ModelError as error:
        services.log.write("model", "the provider does not say what the model takes in", cause=str(error))
        return True
    if warning is not None:
        say(f"warning: {warning}")
        services.log.write("model", warning, level="warn")
    llm = services.settings.llm
    for name in {llm.fast_model, *(one.model for one in llm.purposes.values() if one.model)}:
        with contextlib.suppress(errors.ModelError):
            await services.windows.ask(services.model, name)
    return there


async def connect_all(
    channels: Mapping[str, Channel],
    intake: Intake,
    opened: Callable[[str], Awaitable[None]],
    *,
    say: Say,
    stop: asyncio.Event,
    clock: Clock,
    log: Log,
) -> None:
    """Start every channel, side by side; those that cannot be reached are waited for until `stop`. `opened` is told of each that is
    connected.
    """

    async def connect(name: str, channel: Channel) -> None:
        await _connect(name, channel, intake, say=say, clock=clock, log=log)
        await opened(name)

    stopped = asyncio.create_task(stop.wait())
    tasks = [asyncio.create_task(connect(name, channel)) for name, channel in channels.items()]
    try:
        pending: set[asyncio.Task[Any]] = set(tasks)
        while pending and not stopped.done():
            done, _ = await asyncio.wait({*pending, stopped}, return_when=asyncio.FIRST_COMPLETED)
            pending -= done
            for task in done - {stopped}:
                task.result()
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)


async def _connect(name: str, channel: Channel, intake: Intake, *, say: Say, clock: Clock, log: Log) -> None:
    wait, told = 1.0, ""
    while True:
        try:
            await channel.start(intake)
        except errors.ChannelRefused as error:
            raise errors.ConfigError(
                f"channels.{name}: {error}; expected tokens that it accepts; check them in .env or the environment"
            ) from error
        except errors.ChannelUnreachable as error:
            if str(error) != told:
                told = str(error)
                say(f"{name}: cannot be reached ({told}); I keep trying")
                log.write("channel", f"{name} cannot be reached", level="warn", cause=told)
            await clock.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY)
        else:
            break
    if told:
        say(f"{name}: connected")
    log.write("channel", f"{name} connected")
