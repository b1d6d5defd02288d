"""Runs a gateway. The start reads the log and connects the channels; the end finishes turns and closes all parts. A
reload applies a changed configuration to new turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from bot import config, errors
from bot.composition import Gateway
from bot.contracts.channel import Channel
from bot.contracts.environment import Log, cancel_all, started
from bot.importing import end_cleanly, remove_backup
from bot.llm.models import ModelDeps
from bot.periodic_jobs import PeriodicJob, PeriodicJobs

PAUSE_SECONDS = 1.0  # Timeout in seconds for channels to stop accepting messages
DRAIN_SECONDS = 4.5
"""Timeout in seconds for running turns to end after a stop. Turns that still run after it are cut off."""
CLOSE_SECONDS = 1.5  # Timeout in seconds for closing one part. The timeouts of a stop add up to nine seconds.
LOG_SECONDS = 1.0  # Timeout in seconds for the log to write its pending lines
CHECK_SECONDS = 5.0  # Timeout in seconds for the check of the API key at a start
LONGEST_RETRY = 30.0  # Max interval in seconds between two attempts to connect a channel
PART_SECONDS = 2.0  # Interval in seconds between two checks of the parts' health
OF_TURNS = {
    "llm": ("model", "fast_model", "max_tokens", "context_window", "effort", "thinking", "purposes"),
    "": ("context", "subagents", "permissions"),
}
"""For each section, the settings whose changes apply to new turns. All other settings need a restart."""
ASK_SECONDS = 20.0  # Timeout in seconds for asking the provider if it has a model
ASK_LIMITS_SECONDS = 600.0
"""Interval in seconds between two requests for a model's limits, until the provider answers."""
Say = Callable[[str], None]


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, say: Say, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run a gateway while the context is open: connect it at the start, finish its turns and close it at the end.
    Raises `errors.ShipmateError` if the gateway cannot start. If `stop` is set before all channels are connected, the
    context is still entered; the caller should then leave it at once.
    """
    services, door, log = gateway.services, gateway.door, gateway.services.log
    lines = _PartLines(gateway, say)
    ask = functools.partial(ask_limits, gateway, say)
    periodic = PeriodicJobs(
        [
            *door.all("periodic"),
            *gateway.maintenance.jobs(),
            PeriodicJob("say which parts do not work", PART_SECONDS, lines.look),
            PeriodicJob("ask for the limits of the model", ASK_LIMITS_SECONDS, ask),
        ],
        log,
    )
    around = contextlib.AsyncExitStack()

    def ends(what: str, close: Callable[[], Awaitable[object]], seconds: float = CLOSE_SECONDS) -> None:
        """Register the function `close`, which is called when the context ends."""
        around.push_async_callback(lambda: _bounded(log, what, close(), seconds))

    try:
        gateway.memory.start()
        around.callback(gateway.memory.stop)
        if gateway.dashboard is not None:
            await gateway.dashboard.start()
            ends("stop the dashboard", gateway.dashboard.stop)
        ends("close the log", gateway.event_log.close, seconds=LOG_SECONDS)
        ends("close the features", door.close)
        for export in gateway.exports:
            ends("close an export", export.close)
        ends("save what was learnt about models", gateway.learned.save)
        for model in (gateway.model, *(one for one, _ in gateway.fallbacks)):
            ends("close a model", model.close)
        gateway.mcp.start()
        ends("end the MCP servers", gateway.mcp.close)
        await _read(gateway)
        for export in gateway.exports:
            export.start()
        around.push_async_callback(_stopped, gateway)
        around.push_async_callback(gateway.turns.summaries.stop)
        checking = asyncio.create_task(_check_model(gateway, say, lines))
        around.callback(checking.cancel)
        loops = [serve() for serve in (*door.all("serves"), gateway.watch.run)]
        if gateway.counted is not None:
            loops.append(gateway.counted.watch_loop(services.clock))
        await around.enter_async_context(running(log, *loops))
        await gateway.runner.start()
        await gateway.files.start()
        periodic.start()
        around.callback(periodic.stop)
        await connect_all(gateway, say, stop)
        for checked in (await asyncio.wait([checking], timeout=CHECK_SECONDS))[0]:
            checked.result()
        ends("note a clean end", functools.partial(asyncio.to_thread, end_cleanly, services.settings.home))
        yield
    finally:
        closing = asyncio.create_task(around.aclose())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # Closing continues after a cancellation. Otherwise connections and files would stay open.
            await asyncio.wait([closing])
            raise


@dataclass(eq=False)
class _PartLines:
    """Prints a line when a part fails, and another when it works again. Channels print their own lines."""

    gateway: Gateway
    say: Say
    _printed: set[str] = field(default_factory=set)

    def tell(self, name: str, words: str) -> None:
        """Print a part's trouble once, until the part works again."""
        if name not in self._printed:
            self._printed.add(name)
            self.say(f"{name}: {words}")

    async def look(self) -> None:
        parts, channels = self.gateway.parts(), self.gateway.channels
        broken = {name: part for name, part in parts.items() if not part.ok and name not in channels}
        for name, part in broken.items():
            self.tell(name, part.detail)
        for name in sorted(self._printed - set(broken)):
            self._printed.remove(name)
            self.say(f"{name}: works again")


