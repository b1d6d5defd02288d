"""The life of a gateway: connect at the start, serve, drain and close at the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot import config, errors
from bot.access_list import AccessList, Operators
from bot.agent.pool import AgentPool
from bot.connections import Connections
from bot.contracts.channel import Channel, Intake, Manifest
from bot.contracts.environment import Clock, Disk, Ids, Log
from bot.contracts.journal import Journal
from bot.contracts.leadership import Leadership, SoleLeader
from bot.core.artifacts import ArtifactStore
from bot.core.event_log import EventLog
from bot.core.fallback import Fallback
from bot.core.notes.files import NoteStore
from bot.core.skills import SkillFolder
from bot.dashboard.console import ActiveChat, PartHealth
from bot.dashboard.metrics import Figures
from bot.dashboard.server import Dashboard
from bot.descriptors import RESERVE, limit
from bot.disk_reserve import DiskReserve
from bot.features.jobs.due import JOB_SECONDS
from bot.gateway.builder import GatewayParts
from bot.gateway.delivery import Delivery
from bot.gateway.lost_messages import LostMessages
from bot.gateway.operators import OperatorAlerts
from bot.gateway.turn_queue import TurnQueue
from bot.gateway.watchdog import ChannelWatchdog
from bot.history.archive.store import FILES as ARCHIVE_FILES
from bot.history.line_stream import LineStream
from bot.history.search.searched_archive import SearchedArchive
from bot.history.transcript.requests import RequestLog
from bot.history.transcript.store import FILES as TRANSCRIPT_FILES
from bot.history.transcript.store import Transcript
from bot.journal import file
from bot.llm.learned import LearnedFile
from bot.llm.windows import ContextWindows
from bot.llm.wrapper import WatchedModel
from bot.maintenance import MaintenanceJobs
from bot.periodic_jobs import PeriodicJob, PeriodicJobs
from bot.reload import ConfigurationReload
from bot.rss_monitor import RssMonitor
from bot.sizes import in_words
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry import JsonlLog, Redactor
from bot.tools.mcp.servers import McpServers
from bot.vetting import Vetting

PAUSE_SECONDS = 1.0
DRAIN_SECONDS = 4.5
"""Seconds running turns get at a stop, before they are cut short."""
FLUSH_SECONDS = 0.5
CLOSE_SECONDS = 1.5
JOURNAL_SECONDS = 0.5
"""With the second that cutting turns short may take: nine seconds in all."""
CHECK_SECONDS = 5.0
"""Most seconds a start waits for the provider's verdict on the key."""
LONGEST_RETRY = 30.0
KEEP_LEARNED_SECONDS = 60.0
KEEP_DESCRIPTORS_SECONDS = 30.0
KEEP_INDEX_SECONDS = 10.0
"""Also the time after a start before the search index catches up: until then everything goes to the start."""
PART_SECONDS = 2.0
"""Between two looks at which parts work."""
ASK_LIMITS_SECONDS = 600.0
"""Between two questions to a provider that did not answer the first one."""

