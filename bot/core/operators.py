"""Alerts to operators, and the checks of channels, disk, memory, model and servers that cause them. The watchdog also reconnects
channels whose platform sends nothing any more.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from bot import errors, text
from bot.contracts.approvals import Verdict
from bot.contracts.channel import Health
from bot.contracts.environment import cancel_all
from bot.contracts.identity import CONSOLE, UserRef
from bot.core import events
from bot.core.access import Access
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.event_log import EventLog
from bot.core.locales import Locales
from bot.core.outgoing import Address, rows
from bot.core.services import Services
from bot.core.summaries import LOOK_SECONDS, Summaries
from bot.llm.models import LearnedFile
from bot.llm.wrapper import RetryingModel
from bot.periodic_jobs import PeriodicJob
from bot.resources import LOOK_EVERY, DiskReserve, RssMonitor
from bot.text import named
from bot.tools.mcp.servers import McpServers
from bot.words import Sentence, say, sentence, speaking

EVERY = 3_600.0
"""Default min seconds between two alerts about the same subject, even if the process restarts in between."""
TOLD = "alert"
"""Value of the column `kind` of the table `facts`. A row of this kind stores the time of the last alert about a subject."""


@dataclass(eq=False)
class OperatorAlerts:
    """Sends alerts to operators. Each alert is queued in the log of the chat `NO_CHAT`, as messages to each operator."""

    services: Services
    chats: Chats
    access: Access
    locales: Locales

    def __post_init__(self) -> None:
        self._spells: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, subject: str, words: Sentence, *, every: float = EVERY) -> None:
        """Send operators a message about a subject, at most once per `every` seconds. Returns before the message is sent."""
        task = asyncio.create_task(self._tell(subject, words, every), name="alert")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin(self, subject: str, words: Sentence) -> None:
        """Alert operators that a problem has begun. Until `end` is called, further calls have no effect."""
        if subject not in self._spells:
            self._spells.add(subject)
            self.tell(subject, words)

    def end(self, subject: str, words: Sentence) -> None:
        """Alert operators that a problem has ended, if `begin` was called before."""
        if subject in self._spells:
            self._spells.discard(subject)
            self.tell(f"end of {subject}", words, every=0.0)

    async def _tell(self, subject: str, words: Sentence, every: float) -> None:
        try:
            chat = await self.chats.get(NO_CHAT)
        except errors.StorageError as error:
            self.services.log.write("error", "operators cannot be told", level="error", cause=str(error))
            return
        now = self.services.clock.now()
        told = self.chats.facts[TOLD].get(subject)
        if told is not None and now - told["at"] < every:
            return
        facts = [Fact(chat.key, events.FactSet(TOLD, subject, {"at": now}))]
        name = self.services.ids.ulid()
        for operator, to in self.people(name):
            with speaking(*self.locales.of_person(operator)):
                shown = str(self.access.called(words))
                parts = rows(self.services, f"{name}/{to.chat_key}", to, shown)
            facts += [Fact(chat.key, row) for row in parts]
        self.chats.append(*facts)

    def people(self, request_id: str) -> Iterator[tuple[UserRef, Address]]:
        """Yield each operator with the address of the operator's direct chat on a running channel."""
        for operator in sorted(self.services.operators):
            manifest = self.services.manifests.get(operator.channel)
            if operator.channel in self.services.channels and manifest and manifest.direct:
                target = manifest.direct(operator.user_id)
                key = manifest.encode(target)
                yield operator, Address(operator.channel, key.chat_id, key, "direct", target, request_id)


def who_decided(verdict: Verdict, nameless: str) -> str:
    """Return the name that the person had when deciding. If the name is unknown, return the text with the key `nameless`."""
    if verdict.by == CONSOLE:
        return say("operators.the_console")
    # People choose their names freely, so formatting and links in names are not rendered.
    return f"`{named(verdict.name)}`" if verdict.name.strip() else say(nameless)


CHANNELS_EVERY = 3.0  # Interval in seconds between two checks of the channels
PATIENCE = 30.0
"""Max seconds for which a channel may try to reconnect by itself. Most interruptions are shorter."""
HEAL_EVERY = 60.0  # Min interval in seconds between the starts of two reconnects of a channel
HEAL_SECONDS = 60.0  # Timeout in seconds of one reconnect by the watchdog