@contextlib.asynccontextmanager
async def running(log: Log, *loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run loops while the context is open. A failure of a loop is logged."""
    tasks = [started(loop, log, "a loop ended") for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=CLOSE_SECONDS)


async def _read(gateway: Gateway) -> None:
    """Import a `.ship` of version 0.1 if there is one, then read the log. Raises `errors.StorageError`."""
    services = gateway.services
    await asyncio.to_thread(gateway.reserve.look)
    await gateway.memory.look()
    with errors.as_storage_error("the .ship of 0.1 cannot be imported", OSError, sqlite3.Error):
        if await asyncio.to_thread(gateway.import_ship):
            services.log.write("storage", "the .ship of 0.1 is imported, and kept in before-0.2")
        elif await asyncio.to_thread(remove_backup, services.settings.home):
            services.log.write("storage", "before-0.2, the .ship of 0.1, is removed")
    # Request ids order messages, so new ids must be greater, even if the clock was set back since the last run.
    services.ids.after(await gateway.event_log.newest())
    # A command that a kill interrupted may have left instruction files. Such files must wait for a person.
    await asyncio.to_thread(services.guard.find_instruction_files)
    await gateway.chats.start()
    await gateway.locales.load()
    await gateway.runner.close_restored()


async def _stopped(gateway: Gateway) -> None:
    """Stop accepting messages, let running turns end, and close the channels. The next start continues work that does
    not end in time.
    """
    log, channels = gateway.services.log, gateway.channels.items()
    pauses = (_bounded(log, f"pause {name}", channel.pause(), PAUSE_SECONDS) for name, channel in channels)
    await asyncio.gather(*pauses)
    if not await gateway.runner.close(DRAIN_SECONDS):
        log.write("stop", "turns were cut off; they continue at the next start", level="warn")
    if (display := gateway.door.display) is not None:
        await _bounded(log, "close the display", display.close(), PAUSE_SECONDS)
    stops = (_bounded(log, f"stop {name}", channel.stop(), CLOSE_SECONDS) for name, channel in channels)
    await asyncio.gather(*stops)


async def _bounded(log: Log, what: str, work: Awaitable[object], seconds: float) -> None:
    """Run one step of a stop. A failure or timeout is logged, so that the following steps still run."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        # A task that does not end in time may not end when cancelled either, so it is not awaited.
        task.cancel()
        log.write("stop", f"{what}: not done after {seconds:g} s", level="warn")
    elif not task.cancelled() and (error := task.exception()) is not None:
        log.write("stop", f"{what}: {type(error).__name__}: {error}", level="warn")


async def _check_model(gateway: Gateway, say: Say, lines: _PartLines) -> None:
    """Check the API key, and print which model answers. A refused key ends the start; other failures are only printed."""
    model, llm = gateway.model, gateway.settings.llm
    try:
        await model.check()
    except errors.ModelRefused as error:
        raise errors.ConfigError(
            f"llm.apiKey: the provider refuses it ({error}); expected a valid key; get a new one, or remove it "
            "to use the demo model"
        ) from error
    except errors.ModelError as error:
        words = f"{error} I go on and ask it again with each message."
        if model.trouble is not None:
            lines.tell("model", words)
        else:  # a model without `trouble` is not watched, so nothing reports its recovery
            say(f"model: {words}")
        return
    if not await ask_limits(gateway, say):
        return
    if llm.provider == "demo":
        say(f"the built-in demo model is answering ({llm.provider_reason}); set ANTHROPIC_API_KEY for Claude")
    else:
        say(f"{llm.model} is answering")


async def ask_limits(gateway: Gateway, say: Say) -> bool:
    """Ask the provider for the limits of the models whose limits are unknown. Return False if the provider says that it
    does not have the main model. Raises nothing.
    """
    models, log, there = gateway.turns.agent.models, gateway.services.log, True
    try:
        warning = await models.windows.ask(gateway.model, models.name)
    except errors.ModelUnknown as error:
        there = False
        warning = (
            f"llm.model: found {models.name}; the provider does not have it ({error}); name one that it has"
        )
    except errors.ModelError as error:
        log.write("model", "the provider does not tell the limits of the model", cause=str(error))
        return True
    if warning is not None:
        say(f"warning: {warning}")
        log.write("model", warning, level="warn")
    llm = gateway.settings.llm
    for name in {llm.fast_model, *(one.model for one in llm.purposes.values() if one.model)}:
        with contextlib.suppress(errors.ModelError):
            await models.windows.ask(gateway.model, name)
    return there


async def connect_all(gateway: Gateway, say: Say, stop: asyncio.Event) -> None:
    """Start all channels concurrently. Retry unreachable channels until `stop` is set."""
    channels = gateway.channels.items()
    tasks = [asyncio.create_task(_connect(gateway, name, channel, say)) for name, channel in channels]
    connected: asyncio.Future[Any] = asyncio.gather(*tasks)
    stopped: asyncio.Future[Any] = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([connected, stopped], return_when=asyncio.FIRST_COMPLETED)
        if connected.done():
            connected.result()
    finally:
        await cancel_all([*tasks, connected, stopped])


async def _connect(gateway: Gateway, name: str, channel: Channel, say: Say) -> None:
    log, wait, told = gateway.services.log, 1.0, ""
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
                log.write("channel", f"{name} cannot be reached", level="warn", cause=told)
            await gateway.services.clock.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY)
        else:
            break
    if told:
        say(f"{name}: connected")
    log.write("channel", f"{name} connected")
    gateway.watch.opened(name)
    await gateway.runner.open(name)


