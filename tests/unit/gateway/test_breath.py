"""Many turns that could begin at once begin one after another: what comes in meanwhile does not wait for all of them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from bot.gateway.lanes import TurnPlan
from bot.gateway.start_throttle import REST, StartThrottle
from bot.gateway.turns import RUSH
from tests.unit.gateway.conftest import Bench


async def test_between_the_beginnings_of_turns_the_loop_gets_to_what_comes_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_concurrent=100)
    begun: list[int] = []
    original = bench.turns.work

    async def work(portion: TurnPlan) -> None:
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


async def test_while_much_comes_in_the_next_turn_waits_a_little_and_no_longer() -> None:
    over = asyncio.Event()
    breath = StartThrottle(over.set, lambda: True)
    breath.take()
    await asyncio.sleep(0)
    assert breath.taken
    async with asyncio.timeout(REST + 5):
        await over.wait()
    assert not breath.taken


async def test_messages_that_are_being_written_down_are_a_rush(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    try:
        assert not bench.turns._rush()
        bench.intake.in_flight.update(f"R{number}" for number in range(RUSH))
        assert bench.turns._rush()
    finally:
        await bench.close()
