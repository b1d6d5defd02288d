"""What is looked at and tidied while a gateway runs: by one process at a time, and told where it matters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelRequest
from bot.disk_reserve import PIECE, DiskReserve
from bot.history.retention import Retention
from bot.journal.sqlite import SqliteJournal
from bot.llm.wrapper import WatchedModel, reply_of
from bot.maintenance import (
    KEEP_ARTIFACT_DAYS,
    KEEP_FAILED_SECONDS,
    KEEP_REQUEST_SECONDS,
    KEEP_SECONDS,
    MaintenanceJobs,
)
from bot.rss_monitor import RssMonitor
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from bot.testing.model import ScriptedModel, reply, text
from bot.words import Sentence

HOUR = 3_600.0


class Told:
    """Keeps what operators would be told, with its spells."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.open: set[str] = set()

    def tell(self, subject: str, words: Sentence) -> None:
        self.told.append((subject, str(words)))

    def begin(self, subject: str, words: Sentence) -> bool:
        if subject in self.open:
            return False
        self.open.add(subject)
        self.told.append((subject, str(words)))
        return True

    def end(self, subject: str, words: Sentence) -> bool:
        if subject not in self.open:
            return False
        self.open.remove(subject)
        self.told.append((subject, str(words)))
        return True


class Logs:
    def __init__(self) -> None:
        self.sweeps = 0

    def sweep(self) -> int:
        self.sweeps += 1
        return 0


class Usage:
    def __init__(self) -> None:
        self.counts = 0
        self.trouble = False

    def catch_up(self) -> None:
        if self.trouble:
            raise errors.StorageError("no room")
        self.counts += 1


class Artifacts:
    def __init__(self) -> None:
        self.days: list[float] = []

    async def sweep(self, days: float) -> int:
        self.days.append(days)
        return 0


class Requests:
    def __init__(self) -> None:
        self.before: list[float] = []

    async def sweep(self, before: float) -> int:
        self.before.append(before)
        return 0


class Servers:
    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}

    def lasting(self, seconds: float) -> dict[str, str]:
        assert seconds > 0
        return self.troubles


class Pool:
    def __init__(self) -> None:
        self.done: list[str] = []

    def holds(self, chat_key: ChatKey) -> bool:
        return False

    async def flush(self) -> None:
        self.done.append("flush")

    async def tend(self) -> None:
        self.done.append("tend")

    def evict(self, idle_seconds: float) -> int:
        self.done.append(f"evict {idle_seconds:g}")
        return 0


class House:
    """One journal, and as many processes on it as a test asks for."""

    def __init__(self, root: Path) -> None:
        self.clock, self.log, self.told = FakeClock(), MemoryLog(), Told()
        self.journal = SqliteJournal(root / "journal.db", clock=self.clock, log=self.log)
        self.inner = ScriptedModel()
        self.model = WatchedModel(self.inner, clock=self.clock)
        self.logs, self.artifacts, self.pool = Logs(), Artifacts(), Pool()
        self.servers, self.requests, self.usage = Servers(), Requests(), Usage()
        self.reserve = DiskReserve(root / "reserve", self.log, most=PIECE)
        self.resumed = 0
        self.days: dict[str, int] = {}
        self.changes: list[str] = []
        self.home, self.disk = root, FaultyDisk(SystemDisk())

    def changed(self, name: str) -> None:
        self.changes.append(name)

    def resume(self) -> None:
        self.resumed += 1

    def process(self, holder: str) -> MaintenanceJobs:
        reports: Any = self.told
        fakes: dict[str, Any] = {
            "agent": self.pool,
            "reports": reports,
            "logs": self.logs,
            "usage": self.usage,
            "artifacts": self.artifacts,
            "requests": self.requests,
            "archive": self,
            "servers": self.servers,
            "turn_queue": self,
        }
        return MaintenanceJobs(
            holder=holder,
            journal=self.journal,
            model=self.model,
            memory=RssMonitor(1_024, [], reports=reports, clock=self.clock, log=self.log),
            retention=Retention(self.home, self.days, self.disk),
            reserve=self.reserve,
            clock=self.clock,
            log=self.log,
            **fakes,
        )

    async def do(self, chores: MaintenanceJobs, name: str) -> None:
        (chore,) = [chore for chore in chores.all() if chore.name == name]
        await chore.run()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.journal.close()


async def test_of_two_processes_one_sweeps_and_the_other_does_not(house: House) -> None:
    first, second = house.process("host:1:a"), house.process("host:2:b")
    for chores in (first, second, first, second):
        await house.do(chores, "sweep old logs")
        await house.clock.advance(HOUR / 2)
    assert house.logs.sweeps == 2


async def test_old_artifacts_are_swept_by_one_process(house: House) -> None:
    first, second = house.process("host:1:a"), house.process("host:2:b")
    await house.do(first, "sweep old artifacts")
    await house.do(second, "sweep old artifacts")
    assert house.artifacts.days == [KEEP_ARTIFACT_DAYS]


