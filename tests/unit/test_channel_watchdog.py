"""Channels that go deaf are found, healed and reported, once for each spell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bot.gateway import operators, watchdog
from bot.gateway.operators import EVERY, OperatorAlerts
from bot.gateway.watchdog import LOOK_EVERY, PATIENCE, ChannelWatchdog
from tests.unit.gateway.conftest import Bench, FakeChannel, manifest

from bot import errors
from bot.contracts.channel import Health
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import Locale
from bot.contracts.outbound import Outbound, Sent
from bot.core.access import Memberships
from bot.core.locales import Locales
from bot.core.operator_chats import OperatorChats
from bot.journal.sqlite import SqliteJournal
from bot.words import Sentence, sentence

SILENCE = 90.0


def words(said: str) -> Sentence:
    return sentence("operators.hindered", detail=said)


class Frail(FakeChannel):
    """A channel whose state a test sets; `cure` is what a healing makes of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.state = Health(connected=True, last_heard=1.0)
        self.heals: list[float] = []
        self.cure: Health | Exception | asyncio.Event | None = None
        self.bench: Bench

    def health(self) -> Health:
        return self.state

    async def heal(self) -> None:
        self.heals.append(self.bench.clock.monotonic())
        if isinstance(self.cure, Exception):
            raise self.cure
        if isinstance(self.cure, asyncio.Event):
            await self.cure.wait()
        elif self.cure is not None:
            self.state = self.cure

    def break_off(self, detail: str = "断线了 🔌") -> None:
        self.state = Health(connected=False, last_heard=self.state.last_heard, detail=detail)

    def hear(self) -> None:
        """A new sign of life."""
        self.state = Health(connected=True, last_heard=(self.state.last_heard or 0.0) + 1)


class Ward:
    """A watchdog over two channels, with an operator on each and one who has no direct chat."""

    def __init__(self, root: Path) -> None:
        self.bench = Bench(root)
        self.tele, self.chat = Frail("tele"), Frail("chat")
        self.tele.bench = self.chat.bench = self.bench
        channels = {"tele": self.tele, "chat": self.chat, "local": FakeChannel("local")}
        manifests = {
            "tele": manifest("tele", silence=SILENCE, direct=lambda user: {"chat": user}),
            "chat": manifest("chat", direct=lambda user: {"chat": f"D{user}"}),
            "local": manifest("local", access="local"),
            "off": manifest("off", direct=lambda user: {"chat": user}),
        }
        self.bench.channels.clear()
        self.bench.channels.update(channels)
        self.bench.manifests.update(manifests)
        self.operators = {
            UserRef("tele", "1"),
            UserRef("chat", "2"),
            UserRef("local", "3"),
            UserRef("off", "4"),
        }
        self.locales = Locales(self.bench.journal, self.bench.tasks.start, self.bench.log)
        self.reports = self.new_reports()
        self.watch = ChannelWatchdog(
            channels, manifests, self.reports, clock=self.bench.clock, log=self.bench.log
        )
        for name in channels:
            self.watch.opened(name)
        self.running = asyncio.create_task(self.watch.run())

    def new_reports(self) -> OperatorAlerts:
        return OperatorAlerts(
            OperatorChats(self.operators, self.bench.channels, self.bench.manifests),
            memberships=Memberships({}, self.bench.log),
            raised=asyncio.Queue(),
            journal=self.bench.journal,
            delivery=self.bench.delivery,
            locales=self.locales,
            clock=self.bench.clock,
            ids=self.bench.ids,
            log=self.bench.log,
        )

    async def wait(self, seconds: float) -> None:
        """Let time pass, and what is told then arrive."""
        await self.bench.clock.advance(seconds)
        while self.reports.tasks:
            await asyncio.wait(self.reports.tasks)

    async def live(self, seconds: float) -> None:
        """Time in which both platforms are heard."""
        for _ in range(int(seconds / LOOK_EVERY)):
            self.tele.hear()
            self.chat.hear()
            await self.wait(LOOK_EVERY)

    @property
    def told(self) -> list[str]:
        assert not [one for one in (*self.tele.sent, *self.chat.sent) if one.kind != "notice"]
        return [message.text for message in self.chat.sent]

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        await self.reports.close()
        await self.bench.close()


@pytest.fixture
async def ward(tmp_path: Path) -> AsyncIterator[Ward]:
    made = Ward(tmp_path)
    yield made
    await made.close()


