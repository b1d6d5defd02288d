"""The watchdog finds, reconnects and reports silent channels, once per outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from bot.contracts.channel import Health
from bot.core import operators
from bot.core.operators import CHANNELS_EVERY, PATIENCE, ChannelWatchdog
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.words import Sentence

SILENCE = 90.0


class Frail:
    """A channel whose health a test sets. `cure` is the health after a reconnect."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.state = Health(connected=True, last_heard=1.0)
        self.heals: list[float] = []
        self.cure: Health | Exception | asyncio.Event | None = None

    def health(self) -> Health:
        return self.state

    async def heal(self) -> None:
        self.heals.append(self.clock.monotonic())
        if isinstance(self.cure, Exception):
            raise self.cure
        if isinstance(self.cure, asyncio.Event):
            await self.cure.wait()
        elif self.cure is not None:
            self.state = self.cure

    def break_off(self, detail: str = "断线了 🔌") -> None:
        self.state = Health(connected=False, last_heard=self.state.last_heard, detail=detail)

    def hear(self) -> None:
        """Record new activity of the channel."""
        self.state = Health(connected=True, last_heard=(self.state.last_heard or 0.0) + 1)


class Told:
    """Alerts to operators at the beginning and the end of each outage."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def begin(self, subject: str, words: Sentence) -> bool:
        del subject
        self.words.append(str(words))
        return True

    def end(self, subject: str, words: Sentence) -> bool:
        return self.begin(subject, words)


class Ward:
    """A watchdog of two channels. Only one channel must show activity."""

    def __init__(self) -> None:
        self.clock, self.log, reports = FakeClock(), MemoryLog(), Told()
        self.told = reports.words
        self.tele, self.chat = Frail(self.clock), Frail(self.clock)
        channels: Any = {"tele": self.tele, "chat": self.chat}
        manifests: Any = {"tele": SimpleNamespace(silence=SILENCE), "chat": SimpleNamespace(silence=None)}
        services: Any = SimpleNamespace(
            channels=channels, manifests=manifests, clock=self.clock, log=self.log
        )
        alerts: Any = reports
        self.watch = ChannelWatchdog(services, alerts)
        for name in channels:
            self.watch.opened(name)
        self.running = asyncio.create_task(self.watch.run())

    async def wait(self, seconds: float) -> None:
        """Advance the clock by these seconds."""
        await self.clock.advance(seconds)

    async def live(self, seconds: float) -> None:
        """Advance the clock while both platforms send events."""
        for _ in range(int(seconds / CHANNELS_EVERY)):
            self.tele.hear()
            self.chat.hear()
            await self.wait(CHANNELS_EVERY)

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])


@pytest.fixture
async def ward() -> AsyncIterator[Ward]:
    made = Ward()
    yield made
    await made.close()


async def test_a_short_break_is_nobodys_business(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(PATIENCE - CHANNELS_EVERY)
    ward.tele.hear()
    await ward.live(60)
    assert (ward.tele.heals, ward.told, ward.log.at("error")) == ([], [], [])


async def test_a_platform_that_gives_no_sign_of_life_while_nothing_happens_is_not_silent(
    ward: Ward,
) -> None:
    ward.tele.state = Health(connected=True, last_heard=None)
    await ward.wait(10 * SILENCE)
    assert (ward.tele.heals, ward.told) == ([], [])


async def test_a_channel_that_stays_away_is_healed_once_a_minute_and_told_once(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(200)
    pauses = [round(later - one) for one, later in zip(ward.tele.heals, ward.tele.heals[1:], strict=False)]
    assert PATIENCE <= ward.tele.heals[0] <= PATIENCE + CHANNELS_EVERY
    assert pauses == [60, 60]
    (told,) = ward.told
    assert "tele doesn't work: it is not connected (断线了 🔌)" in told
    (line,) = ward.log.at("error")
    assert (line.kind, line.details["channel"]) == ("channel", "tele")


async def test_the_end_of_a_spell_is_told_once_to_those_who_know_of_it(ward: Ward) -> None:
    ward.tele.break_off()
    await ward.wait(119)
    ward.tele.hear()
    await ward.live(60)
    assert ward.told[1:] == ["✅ tele is connected again, after 2 minutes."]
    assert [e.message for e in ward.log.of("channel")][-1] == "tele is well again"


async def test_a_deaf_connection_is_found_by_its_silence_and_healed_at_once(ward: Ward) -> None:
    ward.tele.cure = Health(connected=True, last_heard=99.0)
    await ward.wait(SILENCE)
    assert ward.tele.heals == []
    await ward.wait(CHANNELS_EVERY)
    assert len(ward.tele.heals) == 1
    assert "nothing has been heard from it for 9" in ward.told[0]
    assert ward.chat.heals == []  # a platform without a max silence may be silent for any time
    await ward.wait(CHANNELS_EVERY)
    assert "connected again" in ward.told[1]


async def test_a_clock_that_is_set_makes_nobody_deaf(ward: Ward) -> None:
    await ward.live(9)
    ward.clock.jump(30 * 86_400)
    await ward.live(9)
    ward.clock.jump(-60 * 86_400)
    await ward.live(9)
    assert (ward.tele.heals, ward.told) == ([], [])


async def test_a_contested_token_is_trouble_though_the_polls_still_get_through_now_and_then(
    ward: Ward,
) -> None:
    for number in range(20):
        detail = "another process polls with this token"
        ward.tele.state = Health(connected=bool(number % 2), last_heard=float(number), detail=detail)
        await ward.wait(CHANNELS_EVERY)
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
    await ward.wait(PATIENCE + CHANNELS_EVERY)
    assert "tele could not be healed: ValueError" in ward.log.at("error")[-1].message
    monkeypatch.setattr(operators, "HEAL_SECONDS", 0.001)
    ward.tele.cure = asyncio.Event()
    healing = len(ward.tele.heals)
    await ward.wait(60)
    if (task := ward.watch.seen["tele"].healing) is not None:
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert len(ward.tele.heals) > healing
    assert "could not be healed: not done after" in ward.log.at("error")[-1].message


async def test_while_one_healing_runs_no_other_begins(ward: Ward) -> None:
    ward.tele.cure = asyncio.Event()
    ward.tele.break_off()
    await ward.wait(500)
    assert len(ward.tele.heals) == 1


async def test_time_in_which_the_process_stood_still_is_no_silence_of_a_platform(ward: Ward) -> None:
    await ward.live(30)
    ward.running.cancel()
    await asyncio.wait([ward.running])
    await ward.clock.advance(3600)
    ward.watch.look()
    assert ward.watch.silent("tele") is None
    ward.running = asyncio.create_task(ward.watch.run())
    for _ in range(int(SILENCE / CHANNELS_EVERY) - 1):
        await ward.wait(CHANNELS_EVERY)
    assert ward.told == []
    for _ in range(4):
        await ward.wait(CHANNELS_EVERY)
    assert ward.told[0].startswith("⚠️ tele doesn't work: nothing has been heard from it")
