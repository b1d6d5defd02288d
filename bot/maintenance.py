"""Periodic checks and clean-ups of a running gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot import errors
from bot.agent.pool import AgentPool
from bot.contracts.environment import Clock, Log
from bot.contracts.journal import Journal
from bot.core.artifacts import ArtifactStore
from bot.disk_reserve import DiskReserve
from bot.gateway.operators import OperatorAlerts
from bot.gateway.turn_queue import TurnQueue
from bot.history.retention import Retention
from bot.history.search.searched_archive import SearchedArchive
from bot.history.transcript.requests import RequestLog
from bot.llm.wrapper import WatchedModel
from bot.periodic_jobs import PeriodicJob
from bot.rss_monitor import LOOK_EVERY, RssMonitor
from bot.sizes import in_words
from bot.system import JumpSafeClock
from bot.telemetry import JsonlLog
from bot.tools.mcp.servers import McpServers
from bot.words import sentence

IDLE_SECONDS = 1_800.0
TEND_SECONDS = 10.0
"""Shorter than the time in which a quiet chat is worth compacting."""
PROBE_SECONDS = 5.0
ASK_SECONDS = 30.0
AWAY_SECONDS = 60.0
"""So long an MCP server may be away before operators hear of it."""
LOW_DISK = (0.02, 0.10)
"""The parts of the disk below which operators are told that little is left, the smallest first."""
WELL_AGAIN = 1.2
"""So many times as much has to be free before that is over, so that it does not come and go at the edge."""
KEEP_ARTIFACT_DAYS = 30
"""Long after what points at them has left the view."""
KEEP_REQUEST_SECONDS = 90 * 86_400.0
"""Of the turns that can be replayed."""
EXPIRE_SECONDS = 3_600.0
KEEP_SECONDS = 7 * 86_400.0
"""For what is finished in the journal."""
KEEP_FAILED_SECONDS = 30 * 86_400.0
"""For dead letters and what could not be delivered: operators look at it."""


class MaintenanceJobs:
    """The maintenance jobs of one process, which is `holder`. Clean-ups of shared data are done by one process at a
    time, the one with the lease in the journal.
    """

    def __init__(
        self,
        *,
        holder: str,
        agent: AgentPool,
        journal: Journal,
        model: WatchedModel,
        memory: RssMonitor,
        reports: OperatorAlerts,
        logs: JsonlLog,
        artifacts: ArtifactStore,
        requests: RequestLog,
        retention: Retention,
        archive: SearchedArchive,
        servers: McpServers,
        reserve: DiskReserve,
        turn_queue: TurnQueue,
        clock: Clock,
        log: Log,
    ) -> None:
        self._holder = holder
        self._agent = agent
        self._journal = journal
        self._model = model
        self._memory = memory
        self._reports = reports
        self._logs = logs
        self._artifacts = artifacts
        self._requests = requests
        self._retention = retention
        self._archive = archive
        self._expires_at = 0.0
        self._servers = servers
        self._reserve = reserve
        self._turn_queue = turn_queue
        self._steady = JumpSafeClock(clock)
        self._log = log

    def all(self) -> list[PeriodicJob]:
        return [
            PeriodicJob("look at the memory", LOOK_EVERY, self._memory.look),
            PeriodicJob("see whether the disk has room", PROBE_SECONDS, self.look_at_the_disk),
            PeriodicJob("see whether the journal writes", PROBE_SECONDS, self.probe),
            PeriodicJob("see whether the model is back", ASK_SECONDS, self.ask),
            PeriodicJob("look after MCP servers", ASK_SECONDS, self.look_after_servers),
            PeriodicJob("evict idle chats", 300, self.evict),
            PeriodicJob("compact quiet chats", TEND_SECONDS, self._agent.tend),
            self._shared("sweep the journal", 3_600, self.sweep_journal),
            self._shared("sweep old logs", 3_600, self.sweep_logs),
            self._shared("sweep old artifacts", 6 * 3_600, self.sweep_artifacts),
            self._shared("sweep old requests", 6 * 3_600, self.sweep_requests),
            PeriodicJob("see whether something is beyond its days", TEND_SECONDS, self.expire_hourly),
        ]

    async def look_at_the_disk(self) -> None:
        """Report a full disk, even without a write; resume waiting work once there is room."""
        if await asyncio.to_thread(self._reserve.look):
            self._turn_queue.resume()
        if trouble := self._reserve.trouble:
            self._reports.begin(
                "disk",
                sentence("operators.disk_full", cause=trouble),
            )
        else:
            self._reports.end("disk", sentence("operators.disk_again"))
            self._report_low_space()

    def _report_low_space(self) -> None:
        space = self._reserve.space
        if space is None:
            return
        figures = {"free": in_words(space.free), "total": in_words(space.total), "left": space.share}
        for share in LOW_DISK:
            subject = f"disk {share:.0%}"
            if space.share < share:
                self._reports.begin(subject, sentence("operators.disk_low", share=share, **figures))
                break
            if space.share >= share * WELL_AGAIN:
                self._reports.end(subject, sentence("operators.disk_low_again", share=share, **figures))

    async def probe(self) -> None:
        """Probe a journal in trouble, so that its recovery is seen without traffic."""
        if self._journal.health():
            await self._journal.probe()
        if self._reserve.trouble:
            return  # operators were told of that
        if trouble := self._journal.health():
            self._reports.begin(
                "journal",
                sentence("operators.journal", cause=trouble),
            )
        else:
            self._reports.end("journal", sentence("operators.journal_again"))

    async def ask(self) -> None:
        """Ask a model that was away, so that its return is seen without traffic."""
        before = self._model.trouble
        await self._model.look()
        trouble = self._model.trouble
        if before and trouble and self._model.alone:
            key = "operators.model_refused" if trouble.of_account else "operators.model"
            self._reports.begin("model", sentence(key, cause=trouble.cause))
        elif not trouble:
            self._reports.end("model", sentence("operators.model_again"))

    async def look_after_servers(self) -> None:
        """Report MCP servers that stay away longer than a restart takes."""
        for name, trouble in self._servers.lasting(AWAY_SECONDS).items():
            if trouble:
                self._reports.begin(
                    f"mcp {name}",
                    sentence("operators.server", name=name, cause=trouble),
                )
            else:
                self._reports.end(f"mcp {name}", sentence("operators.server_again", name=name))

    async def evict(self) -> None:
        await self._agent.flush()
        self._agent.evict(IDLE_SECONDS)

    async def sweep_journal(self) -> None:
        now = self._steady.now()
        await self._journal.sweep(now - KEEP_SECONDS, failed=now - KEEP_FAILED_SECONDS)

    async def sweep_logs(self) -> None:
        await asyncio.to_thread(self._logs.sweep)

    async def sweep_artifacts(self) -> None:
        await self._artifacts.sweep(KEEP_ARTIFACT_DAYS)

    async def sweep_requests(self) -> None:
        await self._requests.sweep(self._steady.now() - KEEP_REQUEST_SECONDS)

    async def expire_hourly(self) -> None:
        """Remove what is beyond its days soon after a start, then each hour."""
        if self._retention.kept_without_end or self._steady.now() < self._expires_at:
            return
        self._expires_at = self._steady.now() + EXPIRE_SECONDS
        await self._shared("remove what is beyond its days", EXPIRE_SECONDS, self.expire).run()

    async def expire(self) -> None:
        """Remove what is older than the days of its chat, and say what went."""
        try:
            gone = await asyncio.to_thread(
                lambda: list(self._retention.expire(self._steady.now(), self._agent.holds))
            )
        except OSError as error:
            self._log.write(
                "retention", "what is too old cannot be removed now", level="warn", cause=str(error)
            )
            return
        for one in gone:
            self._archive.changed(one.name)
            self._log.write(
                "retention",
                f"what is older than {one.days} days is gone",
                level="action",
                chat_key=one.chat_key,
                days=one.days,
                lines=one.lines,
                sessions=one.sessions,
                told=one.told,
                requests=one.requests,
                files=one.files,
            )

    def _shared(self, name: str, seconds: float, run: Callable[[], Awaitable[None]]) -> PeriodicJob:
        """A chore that only one process does in each of its intervals."""

        async def leased() -> None:
            try:
                # Not quite as long as the interval, so that who did it last may do it again.
                number = await self._journal.lease(f"chore: {name}", self._holder, seconds * 0.9)
            except errors.StorageError as error:
                self._log.write("storage", f"not done now: {name}", level="warn", cause=str(error))
                return
            if number is None:
                self._log.write("storage", f"another process does this: {name}", level="debug")
                return
            await run()

        return PeriodicJob(name, seconds, leased)