async def test_old_requests_are_swept_by_one_process(house: House) -> None:
    first, second = house.process("host:1:a"), house.process("host:2:b")
    await house.do(first, "sweep old requests")
    await house.do(second, "sweep old requests")
    assert house.requests.before == [house.clock.now() - KEEP_REQUEST_SECONDS]


async def test_what_a_dead_process_began_another_takes_up_when_its_time_is_over(house: House) -> None:
    await house.do(house.process("host:1:a"), "sweep old logs")
    await house.clock.advance(6 * HOUR)
    await house.do(house.process("host:1:b"), "sweep old logs")
    assert house.logs.sweeps == 2


async def test_the_journal_keeps_what_went_wrong_for_longer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[tuple[float, float | None]] = []

    async def sweep(before: float, *, failed: float | None = None) -> int:
        swept.append((before, failed))
        return 0

    monkeypatch.setattr(house.journal, "sweep", sweep)
    await house.do(house.process("host:1:a"), "sweep the journal")
    now = house.clock.now()
    assert swept == [(now - KEEP_SECONDS, now - KEEP_FAILED_SECONDS)]
    assert (KEEP_SECONDS, KEEP_FAILED_SECONDS) == (7 * 24 * HOUR, 30 * 24 * HOUR)


async def test_a_clock_that_is_set_forward_makes_nothing_old_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    chores, began = house.process("host:1:a"), house.clock.now()
    swept: list[float] = []

    async def sweep(before: float, *, failed: float | None = None) -> int:
        swept.append(before)
        return 0

    monkeypatch.setattr(house.journal, "sweep", sweep)
    await house.clock.advance(HOUR)
    house.clock.jump(30 * 24 * HOUR)
    await house.do(chores, "sweep the journal")
    assert swept == [began + HOUR - KEEP_SECONDS]


