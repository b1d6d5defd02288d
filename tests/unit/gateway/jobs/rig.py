"""Jobs on a journal that outlives the process, with a door that only writes down and a clock that is moved."""

from __future__ import annotations

from typing import Any, cast

from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.jobs import JobRequest
from bot.contracts.journal import ANSWERED, InboxEnd, Journal
from bot.contracts.outbound import Address
from bot.contracts.provenance import Provenance
from bot.core.access import Access, Memberships
from bot.core.locales import Locales
from bot.features.jobs.job import JobLimits
from bot.features.jobs.service import JobService
from bot.gateway.background import BackgroundTasks
from bot.gateway.delivery import Delivery
from bot.gateway.jobs.due import DueJobs
from bot.gateway.jobs.store import JobStore
from bot.system import UlidSource
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import manifest

PLACE: dict[str, Any] = {
    "channel": "tele",
    "chat_id": "77",
    "chat_key": "tele:chat:77",
    "chat_type": "direct",
    "user_id": "77",
    "target": {"chat": "77", "reply_to": "3"},
}


class Lists:
    """Whom an operator has let in or shut out meanwhile."""

    def __init__(self) -> None:
        self.out: set[str] = set()

    def allowed(self, channel: str) -> frozenset[str]:
        return frozenset({"77"} if channel == "tele" else ())

    def blocked(self, channel: str) -> frozenset[str]:
        return frozenset(self.out if channel == "tele" else ())


class Told:
    """What the chats are told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def send(self, to: Address, words: str, **_: Any) -> None:
        assert "reply_to" not in to.target
        self.words.append(words)

    def gone(self, _to: Address) -> bool:
        return False

    def frozen(self, _to: Address) -> float:
        return 0.0


class Rig:
    """One process after the other over one journal."""

    def __init__(self, journal: Journal, clock: FakeClock, **limits: Any) -> None:
        self.journal = journal
        self.clock = clock
        self.limits = JobLimits(**limits)
        self.log = MemoryLog()
        self.lists = Lists()
        self.told = Told()
        self.channels: dict[str, Any] = {}
        self.ready = True
        self.end: InboxEnd | None = ANSWERED
        """What each turn comes to at once; None where it goes on."""
        self.ids = UlidSource(clock)
        self.taken: list[Inbound] = []
        self.restart()

    def restart(self) -> None:
        """Nothing is left but the journal."""
        access = Access(
            {"tele": manifest("tele")},
            {},
            frozenset({UserRef("tele", "1")}),
            self.lists,
            Memberships({}, self.log),
        )
        store = JobStore(self.journal, self.log)
        self.locales = Locales(self.journal, BackgroundTasks(self.log).start, self.log)
        self.desk = JobService(
            store,
            access=access,
            channels=self.channels,
            limits=self.limits,
            locales=self.locales,
            timezone="Etc/UTC",
            redact=str,
            clock=self.clock,
            ids=self.ids,
            log=self.log,
        )
        self.due = DueJobs(
            store,
            access=access,
            intake=self,
            open_channels=self,
            journal=self.journal,
            channels=self.channels,
            delivery=cast("Delivery", self.told),
            locales=self.locales,
            limits=self.limits,
            clock=self.clock,
            ids=self.ids,
            log=self.log,
        )

    def opened(self, _channel: str) -> bool:
        return self.ready

    async def go_on(self) -> None:
        """Another process, which ends the turns that the one before has left."""
        self.restart()
        for inbound in await still_open(self.journal):
            if inbound.keys not in [one.keys for one in self.taken]:
                self.taken.append(inbound)
            await self.journal.finish(inbound.request_id, ANSWERED)

    async def accept(self, inbound: Inbound) -> bool:
        """The door: each key is taken in once."""
        inbound = inbound.model_copy(update={"request_id": self.ids.ulid()})
        fresh = await self.journal.receive(inbound)
        if fresh:
            self.taken.append(inbound)
            if self.end is not None:
                await self.journal.finish(inbound.request_id, self.end)
        return fresh

    def inbound(self, **more: Any) -> Inbound:
        return Inbound.model_validate(PLACE | {"keys": ("k",), "ts": 1, "request_id": "R1"} | more)

    async def plan(self, when: str, prompt: str = "tell me 你好", **more: Any) -> str:
        """Make a job; its name."""
        timezone, words = more.pop("timezone", ""), more.pop("origin", Provenance(frozenset({"77"})))
        said = await self.desk.create(JobRequest(self.inbound(**more), prompt, when, timezone, words))
        self.said = said
        return said.split()[3]

    @property
    def times(self) -> list[float]:
        """The due times that have had a turn, in their order."""
        return [one.due.at for one in self.taken if one.due is not None]

    async def passes(self, seconds: float, step: float = 60.0) -> None:
        """Let time go by, and look every so often."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.jump(min(step, end - self.clock.now()))
            await self.due.look()
