"""The only place where everything is put together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bot import config, discovery, errors, instance, ports, stops
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList
from bot.agent.kit import Kit
from bot.agent.pool import AgentPool
from bot.chores import Chores
from bot.context.skills import SkillFolder
from bot.contracts import Channel, Journal, Manifest, Surroundings
from bot.dashboard.server import Dashboard
from bot.gateway.access import Access
from bot.gateway.commands import Commands
from bot.gateway.delivery import Delivery
from bot.gateway.door import Door
from bot.gateway.intake import GatewayIntake
from bot.gateway.reports import Reports
from bot.gateway.turns import Turns
from bot.gateway.watch import Watch
from bot.history.archive import ChatStore
from bot.history.transcript import Transcript
from bot.journal.sqlite import SqliteJournal
from bot.llm.factory import build_model
from bot.llm.health import WatchedModel
from bot.memory import MemoryMonitor
from bot.serving import Gateway, Outside, Say, serving
from bot.telemetry import JsonlLog, LogRedactor, Redactor, bridged
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry, ToolPorts, builtin_tools

POOL_SHARE = 4
"""The part of the memory limit that idle conversations may take: a fourth."""
Signals = Callable[[asyncio.Event], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class _Rooms:
    """What the agent and the gateway share."""

    settings: config.Settings
    outside: Outside
    log: JsonlLog
    redact: Redactor
    manifests: Mapping[str, Manifest]
    journal: Journal
    archive: ChatStore
    transcript: Transcript
    model: WatchedModel


def assemble(
    settings: config.Settings,
    outside: Outside,
    log: JsonlLog,
    channel_names: Iterable[str],
    *,
    dashboard: bool = True,
) -> Gateway:
    """Put the rooms together. Channels' libraries must have been imported (`preload`)."""
    home, clock, disk = settings.home, outside.clock, outside.disk
    limit = settings.history.archive_after_lines
    rooms = _Rooms(
        settings,
        outside,
        log,
        Redactor(settings.secrets),
        discovery.manifests(),
        outside.journal(SqliteJournal(home / "journal.db", clock=clock, log=log)),
        ChatStore(home / "chats", disk=disk, log=log, clock=clock, archive_after_lines=limit),
        Transcript(home / "transcripts", disk=disk, ids=outside.ids, clock=clock, log=log),
        _model(settings, outside, log),
    )
    channels = _channels(rooms, channel_names)
    agent = _agent(rooms)
    delivery = _delivery(rooms, channels)
    reports = Reports(
        settings.operators, channels, rooms.manifests, journal=rooms.journal, delivery=delivery, clock=clock,
        ids=outside.ids, log=log,
    )  # fmt: skip
    memory = MemoryMonitor(
        settings.memory.limit_mb, [agent.shrink], reports=reports,
        clock=clock, log=log,
    )  # fmt: skip
    turns = _turns(rooms, channels, agent, delivery)
    turns.refuses_files = lambda: memory.full
    chores = Chores(
        holder=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}", agent=agent, journal=rooms.journal,
        model=rooms.model, memory=memory, reports=reports, logs=log, clock=clock, log=log,
    )  # fmt: skip
    gateway = Gateway(
        settings,
        outside,
        log,
        rooms.model,
        channels,
        rooms.journal,
        rooms.archive,
        rooms.transcript,
        agent,
        turns,
        Door(turns.intake, reports),
        memory,
        reports,
        Watch(channels, rooms.manifests, reports, clock=clock, log=log),
        chores,
    )
    shown = settings.dashboard
    if dashboard and shown.enabled:
        page = Dashboard(shown.host, shown.port, shown.token, gateway.parts, ports.pid_on)
        gateway = replace(gateway, dashboard=page)
    return gateway


def _channels(rooms: _Rooms, names: Iterable[str]) -> dict[str, Channel]:
    settings, outside = rooms.settings, rooms.outside
    around = Surroundings(
        outside.clock,
        rooms.log,
        outside.rng,
        settings.home,
        settings.root,
        settings.operators,
        settings.name,
        settings.llm.model if settings.llm.provider != "demo" else "the demo model",
        ports.pid_on,
    )
    return {
        name: outside.channel(rooms.manifests[name].build(settings.channels[name], around)) for name in names
    }


def _model(settings: config.Settings, outside: Outside, log: JsonlLog) -> WatchedModel:
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
    )
    return WatchedModel(model, clock=outside.clock)


def _agent(rooms: _Rooms) -> AgentPool:
    settings, outside, log = rooms.settings, rooms.outside, rooms.log
    llm, clock = settings.llm, outside.clock
    skills = SkillFolder(settings.root, settings.skills.paths, log)
    registry = Registry(builtin_tools(ToolPorts(archive=rooms.archive, skills=skills, clock=clock)))
    return AgentPool(
        Kit(
            model=rooms.model,
            model_name=llm.model if llm.provider != "demo" else "demo",
            registry=registry,
            dispatcher=Dispatcher(
                registry, clock=clock, log=log, log_content=llm.log_messages, redact=rooms.redact
            ),
            transcript=rooms.transcript,
            archive=rooms.archive,
            steps=rooms.journal,
            skills=skills,
            root=settings.root,
            clock=clock,
            ids=outside.ids,
            log=log,
            max_tokens=llm.max_tokens,
            max_messages=settings.context.max_messages,
            max_injected=settings.context.max_injected_messages,
            context_window=llm.context_window,
            rules={name: manifest.rules for name, manifest in rooms.manifests.items()},
            redact=rooms.redact,
        ),
        budget=settings.memory.limit_mb * 2**20 // POOL_SHARE,
    )


