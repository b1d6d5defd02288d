"""The only place where everything is put together."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot import config, discovery, errors, instance
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList
from bot.agent.kit import Kit
from bot.agent.runtime import AgentPool
from bot.context.skills import SkillFolder
from bot.contracts import Channel, Clock, Disk, Ids, Model, Surroundings
from bot.gateway.access import Access
from bot.gateway.commands import Commands
from bot.gateway.delivery import Delivery
from bot.gateway.intake import GatewayIntake
from bot.gateway.turns import Turns
from bot.history.archive import ChatStore
from bot.history.transcript import Transcript
from bot.journal.sqlite import SqliteJournal
from bot.llm.factory import build_model
from bot.schedule import Chore, Housekeeping
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry import JsonlLog, LogRedactor, Redactor, bridged
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry, ToolPorts, builtin_tools

DRAIN_SECONDS = 7.0
"""What running turns get at a stop; with what follows, the process ends within ten seconds."""
IDLE_SECONDS = 1_800.0
KEEP_LOG_DAYS = 90
KEEP_JOURNAL_SECONDS = 7 * 86_400.0
LONGEST_RETRY = 30.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outside:
    """The outside of the process, as everything inside sees it."""

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=SystemDisk)
    ids: Ids = field(default_factory=UlidSource)
    rng: random.Random = field(default_factory=random.SystemRandom)


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything that runs, put together and not yet started."""

    settings: config.Settings
    outside: Outside
    log: JsonlLog
    model: Model
    channels: dict[str, Channel]
    journal: SqliteJournal
    archive: ChatStore
    transcript: Transcript
    agent: AgentPool
    turns: Turns
    intake: GatewayIntake

    def chores(self) -> list[Chore]:
        """What is tidied while the gateway runs."""

        async def evict() -> None:
            self.agent.evict(IDLE_SECONDS)

        async def sweep_journal() -> None:
            await self.journal.sweep(self.outside.clock.now() - KEEP_JOURNAL_SECONDS)

        async def sweep_logs() -> None:
            await asyncio.to_thread(self.log.sweep, KEEP_LOG_DAYS)

        return [
            Chore("evict idle chats", 300, evict),
            Chore("sweep the journal", 3_600, sweep_journal),
            Chore("sweep old logs", 6 * 3_600, sweep_logs),
        ]


def assemble(
    settings: config.Settings, outside: Outside, log: JsonlLog, channel_names: Iterable[str]
) -> Gateway:
    """Put the rooms together. Channels' libraries must have been imported (`preload`)."""
    manifests = discovery.manifests()
    home, clock, ids = settings.home, outside.clock, outside.ids
    redact = Redactor(settings.secrets)
    around = Surroundings(clock, log, outside.rng, home, settings.root, settings.operators)
    channels = {name: manifests[name].build(settings.channels[name], around) for name in channel_names}
    journal = SqliteJournal(home / "journal.db", clock=clock, log=log)
    archive = ChatStore(
        home / "chats",
        disk=outside.disk,
        log=log,
        clock=clock,
        archive_after_lines=settings.history.archive_after_lines,
    )
    transcript = Transcript(home / "transcripts", disk=outside.disk, ids=ids, clock=clock, log=log)
    skills = SkillFolder(settings.root, settings.skills.paths, log)
    model = build_model(
        provider=settings.llm.provider,
        api_key=settings.llm.api_key,
        base_url=settings.llm.base_url,
        clock=clock,
        log=log,
        ids=ids,
        rng=outside.rng,
        log_messages=settings.llm.log_messages,
        log_payload=settings.llm.log_payload,
    )
    registry = Registry(builtin_tools(ToolPorts(archive=archive, skills=skills, clock=clock)))
    agent = AgentPool(
        Kit(
            model=model,
            model_name=settings.llm.model if settings.llm.provider != "demo" else "demo",
            registry=registry,
            dispatcher=Dispatcher(
                registry, clock=clock, log=log, log_content=settings.llm.log_messages, redact=redact
            ),
            transcript=transcript,
            archive=archive,
            skills=skills,
            root=settings.root,
            clock=clock,
            ids=ids,
            log=log,
            max_tokens=settings.llm.max_tokens,
            max_messages=settings.context.max_messages,
            max_injected=settings.context.max_injected_messages,
            context_window=settings.llm.context_window,
            rules={name: manifest.rules for name, manifest in manifests.items()},
            redact=redact,
        )
    )
    delivery = Delivery(
        channels,
        manifests,
        journal=journal,
        archive=archive,
        redact=redact,
        clock=clock,
        ids=ids,
        log=log,
        limits=settings.delivery.limits,
    )
    turns = Turns(
        agent=agent,
        channels=channels,
        manifests=manifests,
        journal=journal,
        delivery=delivery,
        clock=clock,
        log=log,
        max_concurrent=settings.queue.max_concurrent_turns,
        steer=settings.queue.mode == "steer",
    )
    lists = AccessList(home / ACCESS_FILE, outside.disk, clock)
    allow = {name: frozenset(getattr(channel, "allow", ())) for name, channel in settings.channels.items()}
    access = Access(manifests, allow, settings.operators, lists)
    intake = GatewayIntake(
        access=access,
        journal=journal,
        archive=archive,
        delivery=delivery,
        pending=lists,
        redact=redact,
        queue=turns.queue,
        clock=clock,
        ids=ids,
        log=log,
    )
    turns.intake = intake
    turns.commands = Commands(
        name=settings.name,
        agent=agent,
        lanes=turns.lanes,
        access=access,
        manifests=manifests,
        stop=turns.stop,
    )
    return Gateway(
        settings, outside, log, model, channels, journal, archive, transcript, agent, turns, intake
    )