@dataclass(slots=True)
class _Seen:
    """State of one channel. Times are monotonic, so that changing the system clock has no effect."""

    heard: float
    sign: float | None = None
    open: bool = False
    since: float | None = None
    reported: bool = False
    heal_at: float = 0.0
    healing: asyncio.Task[None] | None = None


@dataclass(eq=False)
class ChannelWatchdog:
    """Checks the `health` of each channel every few seconds while `run` runs. It reconnects silent channels and alerts
    operators.
    """

    services: Services
    alerts: OperatorAlerts

    def __post_init__(self) -> None:
        self._looked = self.services.clock.monotonic()
        self.seen = {name: _Seen(self._looked) for name in self.services.channels}

    def opened(self, channel: str) -> None:
        """Record a channel's first connection. Before this call, the watchdog does not reconnect the channel."""
        seen = self.seen[channel]
        seen.open, seen.heard = True, self.services.clock.monotonic()

    def silent(self, channel: str) -> float | None:
        """Return the seconds for which the platform has been silent, if they exceed `Manifest.silence`; otherwise None."""
        seen, longest = self.seen[channel], self.services.manifests[channel].silence
        silence = self.services.clock.monotonic() - seen.heard
        return silence if seen.open and longest is not None and silence > longest else None

    async def run(self) -> None:
        """Check the channels until cancelled."""
        try:
            while True:
                self.look()
                await self.services.clock.sleep(CHANNELS_EVERY)
        finally:
            await cancel_all(seen.healing for seen in self.seen.values() if seen.healing is not None)

    def look(self) -> None:
        now = self.services.clock.monotonic()
        missed, self._looked = now - self._looked - CHANNELS_EVERY, now
        for name, channel in self.services.channels.items():
            seen, health = self.seen[name], channel.health()
            if missed > CHANNELS_EVERY:
                # While the process was frozen or suspended, no message could arrive, so this time is not silence.
                seen.heard += missed
            if health.last_heard is None or health.last_heard != seen.sign:
                seen.sign, seen.heard = health.last_heard, now
            silence = self.silent(name)
            if (trouble := _trouble(health, silence)) is None:
                if seen.reported and seen.since is not None:
                    self.services.log.write("channel", f"{name} is well again", channel=name)
                    minutes = round((now - seen.since) / 60)
                    self.alerts.end(name, sentence("operators.channel_again", channel=name, count=minutes))
                seen.since, seen.reported, seen.heal_at = None, False, 0.0
                continue
            seen.since = now if seen.since is None else seen.since
            if silence is None and now - seen.since < PATIENCE:
                continue
            log = self.services.log
            if not seen.reported:
                seen.reported = True
                log.write("channel", f"{name} is in trouble: {trouble}", level="error", channel=name)
                self.alerts.begin(name, sentence("operators.channel", channel=name, cause=trouble))
            if seen.open and seen.healing is None and now >= seen.heal_at:
                seen.heal_at = now + HEAL_EVERY
                log.write("channel", f"{name} gets a new connection", level="warn", channel=name)
                seen.healing = asyncio.create_task(self._heal(name, seen), name=f"heal {name}")

    async def _heal(self, name: str, seen: _Seen) -> None:
        healing = asyncio.create_task(self.services.channels[name].heal())
        try:
            await asyncio.wait([healing], timeout=HEAL_SECONDS)
            cause = f"not done after {HEAL_SECONDS:g} s"
            if healing.done() and not healing.cancelled():
                error = healing.exception()
                cause = f"{type(error).__name__}: {error}" if error else ""
            if cause:
                words = f"{name} could not be healed: {cause}"
                self.services.log.write("channel", words, level="error", channel=name)
        finally:
            healing.cancel()
            seen.healing = None


def _trouble(health: Health, silence: float | None) -> Sentence | None:
    """Return a description of a channel's trouble for operators; None if the channel works."""
    why = f" ({health.detail})" if health.detail else ""
    if not health.connected:
        return sentence("operators.disconnected", why=why)
    if silence is not None:
        return sentence("operators.silent", seconds=round(silence), why=why)
    return sentence("operators.hindered", detail=health.detail) if health.detail else None