_WAITS = {"approval": "an approval", "question": "an answer"}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """The outside of the process: clock, disk, ids, randomness, and wrappers of journal and channels."""

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=SystemDisk)
    ids: Ids = field(default_factory=UlidSource)
    rng: random.Random = field(default_factory=random.SystemRandom)
    journal: Callable[[Journal], Journal] = lambda made: made
    """Wraps the journal that everything inside uses."""
    channel: Callable[[Channel], Channel] = lambda made: made
    """The same for each channel."""
    event_log: Callable[[EventLog], EventLog] = lambda made: made
    """The same for the log of the core that has one."""
    pace: float = 1.0
    """As `ChannelDeps.pace`."""
    leadership: Leadership = field(default_factory=SoleLeader)


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that the agent and the gateway share."""

    settings: config.Settings
    environment: Environment
    log: JsonlLog
    redact: Redactor
    manifests: Mapping[str, Manifest]
    journal: Journal
    stream: LineStream
    archive: SearchedArchive
    transcript: Transcript
    requests: RequestLog
    artifacts: ArtifactStore
    memory_files: NoteStore
    model: WatchedModel
    learned: LearnedFile
    windows: ContextWindows
    lists: AccessList
    operators: Operators
    reserve: DiskReserve
    connections: Connections
    vetting: Vetting
    skills: SkillFolder
    fallbacks: Sequence[Fallback] = ()


@dataclass(frozen=True, slots=True)
class Readiness:
    """The health of each part, for `/readyz`. `storage`: why messages cannot be written down, "" while they can; `silent`: seconds for
    which a channel has been silent, where that is too long.
    """

    services: Services
    channels: Mapping[str, Channel]
    memory: RssMonitor
    mcp: McpServers
    storage: Callable[[], str]
    silent: Callable[[str], float | None]

    def parts(self) -> dict[str, PartHealth]:
        """The health of each part, for `/readyz`."""
        services = self.services
        now = services.environment.clock.now()

        def ago(then: float | None) -> float | None:
            return None if then is None else max(0.0, round(now - then, 1))

        storage, reserve, model, memory = self.storage(), services.reserve, services.model, self.memory
        used = (
            "not known"
            if memory.used is None
            else f"{memory.used / 2**20:.0f} of {memory.limit / 2**20:.0f} MB"
        )
        found = {
            "journal": PartHealth(ok=not storage, detail=storage),
            "disk": PartHealth(ok=not reserve.trouble, detail=reserve.trouble or str(reserve.space or "")),
            "model": PartHealth(
                ok=model.trouble is None,
                detail=model.trouble.cause if model.trouble else "" if model.asked else "not asked yet",
                heard=ago(model.asked),
                needed=model.alone,
            ),
            "memory": PartHealth(ok=not memory.full, detail=used),
        }
        if problem := services.lists.problem:
            # What was decided last holds meanwhile.
            found["access"] = PartHealth(ok=False, detail=problem, needed=False)
        if role := services.environment.leadership.role():
            found["cluster"] = PartHealth(ok=True, detail=role)
        for name, trouble in self.mcp.troubles().items():
            found[f"mcp {name}"] = PartHealth(ok=not trouble, detail=trouble, needed=False)
        for name, channel in self.channels.items():
            health, silence = channel.health(), self.silent(name)
            detail = (
                health.detail
                if silence is None
                else f"silent for {silence:.0f} s; {health.detail}".rstrip("; ")
            )
            ok = health.connected and silence is None
            found[name] = PartHealth(ok=ok, detail=detail, heard=ago(health.last_heard))
        return found


class PartLines:
    """Says on the output of a gateway that a part no longer works, and that it works again: one line for each change. Channels have
    lines of their own.
    """

    def __init__(self, readiness: Readiness, say: Say) -> None:
        self._readiness = readiness
        self._say = say
        self._told = set[str]()

    def tell(self, name: str, words: str) -> None:
        """Say once what is wrong with a part."""
        if name not in self._told:
            self._told.add(name)
            self._say(f"{name}: {words}")

    async def look(self) -> None:
        parts, channels = self._readiness.parts(), self._readiness.channels
        broken = {name: part for name, part in parts.items() if not part.ok and name not in channels}
        for name, part in broken.items():
            self.tell(name, part.detail)
        for name in sorted(self._told - set(broken)):
            self._told.remove(name)
            self._say(f"{name}: works again")


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """Reads what is true of the process now, for `/metrics` and the console: turns that run, messages that wait, conversations in memory."""

    running: Callable[[], int]
    waiting: Callable[[], int]
    conversations: Callable[[], int]
    active: Callable[[], list[ActiveChat]]
    memory: RssMonitor
    readiness: Readiness

    def read(self) -> Figures:
        services = self.readiness.services
        space = services.reserve.space
        return {
            "shipmate_turns_running": self.running(),
            "shipmate_queue_messages": self.waiting(),
            "shipmate_conversations": self.conversations(),
            "shipmate_memory_bytes": self.memory.used,
            "shipmate_memory_limit_bytes": self.memory.limit,
            "shipmate_disk_free_bytes": None if space is None else space.free,
            "shipmate_disk_bytes": None if space is None else space.total,
            "shipmate_part_ok": {name: part.ok for name, part in self.readiness.parts().items()},
            "shipmate_log_dropped_lines_total": services.log.lost,
        }


def active_chats(turn_queue: TurnQueue) -> list[ActiveChat]:
    """The chats in which something runs or waits, those that have run for longest first."""
    found = []
    for chat_key, chat in turn_queue.chats():
        state, request_id, since = "waits", "", None
        if (turn := chat.running) is not None:
            request_id, since = turn.first.request_id, turn.first.ts / 1000
            state = f"waits for {_WAITS[turn.waits_for]}" if turn.suspended and turn.waits_for else "runs"
        found.append(ActiveChat(str(chat_key), state, chat.waiting, request_id, since))
    return sorted(found, key=lambda one: (one.since is None, one.since or 0.0, one.chat_key))


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything that runs, put together and not yet started."""

    services: Services
    channels: dict[str, Channel]
    agent: AgentPool
    delivery: Delivery
    parts: GatewayParts
    memory: RssMonitor
    reports: OperatorAlerts
    watch: ChannelWatchdog
    chores: MaintenanceJobs
    model_name: str
    mcp: McpServers
    reload: ConfigurationReload
    losses: LostMessages
    readiness: Readiness
    dashboard: Dashboard | None


