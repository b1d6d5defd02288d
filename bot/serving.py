"""A gateway's life: everything connected at its start, drained and closed at its end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bot import config, errors
from bot.agent.runtime import AgentPool
from bot.contracts import Channel, Clock, Disk, Ids, Journal, Model
from bot.dashboard.server import Dashboard, Part
from bot.gateway.intake import GatewayIntake
from bot.gateway.turns import Turns
from bot.history.archive import ChatStore
from bot.history.transcript import Transcript
from bot.schedule import Chore, Housekeeping
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry import JsonlLog

DRAIN_SECONDS = 7.0
"""What running turns get at a stop; with what follows, the process ends within ten seconds."""
CHECK_SECONDS = 5.0
"""How long a start waits for a provider that is slow to say whether the key is good."""
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
    journal: Callable[[Journal], Journal] = lambda made: made
    """What everything inside gets for the journal that was made."""
    channel: Callable[[Channel], Channel] = lambda made: made
    """The same for each channel."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything that runs, put together and not yet started."""

    settings: config.Settings
    outside: Outside
    log: JsonlLog
    model: Model
    channels: dict[str, Channel]
    journal: Journal
    archive: ChatStore
    transcript: Transcript
    agent: AgentPool
    turns: Turns
    intake: GatewayIntake
    dashboard: Dashboard | None = None

    def parts(self) -> dict[str, Part]:
        """How each part is, for `/readyz`."""
        now = self.outside.clock.now()
        found = {"journal": Part(ok=not self.journal.health(), detail=self.journal.health())}
        for name, channel in self.channels.items():
            health = channel.health()
            heard = None if health.last_heard is None else max(0.0, round(now - health.last_heard, 1))
            found[name] = Part(ok=health.connected, detail=health.detail, heard=heard)
        return found

    def chores(self) -> list[Chore]:
        """What is tidied while the gateway runs."""

        async def evict() -> None:
            await self.agent.flush()
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


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, say: Say, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run a gateway for the block: everything connected at its start, everything drained and closed at its end.

    Raises `errors.ShipmateError` where it cannot start. Where `stop` is set before everything is connected,
    the block runs all the same and should end at once.
    """
    housekeeping = Housekeeping(gateway.chores(), gateway.log)
    checking: asyncio.Task[None] | None = None
    try:
        await gateway.journal.open()
        # requestIds tell the order of messages, even where the clock was set back while nobody ran.
        gateway.outside.ids.after(await gateway.journal.newest())
        if gateway.dashboard is not None:
            await gateway.dashboard.start()
        checking = asyncio.create_task(_check_model(gateway, say))
        await _connect_all(gateway, say, stop)
        await asyncio.wait([checking], timeout=CHECK_SECONDS)
        if checking.done():
            checking.result()
        housekeeping.start()
        yield
    finally:
        if checking is not None:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
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
    await _bounded(gateway.log, "write what the transcripts owe", gateway.agent.flush(), 1.0)
    closings = [(f"stop {name}", channel.stop()) for name, channel in channels]
    if gateway.dashboard is not None:
        closings.append(("stop the dashboard", gateway.dashboard.stop()))
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