PROBE_SECONDS = 5.0
ASK_SECONDS = 30.0
AWAY_SECONDS = 60.0  # Operators are alerted if an MCP server is unavailable for longer than this many seconds
LOW_DISK = (0.02, 0.10)  # Shares of free disk space below which operators are warned, in ascending order
WELL_AGAIN = 1.2
"""Factor on a share in `LOW_DISK`. The alert ends when the free share exceeds this product; the gap prevents repeated alerts."""
KEEP_ARTIFACT_DAYS = 30
"""Artifacts are deleted after this many days. By then, no model's context refers to them."""
HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Periodic checks that alert operators, and clean-up jobs of a running process."""

    services: Services
    event_log: EventLog
    reserve: DiskReserve
    model: RetryingModel
    learned: LearnedFile
    servers: McpServers
    memory: RssMonitor
    summaries: Summaries
    alerts: OperatorAlerts

    def jobs(self) -> list[PeriodicJob]:
        return [
            PeriodicJob("look at the memory", LOOK_EVERY, self._check_memory),
            PeriodicJob("see whether the disk has room", PROBE_SECONDS, self._check_disk),
            PeriodicJob("compact quiet chats", LOOK_SECONDS, self.summaries.look),
            PeriodicJob("see whether the model is back", ASK_SECONDS, self._check_model),
            PeriodicJob("look after MCP servers", ASK_SECONDS, self._check_servers),
            PeriodicJob("keep what was learnt of models", 2 * ASK_SECONDS, self.learned.save),
            PeriodicJob(
                "sweep old logs", HOUR, functools.partial(asyncio.to_thread, self.services.log.sweep)
            ),
            PeriodicJob(
                "sweep old artifacts",
                6 * HOUR,
                functools.partial(self.services.artifacts.sweep, KEEP_ARTIFACT_DAYS),
            ),
        ]

    async def _check_memory(self) -> None:
        """Free memory if it is short. Alert operators if the process exceeds its memory limit."""
        memory = self.memory
        await memory.look()
        figures = {"used": f"{(memory.used or 0) / 2**20:.0f} MB", "limit": f"{memory.limit // 2**20} MB"}
        if memory.full:
            self.alerts.begin("memory", sentence("operators.memory", **figures))
        else:
            self.alerts.end("memory", sentence("operators.memory_again", **figures))

    async def _check_disk(self) -> None:
        await asyncio.to_thread(self.reserve.look)
        trouble = self.reserve.trouble
        self._tell("disk", "disk_full", "disk_again", trouble)
        if trouble:
            return  # operators have already been alerted that the disk is full
        self._tell("chat log", "chat_log", "chat_log_again", self.event_log.trouble)
        space = self.reserve.space
        if space is None:
            return
        figures = {
            "free": text.byte_count(space.free),
            "total": text.byte_count(space.total),
            "left": space.share,
        }
        for share in LOW_DISK:
            subject = f"disk {share:.0%}"
            if space.share < share:
                self.alerts.begin(subject, sentence("operators.disk_low", share=share, **figures))
                break
            if space.share >= share * WELL_AGAIN:
                self.alerts.end(subject, sentence("operators.disk_low_again", share=share, **figures))

    async def _check_model(self) -> None:
        before = self.model.trouble
        await self.model.poll()
        trouble = self.model.trouble
        # One failed request is no reason for an alert, so alert only if the model had failed before this poll too.
        if before and trouble and self.model.last:
            self._tell("model", "model_refused" if trouble.of_account else "model", "", trouble.cause)
        elif not trouble:
            self._tell("model", "", "model_again", "")

    async def _check_servers(self) -> None:
        for name, server in self.servers.servers.items():
            trouble = server.lasting_trouble(AWAY_SECONDS)
            self._tell(f"mcp {name}", "server", "server_again", trouble, name=name)

    def _tell(self, subject: str, key: str, again: str, trouble: str, **more: str) -> None:
        if trouble:
            self.alerts.begin(subject, sentence(f"operators.{key}", cause=trouble, **more))
        else:
            self.alerts.end(subject, sentence(f"operators.{again}", **more))