async def reload(gateway: Gateway, load: Callable[[], config.Settings]) -> str:
    """Load, check and apply the configuration (SIGHUP). Return the outcome, which is logged too. After an unexpected
    error, the old configuration stays.
    """
    log, before = gateway.services.log, gateway.turns.agent.settings
    try:
        found = await asyncio.to_thread(load)
        llm = {name: getattr(found.llm, name) for name in OF_TURNS["llm"]}
        update = {name: getattr(found, name) for name in (*OF_TURNS[""], "warnings")}
        settings = before.model_copy(update=update | {"llm": before.llm.model_copy(update=llm)})
        changed, restart = _differing(before, settings), _differing(settings, found)
        if settings != before:
            agent = gateway.agent_with(settings)
            if settings.llm.model != before.llm.model:
                await _ask_for(agent.models)
            gateway.turns.agent = agent
    except (errors.ShipmateError, OSError, ValueError, RuntimeError) as error:
        findings = getattr(error, "findings", (f"{type(error).__name__}: {error}",))
        words = f"SIGHUP: the configuration cannot be used, and the one before holds: {findings[0]}"
        log.write("reload", words, level="error", findings=list(findings))
        return words
    warnings = [one for one in found.warnings if one not in before.warnings]
    words = "turns that begin from now on have the changed configuration" if changed else "nothing changes"
    if restart:
        words += f"; a restart is needed for {', '.join(restart)}"
    words = "; ".join((f"SIGHUP: {words}", *(f"warning: {one}" for one in warnings)))
    log.write(
        "reload",
        words,
        level="warn" if restart or warnings else "info",
        changed=changed,
        restart=restart,
        findings=warnings,
        configuration=found.fingerprint,
    )
    return words


async def _ask_for(models: ModelDeps) -> None:
    """Raise `errors.ConfigError` if the provider says that it does not have the default model."""
    name = models.default_model
    with contextlib.suppress(errors.ModelError, TimeoutError):
        async with asyncio.timeout(ASK_SECONDS):
            try:
                await models.windows.ask(models.model, name)
            except errors.ModelUnknown as error:
                raise errors.ConfigError(
                    f"llm.model: found {name}, which the provider does not have ({error}); expected one that it has; name another"
                ) from None


def _differing(one: config.Settings, other: config.Settings) -> list[str]:
    """Return the full keys (as in ship.json) of all values that differ between the two settings."""
    before, after = config.leaves(one), config.leaves(other)
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
