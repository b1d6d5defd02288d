"""Starts a gateway in a folder, for `shipmate run`, `shipmate chat` and `shipmate link`. SIGTERM and SIGINT end the
process within ten seconds with exit code 0; SIGHUP never ends it.
"""

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
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bot import config, configuration, discovery, errors, file_access, http_server, instance, text
from bot.composition import Gateway
from bot.contracts.channel import Manifest
from bot.contracts.environment import Log
from bot.core.services import Environment
from bot.core.usage import UsageSums
from bot.dashboard.console import PartHealth
from bot.dashboard.metrics import Metrics
from bot.dashboard.server import Dashboard
from bot.discovery import import_without
from bot.http_server import Connections
from bot.invocation import command, version_of
from bot.lifecycle import Say, reload, running, serving
from bot.llm.costs import PriceTable, Spending, day_of
from bot.llm.wrapper import usage_of
from bot.telemetry.log import JsonlLog, bridged
from bot.telemetry.redaction import LogRedactor
from bot.words import DEFAULT, language_of, speaking

CONSOLE = "console"  # Name of the channel that `shipmate chat` uses
LAST_RESORT = 9.6
"""Max seconds from a stop signal to the exit of the process. After this time, the process exits even if a part of it
hangs. No message is lost, because accepted messages are in the log.
"""
Signals = Callable[[asyncio.Event, Callable[[], object]], contextlib.AbstractContextManager[None]]


def preload(settings: config.Settings, channels: Iterable[Manifest]) -> None:
    """Import the libraries of the platforms and of the model's provider. The imports take seconds, so this function
    must not be called on the event loop.
    """
    for manifest in channels:
        package = manifest.build.__module__.rpartition(".")[0]
        if package and importlib.util.find_spec(f"{package}.adapter") is not None:
            import_without(f"{package}.adapter", manifest.unused)
    if settings.llm.provider != "demo":
        importlib.import_module("bot.llm.client")


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
) -> AsyncIterator[Gateway]:
    """Run the gateway of a folder while the context is open. The start reads the configuration, takes the locks, opens
    the log, waits for leadership and then starts all parts. Before turns can run, it enters the context manager that
    `signals` returns. If `only` is given, the gateway has only these channels and no dashboard.
    """
    load = functools.partial(configuration.load, root, defaults=defaults)
    settings, environment, manifests = load(), environment or Environment(), discovery.manifests()
    names = [name for name in settings.enabled if only is None or name in only]
    http_server.raise_file_limit()
    instance.prepare_home(settings.home)
    config.write_schemas(settings.home, environment.disk)
    with contextlib.ExitStack() as around:
        last_run = around.enter_context(instance.held(settings.home))
        # In a cluster, tokens are not locked: only the leader uses them. A frozen leader's locks would block its successor.
        if settings.engine.kind == "embedded":
            tokens = config.tokens_in_use(settings.channels, manifests, names)
            around.enter_context(instance.tokens_held(tokens, settings.root))
        environment.disk.remove(settings.root / file_access.SAVED)
        redact, counted = LogRedactor(settings.secrets), Metrics()
        prices = configuration.prices_of(settings.llm)
        spending = Spending(prices)
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
                gc.enable()  # `shipmate run` disabled garbage collection during the imports
                hung_up = asyncio.Event()
                around.enter_context(signals(stop, hung_up.set))
                async with _leading(settings, environment, log, counted=counted, say=say, stop=stop) as own:
                    await asyncio.to_thread(_load_spending, spending, prices, settings, own.clock.now(), log)
                    figures = counted if only is None else None
                    gateway = Gateway(settings, own, log, names, counted=figures, spending=spending)
                    gc.freeze()  # otherwise each full collection would scan the imported modules, which takes 80 ms
                    async with (
                        _exporting_spans(settings, log, redact),
                        serving(gateway, say, stop),
                        running(log, _reloading(gateway, hung_up, load, lambda line: say(redact(line)))),
                    ):
                        if not stop.is_set():
                            log.write("ready", ready_line(gateway), channels=sorted(gateway.channels))
                        yield gateway
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
async def _exporting_spans(
    settings: config.Settings, log: JsonlLog, redact: LogRedactor
) -> AsyncIterator[None]:
    """Export the log's lines as OpenTelemetry spans while the context is open, if `telemetry.otel` is enabled."""
    if not settings.telemetry.otel.enabled:
        yield
        return
    otel = await asyncio.to_thread(importlib.import_module, "bot.telemetry.otel")
    try:
        export = await asyncio.to_thread(
            otel.SpanExport,
            log,
            endpoint=settings.telemetry.otel.endpoint,
            agent=settings.name,
            provider=settings.llm.provider,
            version=version_of("shipmate"),
            redact=redact,
        )
    except ValueError as error:
        raise errors.ConfigError(f"telemetry.otel: an OTEL_ variable cannot be used: {error}") from None
    log.observers.append(export.observe)
    try:
        yield
    finally:
        await asyncio.to_thread(export.close)