async def test_a_lease_that_cannot_be_had_for_a_broken_disk_is_a_line_and_no_failure(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> int:
        raise errors.StorageError("the disk is full")

    monkeypatch.setattr(house.journal, "lease", broken)
    await house.do(house.process("host:1:a"), "sweep old logs")
    assert house.logs.sweeps == 0
    assert house.log.at("warn")[-1].details["cause"] == "the disk is full"


async def test_a_journal_in_trouble_is_probed_and_both_ends_of_the_spell_are_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    chores = house.process("host:1:a")
    await house.do(chores, "see whether the journal writes")
    assert house.told.told == []
    trouble, probes = ["No space left on device"], 0

    async def probe() -> str:
        nonlocal probes
        probes += 1
        return trouble[0]

    monkeypatch.setattr(house.journal, "health", lambda: trouble[0])
    monkeypatch.setattr(house.journal, "probe", probe)
    for _ in range(3):
        await house.do(chores, "see whether the journal writes")
    assert probes == 3
    ((subject, words),) = house.told.told
    assert subject == "journal"
    assert "No space left on device" in words
    trouble[0] = ""
    for _ in range(2):
        await house.do(chores, "see whether the journal writes")
    assert [words for _, words in house.told.told[1:]] == [
        "✅ I can write my journal again, and take in messages as before."
    ]


async def test_a_disk_that_is_full_is_told_once_and_what_waited_goes_on_once_it_has_room(
    house: House,
) -> None:
    chores, look = house.process("host:1:a"), "see whether the disk has room"
    await house.do(chores, look)
    assert (house.told.told, house.resumed) == ([], 0)
    house.reserve.give()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(house.journal, "health", lambda: "No space left on device")
        patched.setattr(
            "bot.disk_reserve.os.statvfs",
            lambda _: SimpleNamespace(f_frsize=1, f_bfree=0, f_bavail=0, f_blocks=1 << 40),
        )
        for _ in range(3):
            await house.do(chores, look)
            await house.do(chores, "see whether the journal writes")
    assert [subject for subject, _ in house.told.told] == ["disk"]
    assert house.resumed == 0
    for _ in range(2):
        await house.do(chores, look)
    assert [words for _, words in house.told.told[1:]] == [
        "✅ The disk has room again. I take in messages as before."
    ]
    assert house.resumed == 1


async def test_operators_are_told_of_a_disk_with_little_room_at_ten_and_at_two_per_cent(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    chores, told = house.process("host:1:a"), house.told.told

    async def free(share: float) -> list[str]:
        """What operators are told where this part of a terabyte is free."""
        said = SimpleNamespace(f_frsize=1, f_bfree=int(share * 2**40), f_bavail=0, f_blocks=2**40)
        said.f_bavail = said.f_bfree
        monkeypatch.setattr("bot.disk_reserve.os.statvfs", lambda _: said)
        before = len(told)
        for _ in range(2):
            await house.do(chores, "see whether the disk has room")
        return [words for _, words in told[before:]]

    assert await free(0.11) == []
    (low,) = await free(0.09)
    assert low.startswith("⚠️ Less than 10% of the disk of .ship is free: 92 GB of 1.0 TB (9%).")
    assert await free(0.11) == [], "it comes and goes at the edge"
    (lower,) = await free(0.01)
    assert lower.startswith("⚠️ Less than 2% of the disk")
    assert await free(0.05) == ["✅ More than 2% of the disk is free again: 51 GB of 1.0 TB (5%)."]
    (well,) = await free(0.5)
    assert well.startswith("✅ More than 10% of the disk is free again")
    (at_once,) = await free(0.01)
    assert at_once.startswith("⚠️ Less than 2%"), "one notice, not two"


async def test_a_model_that_stays_away_is_asked_again_and_told_of_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure: errors.ModelError | None = errors.ModelUnreachable("no route to host")

    async def check() -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr(house.inner, "check", check)
    chores = house.process("host:1:a")
    await house.do(chores, "see whether the model is back")
    assert house.told.told == []  # nobody has asked it anything
    with pytest.raises(errors.ModelUnreachable):
        await house.model.check()
    for _ in range(3):
        await house.do(chores, "see whether the model is back")
    ((subject, words),) = house.told.told
    assert (subject, "no route to host" in words) == ("model", True)
    failure = None
    await house.do(chores, "see whether the model is back")
    assert house.told.told[1] == ("model", "✅ The language model answers again.")


async def test_an_account_without_money_is_told_of_once_and_so_is_that_it_is_answered_again(
    house: House,
) -> None:
    chores, request = house.process("host:1:a"), ModelRequest("m", 1, (), ())
    house.inner.answers.append(errors.SpendLimit("The provider answered 402"))
    with pytest.raises(errors.SpendLimit):
        await reply_of(house.model.stream(request))
    for _ in range(3):  # the check needs no money
        await house.do(chores, "see whether the model is back")
    ((subject, words),) = house.told.told
    assert (subject, "is there money" in words, "402" in words) == ("model", True, True)
    house.inner.answers.append(reply(text("Hello.")))
    await reply_of(house.model.stream(request))
    await house.do(chores, "see whether the model is back")
    assert house.told.told[1:] == [("model", "✅ The language model answers again.")]


async def test_a_server_that_stays_away_is_told_of_once_and_so_is_its_return(house: House) -> None:
    chores = house.process("host:1:a")
    for trouble in ("", "it ended", "it ended", "", ""):
        house.servers.troubles = {"files": trouble}
        await house.do(chores, "look after MCP servers")
    subjects = [subject for subject, _ in house.told.told]
    assert subjects == ["mcp files", "mcp files"]
    assert "files isn't running: it ended" in house.told.told[0][1]
    assert "is running again" in house.told.told[1][1]


async def test_idle_chats_are_written_before_they_are_put_away(house: House) -> None:
    await house.do(house.process("host:1:a"), "evict idle chats")
    assert house.pool.done == ["flush", "evict 1800"]


async def test_quiet_chats_are_looked_after(house: House) -> None:
    await house.do(house.process("host:1:a"), "compact quiet chats")
    assert house.pool.done == ["tend"]


async def test_usage_is_counted_also_before_a_log_is_removed_and_trouble_is_told_once(house: House) -> None:
    chores = house.process("host:1:a")
    await house.do(chores, "count usage")
    await house.do(chores, "sweep old logs")
    assert (house.usage.counts, house.logs.sweeps) == (2, 1)
    house.usage.trouble = True
    for _ in range(3):
        await house.do(chores, "count usage")
    assert [entry.message for entry in house.log.of("storage")] == ["usage is not counted now"]
    house.usage.trouble = False
    await house.do(chores, "count usage")
    house.usage.trouble = True
    await house.do(chores, "count usage")
    assert len(house.log.of("storage")) == 2


async def test_what_is_beyond_its_days_goes_soon_after_a_start_and_each_hour(house: House) -> None:
    (house.home / "chats").mkdir()
    line = {"ts": 1, "chatKey": "web:chat:1", "text": "old"}
    (house.home / "chats" / "web%3Achat%3A1.jsonl").write_text(json.dumps(line) + "\n")
    chores = house.process("a")
    await house.do(chores, "see whether something is beyond its days")
    assert house.log.of("retention") == []
    house.days = {"web:chat:1": 30}
    chores = house.process("a")
    for _ in range(2):
        await house.do(chores, "see whether something is beyond its days")
    (told,) = house.log.of("retention")
    assert (str(told.chat_key), told.level) == ("web:chat:1", "action")
    counts = {"lines": 1, "sessions": 0, "told": 0, "requests": 0, "files": 0}
    assert told.details == {"days": 30, **counts}
    assert house.changes == ["web%3Achat%3A1"]
    assert list((house.home / "chats").glob("*.jsonl")) == []
    (house.home / "chats" / "web%3Achat%3A1.jsonl").write_text(json.dumps(line) + "\n")
    house.disk.fail(Failure("remove"))
    await house.clock.advance(3_601)
    await house.do(chores, "see whether something is beyond its days")
    assert house.log.of("retention")[-1].level == "warn"
