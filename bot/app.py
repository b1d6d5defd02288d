"""Starts a gateway on a folder: `shipmate run`, `shipmate chat`, `shipmate link`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from bot import (
    config,
    configuration,
    descriptors,
    discovery,
    errors,
    hidden_paths,
    instance,
    shutdown_signals,
    text,
)
from bot.composition import load_spending, standing_by
from bot.contracts.channel import Invites, Manifest
from bot.dashboard.metrics import LogMetrics
from bot.discovery import import_without
from bot.invocation import command, version_of
from bot.lifecycle import Serving, assemble, serving
from bot.llm.budgets import Spending
from bot.readiness import Say
from bot.services import Environment
from bot.telemetry import JsonlLog, LogRedactor, bridged
from bot.words import DEFAULT, language_of, speaking

CONSOLE = "console"
"""The channel of `shipmate chat`."""
Signals = Callable[[asyncio.Event, Callable[[], object]], contextlib.AbstractContextManager[None]]


def preload(settings: config.Settings, channels: Iterable[Manifest]) -> None:
    """Import the platforms' and the provider's libraries, which takes seconds: never on a running event loop."""
    for manifest in channels:
        package = manifest.build.__module__.rpartition(".")[0]
        if package and importlib.util.find_spec(f"{package}.adapter") is not None:
            import_without(f"{package}.adapter", manifest.unused)
    if settings.llm.provider != "demo":
        importlib.import_module("bot.llm.client")


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """The configuration, environment and logs of a process that leads."""

    settings: config.Settings
    names: list[str]
    environment: Environment
    log: JsonlLog
    counted: LogMetrics
    spending: Spending
    redact: LogRedactor
    hung_up: asyncio.Event


@contextlib.asynccontextmanager
async def prepared(
    root: Path,
    say: Say,
    stop: asyncio.Event,
    *,
    environment: Environment | None = None,
    only: frozenset[str] | None = None,
    defaults: bool = False,
    signals: Signals = lambda *_: contextlib.nullcontext(),
) -> AsyncIterator[Prepared]:
    """Configuration, locks and log of a folder for the block. `signals` listens for stops from the moment on when something may
    have to be drained.
    """
    settings = configuration.load(root, defaults=defaults)
    names = [name for name in settings.enabled if only is None or name in only]
    environment = environment or Environment()
    manifests = discovery.manifests()
    tokens = config.tokens_in_use(settings.channels, manifests, names)
    descriptors.raise_limit()
    instance.prepare_home(settings.home)
    config.write_schema(settings.home / "schema", manifests, environment.disk)
    with contextlib.ExitStack() as around:
        last_run = around.enter_context(instance.held(settings.home))
        if settings.engine.kind == "embedded":  # else one leads, and a frozen one would keep its locks
            around.enter_context(instance.tokens_held(tokens, settings.root))
        hidden_paths.remove_saved_names(settings.root)
        redact, counted = LogRedactor(settings.secrets), LogMetrics()
        spending = Spending(configuration.prices_of(settings.llm))
        log = JsonlLog(
            settings.home / "logs",
            clock=environment.clock,
            disk=environment.disk,
            ids=environment.ids,
            redact=redact,
            keep_days=settings.log.keep_days,
            max_bytes=settings.log.max_mb * 2**20,
            observers=[counted.observe, spending.observe],
        )
        log.write(
            "start",
            "Shipmate starts",
            version=version_of("shipmate"),
            python=platform.python_version(),
            pid=os.getpid(),
            channels=names,
            configuration=settings.fingerprint,
            last_run=last_run,
            findings=list(settings.warnings),
        )
        ended = "stopped"
        try:
            with bridged(log, messages=settings.llm.log_messages):
                for warning in settings.warnings:
                    say(f"warning: {warning}")
                await asyncio.to_thread(preload, settings, [manifests[name] for name in names])
                gc.enable()  # `shipmate run` imports without it
                hung_up = asyncio.Event()
                around.enter_context(signals(stop, hung_up.set))
                async with _leading(
                    settings, environment, log, counted=counted, say=say, stop=stop
                ) as environment:
                    await asyncio.to_thread(load_spending, spending, settings, environment, log)
                    yield Prepared(settings, names, environment, log, counted, spending, redact, hung_up)
        except _StoppedAsStandby:
            raise
        except errors.ShipmateError as error:
            ended = "failed"
            log.write("error", f"{type(error).__name__}: {error}", level="error")
            raise
        finally:
            log.write("stop", f"Shipmate has {ended}", ended=ended)
            await asyncio.to_thread(log.close)


@contextlib.asynccontextmanager
async def started(
    root: Path,
    say: Say,
    stop: asyncio.Event,
    *,
    environment: Environment | None = None,
    only: frozenset[str] | None = None,
    defaults: bool = False,
    signals: Signals = lambda *_: contextlib.nullcontext(),
) -> AsyncIterator[Serving]:
    """The gateway of a folder, serving for the block; all that it stands on as in `prepared`."""
    ready = prepared(root, say, stop, environment=environment, only=only, defaults=defaults, signals=signals)
    async with ready as own:
        load = functools.partial(configuration.load, root, defaults=defaults)
        gateway = assemble(
            own.settings,
            own.environment,
            own.log,
            own.names,
            counted=own.counted if only is None else None,
            spending=own.spending,
        )
        settle_memory()
        async with (
            serving(gateway, say, stop),
            _running(gateway.reload.serve(own.hung_up, load, lambda line: say(own.redact(line)))),
        ):
            made = Serving(
                gateway.channels, lambda: gateway.runner.running > 0, gateway.reload, gateway.dashboard
            )
            if not stop.is_set():
                own.log.write("ready", ready_line(made), channels=sorted(made.channels))
            yield made


class _StoppedAsStandby(errors.ShipmateError):
    """There is nothing to end."""


@contextlib.asynccontextmanager
async def _leading(
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    *,
    counted: LogMetrics,
    say: Say,
    stop: asyncio.Event,
) -> AsyncIterator[Environment]:
    """The environment of the process that leads, once this one does; it ends where another one takes its place. Raises
    `errors.Unavailable` then.
    """
    url = settings.engine.database_url
    if settings.engine.kind != "postgresql" or url is None:
        yield environment
        return
    from bot.cluster.leadership import PostgresLeadership  # its library is there where it is wanted
    from bot.cluster.shared_disk import SharedDisk

    leadership = PostgresLeadership(url, clock=environment.clock, log=log)
    disk = SharedDisk(environment.disk, settings.home, url, log)
    try:
        async with standing_by(settings, environment, log, leadership, counted):
            async with _running(disk.follow(environment.clock)):
                if not await leadership.lead(
                    stop, lambda leader: say(f"standby: {leader or 'nobody'} leads")
                ):
                    raise _StoppedAsStandby
            await asyncio.to_thread(disk.begin, leadership.epoch)
        async with (
            _running(_followed(leadership.deposed, stop)),
            _running(disk.follow(environment.clock, leads=True)),
        ):
            yield dataclasses.replace(environment, leadership=leadership, disk=disk)
    finally:
        await asyncio.to_thread(disk.close)
        await leadership.close()
    if leadership.deposed.is_set():
        raise errors.Unavailable(f"{leadership.leader} leads now; start this process again to stand by")


async def _followed(first: asyncio.Event, then: asyncio.Event) -> None:
    """Set one event once another one is set."""
    await first.wait()
    then.set()


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Work that goes on for the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def settle_memory() -> None:
    """Take what was imported out of the collector's sight, which would stop everything for 80 ms each time that it looks there."""
    gc.freeze()


