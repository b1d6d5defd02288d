"""Rate limits in virtual time: the sends are in order, never more than allowed, and none happens during a freeze."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.channel import Pace
from bot.contracts.identity import ChatKey
from bot.core import outbox as pace_module
from bot.core.outbox import LONGEST_WAIT, SHORTEST_WAIT, UNSAID, RateLimiter, patience
from bot.core.outgoing import Address
from bot.testing.clock import FakeClock
from tests.shares import examples

CHAT, ALL = Pace(1, 1.0), Pace(1_000_000, 0.000_001)


def limiter(clock: FakeClock, one: Pace = CHAT, total: Pace = ALL) -> RateLimiter:
    manifest: Any = SimpleNamespace(pace={"direct": one}, total=total, edits=None)
    return RateLimiter({"bot": manifest}, clock, limits=True)


def chat(name: str) -> Address:
    return Address("bot", name, ChatKey("bot", name), "direct", {}, "r")


def throttled(seconds: float, *, everywhere: bool = False) -> errors.DeliveryThrottled:
    return errors.DeliveryThrottled("", retry_after=seconds, everywhere=everywhere)


async def calm() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (5.0, 5.0),
        (0.001, SHORTEST_WAIT),
        (0.0, UNSAID),
        (-3.0, UNSAID),
        (math.nan, UNSAID),
        (math.inf, LONGEST_WAIT),
        (-math.inf, UNSAID),
        (1e300, LONGEST_WAIT),
    ],
)
def test_what_a_platform_asks_for_becomes_seconds_that_can_be_waited(asked: float, waited: float) -> None:
    assert patience(asked) == waited


async def test_a_chat_frozen_while_it_queued_for_the_whole_budget_lets_the_others_pass() -> None:
    clock = FakeClock()
    limits = limiter(clock, total=Pace(1, 5.0))
    await limits.slot(chat("x"))
    frozen = asyncio.create_task(limits.slot(chat("a")))
    other = asyncio.create_task(limits.slot(chat("b")))
    await calm()
    limits.freeze(chat("a"), throttled(60))
    await clock.advance(6)
    assert other.done()
    assert not frozen.done()
    await clock.advance(54)
    assert frozen.done()


async def test_a_freeze_longer_than_can_be_waited_is_told_and_takes_nothing() -> None:
    clock = FakeClock()
    limits = limiter(clock)
    limits.freeze(chat("a"), throttled(3600))
    assert await limits.slot(chat("a")) == 3600
    await clock.advance(3600)
    assert await limits.slot(chat("a")) == 0


async def test_a_sign_leaves_a_slot_to_the_message_that_follows_and_to_those_that_wait() -> None:
    clock = FakeClock()
    limits, three = limiter(clock, Pace(3, 1.0)), chat("a")
    assert limits.spare(three)
    assert limits.spare(three)
    assert not limits.spare(three)
    assert limits.spare(three, reserve=0)
    waiting = asyncio.create_task(limits.slot(three))
    await calm()
    assert not limits.spare(three, reserve=0)
    await clock.advance(1)
    assert await waiting == 0


async def test_chats_share_the_whole_budget_in_the_order_they_came() -> None:
    clock = FakeClock()
    limits = limiter(clock, Pace(9, 1.0), Pace(2, 1.0))
    order: list[str] = []

    async def one(name: str) -> None:
        await limits.slot(chat(name))
        order.append(name)

    tasks = [asyncio.create_task(one(name)) for name in "abcdef"]
    await calm()
    assert order == ["a", "b"]
    await clock.advance(4)
    assert order == list("abcdef")
    await asyncio.gather(*tasks)


async def test_the_table_is_bounded_and_forgets_no_freeze_and_no_debt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace_module, "MOST_BUDGETS", 50)
    clock = FakeClock()
    limits = limiter(clock, Pace(2, 1.0))
    limits.freeze(chat("frozen"), throttled(5_000))
    for number in range(2_000):
        await limits.slot(chat(str(number)))
        await clock.advance(0.5)
    assert len(limits.buckets) <= 60
    assert await limits.slot(chat("frozen")) == 4_000
    assert not limits.spare(chat("1999")), "what was spent just now is not forgotten"


class Street:
    """Three chats of one channel, and the times of their sends."""

    def __init__(self, one: Pace, total: Pace) -> None:
        self.paces = dict.fromkeys("abc", one) | {"bot": total}
        self.clock = FakeClock()
        self.limits = limiter(self.clock, one, total)
        self.out: list[tuple[str, float]] = []
        self.asked: dict[str, list[int]] = {name: [] for name in "abc"}
        self.served: dict[str, list[int]] = {name: [] for name in "abc"}
        self.freezes: list[tuple[str, float, float]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def send(self, name: str, number: int) -> None:
        assert await self.limits.slot(chat(name)) == 0
        self.out.append((name, self.clock.monotonic()))
        self.served[name].append(number)

    async def step(self, number: int, what: str, name: str, seconds: float) -> None:
        if what == "send":
            self.asked[name].append(number)
            self.tasks.append(asyncio.create_task(self.send(name, number)))
            await calm()
        elif what == "sign" and self.limits.spare(chat(name)):
            self.out.append((name, self.clock.monotonic()))
        elif what.startswith("freeze"):
            everywhere = what == "freeze all"
            self.limits.freeze(chat(name), throttled(seconds, everywhere=everywhere))
            frozen = "bot" if everywhere else name
            self.freezes.append((frozen, self.clock.monotonic(), patience(seconds)))
        elif what == "give up" and self.tasks:
            self.tasks.pop(0).cancel()
        await self.clock.advance(seconds)

    def times(self, name: str) -> list[float]:
        return sorted(at for one, at in self.out if name in {one, "bot"})

    def check(self) -> None:
        for name, pace in self.paces.items():
            times = self.times(name)
            for first, begin in enumerate(times):
                for count, end in enumerate(times[first:], 1):
                    assert count <= pace.burst + (end - begin + 1e-4) / pace.every
        for name, asked in self.asked.items():
            assert self.served[name] == [number for number in asked if number in self.served[name]]
        for name, begin, seconds in self.freezes:
            assert not [at for at in self.times(name) if begin < at < begin + seconds - 1e-4]


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(
    one=st.builds(Pace, st.integers(1, 4), st.sampled_from([0.3, 1.0, 3.0])),
    total=st.builds(Pace, st.integers(1, 5), st.sampled_from([0.1, 0.5, 1.0])),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "sign", "freeze", "freeze all", "give up"]),
            st.sampled_from("abc"),
            st.floats(0, 4),
        ),
        max_size=40,
    ),
)
def test_over_any_window_no_more_goes_out_than_the_budget_allows_and_nothing_during_a_freeze(
    one: Pace, total: Pace, steps: list[tuple[str, str, float]]
) -> None:
    async def run() -> None:
        street = Street(one, total)
        for number, step in enumerate(steps):
            await street.step(number, *step)
        await street.clock.advance(10_000)
        await asyncio.gather(*street.tasks)
        street.check()

    asyncio.run(run())
