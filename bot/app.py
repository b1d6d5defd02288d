"""The only place where everything is put together."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from bot import config, discovery, errors, instance
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList
from bot.agent.kit import Kit
from bot.agent.runtime import AgentPool
from bot.context.skills import SkillFolder
from bot.contracts import Channel, Surroundings
from bot.gateway.access import Access
from bot.gateway.commands import Commands
from bot.gateway.delivery import Delivery
from bot.gateway.intake import GatewayIntake
from bot.gateway.turns import Turns
from bot.history.archive import ChatStore
from bot.history.transcript import Transcript
from bot.journal.sqlite import SqliteJournal
from bot.llm.factory import build_model
from bot.serving import Gateway, Outside, Say, serving
from bot.telemetry import JsonlLog, LogRedactor, Redactor, bridged
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry, ToolPorts, builtin_tools


def assemble(
    settings: config.Settings, outside: Outside, log: JsonlLog, channel_names: Iterable[str]
) -> Gateway:
    """Put the rooms together. Channels' libraries must have been imported (`preload`)."""
    manifests = discovery.manifests()
    home, clock, ids = settings.home, outside.clock, outside.ids
    redact = Redactor(settings.secrets)
    answering = settings.llm.model if settings.llm.provider != "demo" else "the demo model"
    around = Surroundings(
        clock, log, outside.rng, home, settings.root, settings.operators, settings.name, answering
    )
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
async def _started(
    root: Path, say: Say, stop: asyncio.Event, only: frozenset[str] | None = None
) -> AsyncIterator[Gateway]:
    """Configuration, lock, log and gateway of a folder, serving for the block."""
    settings = config.load(root, discovery.manifests(), os.environ)
    names = [name for name in settings.enabled if only is None or name in only]
    outside = Outside()
    instance.prepare_home(settings.home)
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