@dataclass(frozen=True, slots=True)
class Serving:
    """The part of what runs that its process shows. `busy`: turns run."""

    channels: Mapping[str, Channel]
    busy: Callable[[], bool]
    reload: ConfigurationReload
    dashboard: Dashboard | None = None


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, say: Say, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run a gateway for the block: everything connected at its start, everything drained and closed at its end.

    Raises `errors.ShipmateError` where it cannot start. Where `stop` is set before everything is connected,
    the block runs all the same and should end at once.
    """
    services = gateway.services

    async def ask_limits() -> None:
        await ask_limits_of(services, gateway.model_name, say)

    lines = PartLines(gateway.readiness, say)
    chores = [
        PeriodicJob("say which parts do not work", PART_SECONDS, lines.look),
        PeriodicJob("keep what was learnt of models", KEEP_LEARNED_SECONDS, services.learned.save),
        PeriodicJob("stop what runs for blocked people", PART_SECONDS, gateway.parts.stops.stop_blocked),
        PeriodicJob("keep descriptors back", KEEP_DESCRIPTORS_SECONDS, lambda: _keep_descriptors(gateway)),
        PeriodicJob("keep the search index", KEEP_INDEX_SECONDS, services.archive.tend),
        PeriodicJob("ask what the model takes in", ASK_LIMITS_SECONDS, ask_limits),
    ]
    housekeeping = PeriodicJobs([*gateway.chores.all(), *chores], services.log)
    # By itself: nothing of housekeeping may hold it up.
    planned = PeriodicJobs(
        [PeriodicJob("look at what is due", JOB_SECONDS, gateway.parts.due_jobs.look)], services.log
    )
    checking: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None
    gateway.memory.start()
    try:
        await asyncio.to_thread(services.reserve.look)
        await _open_journal(gateway, say)
        # Before anything of them is read.
        await services.stream.replay({ARCHIVE_FILES: services.archive, TRANSCRIPT_FILES: services.transcript})
        await gateway.losses.begin()
        # requestIds tell the order of messages, even where the clock was set back while nobody ran.
        services.environment.ids.after(await services.journal.newest())
        if gateway.dashboard is not None:
            await gateway.dashboard.start()
        await gateway.delivery.open()
        gateway.reports.start()
        gateway.mcp.start()
        gateway.parts.start()
        # What runs is looked after, and what is due is done, also while one of the channels cannot be reached yet.
        planned.start()
        housekeeping.start()
        checking = asyncio.create_task(check_model(services, gateway.model_name, say, lines.tell))
        watching = asyncio.create_task(gateway.watch.run(), name="watch")
        await connect_all(
            gateway.channels,
            gateway.parts.intake,
            lambda name: _opened(gateway, name, say),
            say=say,
            stop=stop,
            clock=services.environment.clock,
            log=services.log,
        )
        await asyncio.wait([checking], timeout=CHECK_SECONDS)
        if checking.done():
            checking.result()
        yield
    finally:
        planned.stop()
        housekeeping.stop()
        gateway.memory.stop()
        beside = [task for task in (checking, watching) if task is not None]
        for task in beside:
            task.cancel()
        closing = asyncio.create_task(_close(gateway, beside))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # Cut short, it would leave connections and files open.
            await asyncio.wait([closing])
            raise


async def _open_journal(gateway: Gateway, say: Say) -> None:
    """Open it, and say of the copy that was kept where it had to be brought to a newer version."""
    path = gateway.services.settings.home / "journal.db"
    before = set(await asyncio.to_thread(file.copies, path))
    await gateway.services.journal.open()
    for copy in set(await asyncio.to_thread(file.copies, path)) - before:
        say(copy_in_words(copy))


def copy_in_words(copy: Path) -> str:
    size = in_words(copy.stat().st_size)
    return f"the journal was brought to a newer version; {copy.name}, {size}, is that of before: once all is well, rm '{copy}'"


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


async def _keep_descriptors(gateway: Gateway) -> None:
    """Fill up what journal, archive and log can have where the process has no descriptor left. Raises nothing."""
    if given := await asyncio.to_thread(RESERVE.fill):
        gateway.services.log.write(
            "connections",
            "there were no descriptors left; some that were kept back have been used",
            level="warn",
            used=given,
            most=limit(),
        )


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


async def _opened(gateway: Gateway, name: str, say: Say) -> None:
    """A channel is connected: its unfinished messages go on."""
    gateway.watch.opened(name)
    if again := await gateway.parts.recovery.open(name):
        say(f"{name}: {again} unfinished {'message goes' if again == 1 else 'messages go'} on")
    gateway.parts.tasks.start(gateway.losses.tell(name))
    gateway.parts.tasks.start(gateway.parts.approvals.recover())


async def _close(gateway: Gateway, beside: list[asyncio.Task[None]]) -> None:
    """Take in nothing more, let turns end, then close every room, whatever becomes of the others. What is not done
    in time is in the journal and goes on at the next start.
    """
    services = gateway.services
    channels = gateway.channels.items()
    await _together(
        services.log, {f"pause {name}": channel.pause() for name, channel in channels}, PAUSE_SECONDS
    )
    beside_turns = _bounded(services.log, "put off what waits", gateway.delivery.close(), DRAIN_SECONDS)
    ended, _ = await asyncio.gather(gateway.parts.turns.drain(DRAIN_SECONDS), beside_turns)
    if not ended:
        services.log.write("stop", "turns were cut short; they go on at the next start", level="warn")
    owed: dict[str, Awaitable[Any]] = {
        "write what the transcripts owe": gateway.agent.close(),
        "write what the journal has pending": services.journal.flush(),
    }
    await _together(services.log, owed, FLUSH_SECONDS)
    closings: dict[str, Awaitable[Any]] = {f"stop {name}": channel.stop() for name, channel in channels}
    if gateway.dashboard is not None:
        closings["stop the dashboard"] = gateway.dashboard.stop()
    closings |= {
        "end what runs beside": asyncio.gather(*beside, return_exceptions=True),
        "give up reports": gateway.reports.close(),
        "close the model": services.model.close(),
        **{f"close the fallback {at}": one.close() for at, (one, _) in enumerate(services.fallbacks)},
        "end the MCP servers": gateway.mcp.close(),
        "keep what was learnt of models": services.learned.save(),
        "close the archive": services.archive.close(),
        "close the transcript": services.transcript.close(),
        "close the records of requests": services.requests.close(),
    }
    await _together(services.log, closings, CLOSE_SECONDS)
    await _bounded(services.log, "bring the lines to the disk", services.stream.close(), FLUSH_SECONDS)
    await _bounded(services.log, "close the journal", services.journal.close(), JOURNAL_SECONDS)


async def _together(log: JsonlLog, steps: Mapping[str, Awaitable[Any]], seconds: float) -> None:
    await asyncio.gather(*(_bounded(log, what, work, seconds) for what, work in steps.items()))


async def _bounded(log: JsonlLog, what: str, work: Awaitable[Any], seconds: float) -> None:
    """One step of the end: it may fail or take too long, the others follow all the same."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        # Not waited for: what does not end in time may not end when it is cancelled either.
        task.cancel()
        log.write("stop", f"{what}: not done after {seconds:g} s", level="warn")
    elif not task.cancelled() and (error := task.exception()) is not None:
        log.write("stop", f"{what}: {type(error).__name__}: {error}", level="warn")