class _StoppedAsStandby(errors.ShipmateError):
    """Raised when a standby is stopped. A standby waits for leadership, so it has no turns to finish."""


@contextlib.asynccontextmanager
async def _leading(
    settings: config.Settings,
    environment: Environment,
    log: JsonlLog,
    *,
    counted: Metrics,
    say: Say,
    stop: asyncio.Event,
) -> AsyncIterator[Environment]:
    """Yield the environment in which the gateway runs. In a cluster, first wait until this process is the leader. Raises
    `errors.Unavailable` when another process becomes the leader.
    """
    url = settings.engine.database_url
    if settings.engine.kind != "postgresql" or url is None:
        yield environment
        return
    from bot.cluster.leadership import PostgresLeadership  # needs the optional PostgreSQL library
    from bot.cluster.shared_disk import SharedDisk

    clock = environment.clock
    leadership = PostgresLeadership(url, clock=clock, log=log)
    disk = SharedDisk(environment.disk, settings.home, url, log)
    # A standby serves the health pages at the dashboard's address.
    counted.figures = lambda: {"shipmate_part_ok": {"cluster": True}}
    page = Dashboard(
        settings.dashboard,
        lambda: {"cluster": PartHealth(ok=True, detail=leadership.role())},
        counted,
        None,
        clock=clock,
        server=Connections(http_server.max_connections(), clock=clock, log=log).server(),
    )
    try:
        async with contextlib.AsyncExitStack() as standing_by:
            standing_by.push_async_callback(page.stop)
            if settings.dashboard.enabled:
                await page.start()
            async with running(log, disk.follow(clock)):
                if not await leadership.lead(
                    stop, lambda leader: say(f"standby: {leader or 'nobody'} leads")
                ):
                    raise _StoppedAsStandby
            await asyncio.to_thread(disk.begin, leadership.epoch)
        async with running(log, _stop_when(leadership.deposed, stop), disk.follow(clock, leads=True)):
            yield dataclasses.replace(environment, leadership=leadership, disk=disk)
    finally:
        await asyncio.to_thread(disk.close)
        await leadership.close()
    if leadership.deposed.is_set():
        raise errors.Unavailable(f"{leadership.leader} leads now; start this process again to stand by")


def _load_spending(
    spending: Spending, prices: PriceTable, settings: config.Settings, now: float, log: Log
) -> None:
    """Load the costs of the current day (UTC) if there are budgets. This call blocks and raises nothing."""
    if not settings.budgets.limits:
        return
    try:
        spent = UsageSums(settings.home, settings.engine.database_url).spent(now - now % 86_400)
    except errors.StorageError as error:
        words = "the cost of today is not known: budgets begin anew"
        log.write("error", words, level="error", cause=str(error))
        return
    for (chat, person, model), one in spent:
        unpriced = prices.at_most(model, usage_of(one.tokens)) if one.unpriced else 0.0
        spending.load(day_of(now), [(chat, person, max(one.cost, unpriced))])


async def _reloading(
    gateway: Gateway, asked: asyncio.Event, load: Callable[[], config.Settings], say: Say
) -> None:
    """Reload the configuration each time that `asked` is set, and print the outcome."""
    while True:
        await asked.wait()
        asked.clear()
        say(await reload(gateway, load))