async def test_a_short_break_is_nobodys_business(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(PATIENCE - LOOK_EVERY)
    ward.tele.hear()
    await ward.live(60)
    assert (ward.tele.heals, ward.told, ward.bench.log.at("error")) == ([], [], [])


async def test_a_platform_that_gives_no_sign_of_life_while_nothing_happens_is_not_silent(
    ward: Ward,
) -> None:
    ward.tele.state = Health(connected=True, last_heard=None)
    await ward.wait(10 * SILENCE)
    assert (ward.tele.heals, ward.told) == ([], [])


async def test_a_channel_that_stays_away_is_healed_with_growing_pauses_and_told_once(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(1_000)
    pauses = [round(later - one) for one, later in zip(ward.tele.heals, ward.tele.heals[1:], strict=False)]
    assert PATIENCE <= ward.tele.heals[0] <= PATIENCE + LOOK_EVERY
    assert pauses == [30, 60, 120, 240, 300]
    (told,) = ward.told
    assert "tele doesn't work: it is not connected (断线了 🔌)" in told
    assert ward.chat.sent[0].chat_key == ChatKey.parse("chat:chat:D2")
    assert ward.tele.texts == ward.told  # a channel that cannot hear may still be able to send
    (line,) = ward.bench.log.at("error")
    assert (line.kind, line.details["channel"]) == ("channel", "tele")


async def test_the_end_of_a_spell_is_told_once_to_those_who_know_of_it(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(119)
    ward.tele.hear()
    await ward.live(60)
    assert ward.told[1:] == ["✅ tele is connected again, after 2 minutes."]
    assert [e.message for e in ward.bench.log.of("channel")][-1] == "tele is well again"


async def test_a_second_spell_within_the_hour_is_logged_and_not_told(ward: Ward) -> None:
    for _ in range(2):
        ward.tele.break_off()
        await ward.wait(60)
        ward.tele.hear()
        await ward.live(60)
    assert len(ward.bench.log.at("error")) == 2
    assert len(ward.told) == 2  # of the first spell, its beginning and its end
    await ward.live(EVERY)
    ward.tele.break_off()
    await ward.wait(60)
    assert len(ward.told) == 3


async def test_a_restart_does_not_tell_the_same_again(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(60)
    ward.reports = ward.new_reports()
    ward.reports.begin("tele", words("again"))
    await ward.wait(0)
    assert len(ward.told) == 1


async def test_a_deaf_connection_is_found_by_its_silence_and_healed_at_once(ward: Ward) -> None:
    ward.tele.cure = Health(connected=True, last_heard=99.0)
    await ward.wait(SILENCE)
    assert ward.tele.heals == []
    await ward.wait(LOOK_EVERY)
    assert len(ward.tele.heals) == 1
    assert "nothing has been heard from it for 9" in ward.told[0]
    assert ward.chat.heals == []  # a platform without a limit may be silent for as long as it likes
    await ward.wait(LOOK_EVERY)
    assert "connected again" in ward.told[1]


async def test_a_clock_that_is_set_makes_nobody_deaf(ward: Ward) -> None:
    await ward.live(9)
    ward.bench.clock.jump(30 * 86_400)
    await ward.live(9)
    ward.bench.clock.jump(-60 * 86_400)
    await ward.live(9)
    assert (ward.tele.heals, ward.told) == ([], [])


async def test_a_contested_token_is_trouble_though_the_polls_still_get_through_now_and_then(
    ward: Ward,
) -> None:
    for number in range(20):
        detail = "another process polls with this token"
        ward.tele.state = Health(connected=bool(number % 2), last_heard=float(number), detail=detail)
        await ward.wait(LOOK_EVERY)
    (words,) = ward.told
    assert "another process polls with this token" in words


async def test_a_channel_that_was_never_connected_is_reported_and_left_to_its_start(ward: Ward) -> None:
    ward.watch.seen["tele"].open = False
    ward.tele.break_off("not started")
    await ward.wait(SILENCE + 60)
    assert ward.tele.heals == []
    assert "not connected (not started)" in ward.told[0]


async def test_a_healing_that_fails_or_hangs_is_logged_and_the_watch_goes_on(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.tele.cure = ValueError("nobody foresaw this")
    ward.tele.break_off()
    await ward.wait(PATIENCE + LOOK_EVERY)
    assert "tele could not be healed: ValueError" in ward.bench.log.at("error")[-1].message
    monkeypatch.setattr(watchdog, "HEAL_SECONDS", 0.001)
    ward.tele.cure = asyncio.Event()
    healing = len(ward.tele.heals)
    await ward.wait(60)
    if (task := ward.watch.seen["tele"].healing) is not None:
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert len(ward.tele.heals) > healing
    assert "TimeoutError" in ward.bench.log.at("error")[-1].message


async def test_while_one_healing_runs_no_other_begins(ward: Ward) -> None:
    ward.tele.cure = asyncio.Event()
    ward.tele.break_off()
    await ward.wait(500)
    assert len(ward.tele.heals) == 1


async def test_an_operator_without_a_way_is_logged_and_the_others_hear_of_it(ward: Ward) -> None:
    ward.tele.failures = [errors.TargetGone("blocked")]
    assert await ward.reports.tell("subject", words("words"))
    assert ward.told == ["words"]
    untold = [
        line for line in ward.bench.log.of("delivery") if line.message == "an operator could not be told"
    ]
    assert [str(line.chat_key) for line in untold] == ["tele:chat:1"]


async def test_each_operator_is_told_in_their_language(ward: Ward) -> None:
    await ward.bench.journal.put_locale(UserRef("chat", "2"), Locale(language="zh", language_chosen=True))
    await ward.locales.load()
    assert await ward.reports.tell("subject", sentence("operators.model_again"))
    assert ward.told == ["✅ 语言模型又能回答了。"]
    assert ward.tele.texts == ["✅ The language model answers again."]


async def test_who_becomes_an_operator_while_it_runs_is_told_too(ward: Ward) -> None:
    ward.operators.remove(UserRef("chat", "2"))
    ward.operators.add(UserRef("chat", "9"))
    assert await ward.reports.tell("subject", words("words"))
    assert [one.chat_key.chat_id for one in ward.chat.sent] == ["D9"]


async def test_a_channel_that_hangs_is_given_up(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(message: Outbound) -> Sent:
        await asyncio.Event().wait()
        raise AssertionError(message)

    monkeypatch.setattr(operators, "TELL_SECONDS", 0.01)
    monkeypatch.setattr("bot.gateway.outbox.batch_sender.GRACE_SECONDS", 0.01)
    for channel in (ward.tele, ward.chat):
        monkeypatch.setattr(channel, "send", hangs)
    assert not await ward.reports.tell("subject", words("words"))
    untold = [
        line for line in ward.bench.log.of("delivery") if line.message == "an operator could not be told"
    ]
    assert {str(line.chat_key) for line in untold} == {"tele:chat:1", "chat:chat:D2"}


async def test_reports_need_no_journal(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: SqliteJournal, key: str, now: float, every: float) -> bool:
        raise errors.StorageError("the disk is full")

    monkeypatch.setattr(SqliteJournal, "once", broken)
    ward.running.cancel()
    assert ward.reports.begin("journal", words("the journal cannot be written"))
    assert not ward.reports.begin("journal", words("the journal cannot be written"))
    await ward.wait(0)
    assert ward.reports.end("journal", words("it can again"))
    assert not ward.reports.end("journal", words("it can again"))
    await ward.wait(0)
    assert not await ward.reports.tell("journal", words("once more"))
    await ward.wait(EVERY)
    assert await ward.reports.tell("journal", words("an hour later"))
    assert ward.told == ["the journal cannot be written", "it can again", "an hour later"]


async def test_a_journal_that_says_nothing_holds_no_report_up(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(self: SqliteJournal, key: str, now: float, every: float) -> bool:
        await asyncio.Event().wait()
        return False

    monkeypatch.setattr(SqliteJournal, "once", hangs)
    monkeypatch.setattr(operators, "ASK_SECONDS", 0.01)
    assert await ward.reports.tell("journal", words("words"))


async def test_a_flood_of_reports_is_cut_and_a_report_that_breaks_is_logged(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [ward.reports.tell(f"subject {number}", words("words")) for number in range(operators.MOST + 50)]
    assert sum([await task for task in tasks]) == operators.MOST

    async def broken(*_: object, **__: object) -> list[Sent]:
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(ward.bench.delivery, "send", broken)
    task = ward.reports.tell("a subject", words("words"))
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert "a report to operators failed: ValueError" in ward.bench.log.at("error")[-1].message


async def test_time_in_which_the_process_stood_still_is_no_silence_of_a_platform(ward: Ward) -> None:
    await ward.live(30)
    ward.running.cancel()
    await asyncio.wait([ward.running])
    await ward.bench.clock.advance(3600)
    ward.watch.look()
    assert ward.watch.silent("tele") is None
    ward.running = asyncio.create_task(ward.watch.run())
    for _ in range(int(SILENCE / LOOK_EVERY) - 1):
        await ward.wait(LOOK_EVERY)
    assert ward.told == []
    for _ in range(4):
        await ward.wait(LOOK_EVERY)
    assert ward.told[0].startswith("⚠️ tele doesn't work: nothing has been heard from it")