def preload(settings: config.Settings, channel_names: Iterable[str]) -> None:
    """Import the platforms' and the provider's libraries, which takes seconds: never on a running event loop."""
    for name in channel_names:
        module = f"{discovery.PACKAGE}.{name}.adapter"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    if settings.llm.provider != "demo":
        importlib.import_module("bot.llm.client")


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, say: Say, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run a gateway for the block: everything connected at its start, everything drained and closed at its end.

    Raises `errors.ShipmateError` where it cannot start. Where `stop` is set before everything is connected,
    the block runs all the same and should end at once.
    """
    housekeeping = Housekeeping(gateway.chores(), gateway.log)
    try:
        await gateway.journal.open()
        await _check_model(gateway, say)
        await _connect_all(gateway, say, stop)
        housekeeping.start()
        yield
    finally:
        housekeeping.stop()
        await _close(gateway)


async def _check_model(gateway: Gateway, say: Say) -> None:
    """A key that is refused ends the start; a provider that cannot be reached does not."""
    try:
        await gateway.model.check()
    except errors.ModelRefused as error:
        raise errors.ConfigError(
            f"llm.apiKey: the provider refuses it ({error}); expected a valid key; get a new one, or remove it "
            "to use the demo model"
        ) from error
    except errors.ModelError as error:
        say(f"model: cannot be reached ({error}); I go on and ask it again with each message")


async def _connect_all(gateway: Gateway, say: Say, stop: asyncio.Event) -> None:
    """Start every channel, side by side; those that cannot be reached are waited for until `stop`."""
    stopped = asyncio.create_task(stop.wait())
    tasks = [
        asyncio.create_task(_connect(gateway, name, channel, say))
        for name, channel in gateway.channels.items()
    ]
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


async def _connect(gateway: Gateway, name: str, channel: Channel, say: Say) -> None:
    wait, told = 1.0, ""
    while True:
        try:
            await channel.start(gateway.intake)
        except errors.ChannelRefused as error:
            raise errors.ConfigError(
                f"channels.{name}: {error}; expected tokens that it accepts; check them in .env or the environment"
            ) from error
        except errors.ChannelUnreachable as error:
            if str(error) != told:
                told = str(error)
                say(f"{name}: cannot be reached ({told}); I keep trying")
                gateway.log.write("channel", f"{name} cannot be reached", level="warn", cause=told)
            await gateway.outside.clock.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY)
        else:
            if told:
                say(f"{name}: connected")
            gateway.log.write("channel", f"{name} connected")
            if again := await gateway.turns.open(name):
                say(f"{name}: {again} unfinished messages go on")
            return


async def _close(gateway: Gateway) -> None:
    """Take in nothing more, let turns end, then close every room, whatever becomes of the others."""
    channels = gateway.channels.items()
    for name, channel in channels:
        await _bounded(gateway.log, f"pause {name}", channel.pause(), 1.0)
    if not await gateway.turns.lanes.drain(DRAIN_SECONDS):
        gateway.log.write("stop", "turns were cut short; they go on at the next start", level="warn")
    closings = [(f"stop {name}", channel.stop()) for name, channel in channels]
    closings += [
        ("close the model", gateway.model.close()),
        ("close the archive", gateway.archive.close()),
        ("close the transcript", gateway.transcript.close()),
    ]
    await asyncio.gather(*(_bounded(gateway.log, what, closing, 1.5) for what, closing in closings))
    await _bounded(gateway.log, "close the journal", gateway.journal.close(), 1.0)


async def _bounded(log: JsonlLog, what: str, work: Awaitable[None], seconds: float) -> None:
    """One step of the end: it may fail or take too long, the others follow all the same."""
    (result,) = await asyncio.gather(asyncio.wait_for(work, seconds), return_exceptions=True)
    if isinstance(result, BaseException):
        log.write("stop", f"{what}: {type(result).__name__}: {result}", level="warn")


@contextlib.asynccontextmanager
async def _started(
    root: Path, say: Say, stop: asyncio.Event, only: frozenset[str] | None = None
) -> AsyncIterator[Gateway]:
    """Configuration, lock, log and gateway of a folder, serving for the block."""
    settings = config.load(root, discovery.manifests(), os.environ)
    names = [name for name in settings.enabled if only is None or name in only]
    outside = Outside()
    prepare_home(settings.home)
    with instance.held(settings.home):
        redact = LogRedactor(settings.secrets)
        log = JsonlLog(
            settings.home / "logs", clock=outside.clock, disk=outside.disk, ids=outside.ids, redact=redact
        )
        try:
            with bridged(log, messages=settings.llm.log_messages):
                for warning in settings.warnings:
                    say(f"warning: {warning}")
                await asyncio.to_thread(preload, settings, names)
                gateway = assemble(settings, outside, log, names)
                async with serving(gateway, say, stop):
                    yield gateway
        except errors.ShipmateError as error:
            log.write("error", f"{type(error).__name__}: {error}", level="error")
            raise
        finally:
            await asyncio.to_thread(log.close)


def prepare_home(home: Path) -> None:
    """`.ship` as it should be: private, and ignored by git."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n!.gitignore\n!schema/\n!schema/*.json\n", encoding="ascii")


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)