async def _stop_when(deposed: asyncio.Event, stop: asyncio.Event) -> None:
    await deposed.wait()
    stop.set()


@contextlib.contextmanager
def draining(
    stop: asyncio.Event,
    hung_up: Callable[[], object] = lambda: None,
    leave: Callable[[], object] = lambda: os._exit(0),
    seconds: float = LAST_RESORT,
) -> Iterator[None]:
    """Handle signals while the context is open. A stop signal sets `stop`; if the process still runs `seconds` later,
    `leave` is called. Further stop signals are ignored, even after the context has ended. SIGHUP calls `hung_up`.
    """
    loop = asyncio.get_running_loop()
    last_resort = threading.Timer(seconds, leave)
    last_resort.daemon = True

    def stopped() -> None:
        if not stop.is_set():
            stop.set()
            last_resort.start()

    handlers: dict[int, Callable[[], object]] = dict.fromkeys((signal.SIGINT, signal.SIGTERM), stopped)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = hung_up
    # `loop.remove_signal_handler` would restore the default action for a moment, in which a signal ends the process.
    for number, handle in handlers.items():
        signal.signal(number, lambda *_, handle=handle: loop.call_soon_threadsafe(handle))
    try:
        yield
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)


async def run(root: Path, environment: Environment | None = None, *, defaults: bool = False) -> int:
    """Run the gateway in the foreground until SIGTERM or SIGINT (`shipmate run`). If `defaults` is True, ship.json may
    be missing. Raises `errors.ShipmateError`.
    """
    stop = asyncio.Event()
    with contextlib.suppress(_StoppedAsStandby):
        async with started(
            root, _print, stop, environment=environment, defaults=defaults, signals=draining
        ) as gateway:
            if not stop.is_set():
                for channel in gateway.channels.values():
                    if link := await channel.invite():
                        _print(f"open this link to be its operator in your browser; it works once: {link}")
                if gateway.dashboard is not None:
                    _print(f"costs, conversations and errors are shown at {gateway.dashboard.address}")
                _print(ready_line(gateway))
                await stop.wait()
                working = gateway.runner.running
                _print("stopping: running turns may take a few seconds to end" if working else "stopping")
    return 0


def ready_line(gateway: Gateway) -> str:
    """Return the line that `shipmate run` prints once all channels are connected: the channels' names, then their addresses."""
    addresses = [address for channel in gateway.channels.values() for address in channel.addresses]
    if gateway.dashboard is not None:
        addresses.append(gateway.dashboard.address)
    return " ".join(["ready", *sorted(gateway.channels), *addresses])


async def chat(root: Path, **how: Any) -> int:
    """Open a chat in the terminal (`shipmate chat`). The chat uses the running gateway; if none runs, it starts one.
    `how` is passed to `channels.console.client.converse`. Raises `errors.ShipmateError`.
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
    """Return the language that the environment variables of a terminal name (`LANG` and others)."""
    found = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return language_of(next(filter(None, found), None)) or DEFAULT


def link(root: Path) -> str:
    """Return a new link that opens this folder's web chat as an operator (`shipmate link`). Raises `errors.ShipmateError`."""
    guard = importlib.import_module(f"{discovery.PACKAGE}.web.guard")
    home = root / config.HOME
    if not instance.is_held(home):
        raise errors.Unavailable(f"Shipmate is not running here. Start it with: {command('run', root)}")
    try:
        return str(guard.create_link(home))
    except (OSError, LookupError):
        raise errors.ConfigError(
            "channels.web: the web chat is not running; expected channels.web.enabled true"
        ) from None


def _print(line: str) -> None:
    # A closed pipe or terminal must not stop the gateway, so the error is ignored.
    with contextlib.suppress(OSError):
        print(text.for_terminal(line), flush=True)  # noqa: T201 - the command's own output


def _complain(line: str) -> None:
    print(text.for_terminal(line), file=sys.stderr, flush=True)  # noqa: T201 - the command's own output
