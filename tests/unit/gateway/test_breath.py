"""Many turns that could begin at once begin one after another: what comes in meanwhile does not wait for all of them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from bot.gateway.breath import LONGEST_REST, STANDSTILL, Breath
from bot.gateway.lanes import Portion
from bot.testing.clock import FakeClock
from tests.unit.gateway.conftest import Bench


async def test_between_the_beginnings_of_turns_the_loop_gets_to_what_comes_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_concurrent=100)
    begun: list[int] = []
    original = bench.turns.work

    async def work(portion: Portion) -> None:
        begun.append(1)
        await original(portion)

    bench.turns.lanes._work = work
    try:
        await bench.open()
        for number in range(50):
            bench.turns.lanes.put(bench.inbound(chat_key=f"tele:chat:{number}", request_id=f"R{number:02}"))
        steps = []
        for _ in range(10):
            steps.append(len(begun))
            await asyncio.sleep(0)
        assert steps[0] <= 1
        assert max(after - before for before, after in itertools.pairwise(steps)) == 1
        await bench.idle()
        assert len(begun) == 50
    finally:
        await bench.close()


@pytest.mark.parametrize(
    ("took", "rests"), [(0.0, False), (0.001, False), (0.004, True), (0.5, True), (STANDSTILL + 1, False)]
)
async def test_where_a_pass_of_the_loop_takes_long_the_next_turn_waits_longer(
    took: float, rests: bool
) -> None:
    clock = FakeClock()
    over = asyncio.Event()
    breath = Breath(clock, over.set)
    breath.take()
    clock._monotonic += took
    await asyncio.sleep(0)
    assert breath.taken is rests
    assert over.is_set() is not rests
    async with asyncio.timeout(LONGEST_REST + 5):
        await over.wait()
    assert not breath.taken