async def run(root: Path) -> int:
    """`shipmate run`: the gateway in the foreground until SIGTERM or SIGINT. Raises `errors.ShipmateError`."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with _started(root, _print, stop) as gateway:
        if not stop.is_set():
            llm = gateway.settings.llm
            if llm.provider == "demo":
                _print(
                    f"the built-in demo model is answering ({llm.provider_reason}); set ANTHROPIC_API_KEY for Claude"
                )
            else:
                _print(f"{llm.model} is answering")
            _print(ready_line(gateway.channels))
            await stop.wait()
            _print("stopping: running turns may take a few seconds to end")
    return 0


def ready_line(channels: Mapping[str, Channel]) -> str:
    """What `shipmate run` prints once everything is connected: names, then addresses."""
    addresses = [address for channel in channels.values() for address in channel.addresses]
    return " ".join(["ready", *sorted(channels), *addresses])


async def chat(root: Path) -> int:
    """`shipmate chat`: talk in the terminal, with the running gateway, or with one started for it."""
    client = importlib.import_module(f"{discovery.PACKAGE}.console.client")
    home = root / config.HOME
    if await asyncio.to_thread(instance.is_held, home):
        return int(await client.converse(home, stdin=sys.stdin, stdout=sys.stdout))
    stop = asyncio.Event()
    async with _started(root, _complain, stop, only=frozenset({"console"})) as gateway:
        if gateway.settings.llm.provider == "demo":
            _complain(f"the built-in demo model is answering ({gateway.settings.llm.provider_reason})")
        return int(await client.converse(home, stdin=sys.stdin, stdout=sys.stdout))


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command's own output


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the command's own output