def _delivery(rooms: _Rooms, channels: dict[str, Channel]) -> Delivery:
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
    )


def _turns(rooms: _Rooms, channels: dict[str, Channel], agent: AgentPool, delivery: Delivery) -> Turns:
    """The gateway: access, intake, lanes and commands."""
    settings, clock, ids, log = rooms.settings, rooms.outside.clock, rooms.outside.ids, rooms.log
    lists = AccessList(settings.home / ACCESS_FILE, rooms.outside.disk, clock)
    allow = {name: frozenset(getattr(one, "allow", ())) for name, one in settings.channels.items()}
    access = Access(rooms.manifests, allow, settings.operators, lists)
    turns = Turns(
        agent=agent,
        channels=channels,
        manifests=rooms.manifests,
        journal=rooms.journal,
        delivery=delivery,
        access=access,
        clock=clock,
        log=log,
        max_concurrent=settings.queue.max_concurrent_turns,
        mode=settings.queue.mode,
        debounce=settings.queue.debounce_ms / 1000,
    )
    turns.intake = GatewayIntake(
        access=access,
        journal=rooms.journal,
        archive=rooms.archive,
        delivery=delivery,
        pending=lists,
        redact=rooms.redact,
        queue=turns.queue,
        beside=turns.lanes.beside,
        clock=clock,
        ids=ids,
        log=log,
    )
    turns.commands = Commands(
        name=settings.name,
        agent=agent,
        lanes=turns.lanes,
        access=access,
        manifests=rooms.manifests,
        stop=turns.stop,
    )
    return turns


def preload(settings: config.Settings, channel_names: Iterable[str]) -> None:
    """Import the platforms' and the provider's libraries, which takes seconds: never on a running event loop."""
    for name in channel_names:
        module = f"{discovery.PACKAGE}.{name}.adapter"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    if settings.llm.provider != "demo":
        importlib.import_module("bot.llm.client")


@contextlib.asynccontextmanager
async def _started(
    root: Path,
    say: Say,
    stop: asyncio.Event,
    *,
    outside: Outside | None = None,
    only: frozenset[str] | None = None,
    signals: Signals = lambda _: contextlib.nullcontext(),
) -> AsyncIterator[Gateway]:
    """Configuration, locks, log and gateway of a folder, serving for the block. `signals` listens for stops from the
    moment on when something may have to be drained.
    """
    settings = config.load(root, discovery.manifests(), os.environ)
    names = [name for name in settings.enabled if only is None or name in only]
    outside = outside or Outside()
    manifests = discovery.manifests()
    tokens = config.tokens_in_use(settings.channels, manifests, names)
    instance.prepare_home(settings.home)
    with contextlib.ExitStack() as around:
        around.enter_context(instance.held(settings.home))
        around.enter_context(instance.tokens_held(tokens, settings.root))
        redact = LogRedactor(settings.secrets)
        log = JsonlLog(
            settings.home / "logs", clock=outside.clock, disk=outside.disk, ids=outside.ids, redact=redact
        )
        try:
            with bridged(log, messages=settings.llm.log_messages):
                for warning in settings.warnings:
                    say(f"warning: {warning}")
                await asyncio.to_thread(preload, settings, names)
                around.enter_context(signals(stop))
                gateway = assemble(settings, outside, log, names, dashboard=only is None)
                async with serving(gateway, say, stop):
                    settle_memory()
                    yield gateway
        except errors.ShipmateError as error:
            log.write("error", f"{type(error).__name__}: {error}", level="error")
            raise
        finally:
            await asyncio.to_thread(log.close)


def settle_memory() -> None:
    """Take what was imported out of the collector's sight: looking through it stops everything for 80 ms, again
    and again.
    """
    gc.collect()
    gc.freeze()


async def run(root: Path, outside: Outside | None = None) -> int:
    """`shipmate run`: the gateway in the foreground until SIGTERM or SIGINT. Raises `errors.ShipmateError`."""
    stop = asyncio.Event()
    with stops.at_once():
        await _run(root, stop, outside)
    return 0


async def _run(root: Path, stop: asyncio.Event, outside: Outside | None) -> None:
    async with _started(root, _print, stop, outside=outside, signals=stops.draining) as gateway:
        if not stop.is_set():
            llm = gateway.settings.llm
            if llm.provider == "demo":
                _print(
                    f"the built-in demo model is answering ({llm.provider_reason}); set ANTHROPIC_API_KEY for Claude"
                )
            else:
                _print(f"{llm.model} is answering")
            _print(ready_line(gateway))
            await stop.wait()
            _print("stopping: running turns may take a few seconds to end")


def ready_line(gateway: Gateway) -> str:
    """What `shipmate run` prints once everything is connected: names, then addresses."""
    addresses = [address for channel in gateway.channels.values() for address in channel.addresses]
    if gateway.dashboard is not None:
        addresses.append(gateway.dashboard.address)
    return " ".join(["ready", *sorted(gateway.channels), *addresses])


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
    # Whoever read the output may have gone: no reason to stop serving.
    with contextlib.suppress(BrokenPipeError):
        print(line, flush=True)  # noqa: T201 - the command's own output


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the command's own output