async def run(root: Path, environment: Environment | None = None, *, defaults: bool = False) -> int:
    """`shipmate run`: the gateway in the foreground until SIGTERM or SIGINT. With `defaults` there need be no ship.json.
    Raises `errors.ShipmateError`.
    """
    stop = asyncio.Event()
    with shutdown_signals.at_once(), contextlib.suppress(_StoppedAsStandby):
        await _run(root, stop, environment, defaults=defaults)
    return 0


async def _run(root: Path, stop: asyncio.Event, environment: Environment | None, *, defaults: bool) -> None:
    async with started(
        root, _print, stop, environment=environment, defaults=defaults, signals=shutdown_signals.draining
    ) as serving:
        if not stop.is_set():
            for channel in serving.channels.values():
                if isinstance(channel, Invites):
                    _print(
                        f"open this link to be its operator in your browser; it works once: {await channel.invite()}"
                    )
            if serving.dashboard is not None:
                _print(f"costs, conversations and errors are shown at {serving.dashboard.address}")
            _print(ready_line(serving))
            await stop.wait()
            _print("stopping: running turns may take a few seconds to end" if serving.busy() else "stopping")


def ready_line(serving: Serving) -> str:
    """The line that `shipmate run` prints once everything is connected: names, then addresses."""
    addresses = [address for channel in serving.channels.values() for address in channel.addresses]
    if serving.dashboard is not None:
        addresses.append(serving.dashboard.address)
    return " ".join(["ready", *sorted(serving.channels), *addresses])


async def chat(root: Path, **how: Any) -> int:
    """`shipmate chat`: talk in the terminal, with the running gateway, or with one started for it; `how` is as in
    `channels.console.client.converse`. Raises `errors.ShipmateError`.
    """
    client = importlib.import_module(f"{discovery.PACKAGE}.{CONSOLE}.client")
    home = root / config.HOME
    talk = functools.partial(client.converse, home, **{"stdin": sys.stdin, "stdout": sys.stdout} | how)
    if await asyncio.to_thread(instance.is_held, home):
        with speaking(terminal_language(os.environ)):
            return int(await talk())
    if CONSOLE not in (await asyncio.to_thread(configuration.load, root)).enabled:
        raise errors.ConfigError(
            "channels.console.enabled: found false; expected true, without which no terminal reaches me; leave it out or set it"
        )
    stop = asyncio.Event()
    async with started(root, _complain, stop, only=frozenset({CONSOLE})):
        with speaking(terminal_language(os.environ)):
            return int(await talk(outlived=False))


def terminal_language(environment: Mapping[str, str]) -> str:
    """The language of a terminal, by the variables of its locale."""
    found = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return language_of(next(filter(None, found), None)) or DEFAULT


def link(root: Path) -> str:
    """`shipmate link`: a new link to the web chat of this folder, for its operator. Raises `errors.ShipmateError`."""
    state = importlib.import_module(f"{discovery.PACKAGE}.web.state")
    home = root / config.HOME
    if not instance.is_held(home):
        raise errors.Unavailable(f"Shipmate is not running here. Start it with: {command('run', root)}")
    try:
        return str(state.create_link(home))
    except (OSError, LookupError):
        raise errors.ConfigError(
            "channels.web: the web chat is not running; expected channels.web.enabled true"
        ) from None


def _print(line: str) -> None:
    # Whoever read the output may have gone, or the terminal: no reason to stop serving.
    with contextlib.suppress(OSError):
        print(text.for_terminal(line), flush=True)  # noqa: T201 - the command's own output


def _complain(line: str) -> None:
    print(text.for_terminal(line), file=sys.stderr, flush=True)  # noqa: T201 - the command's own output
