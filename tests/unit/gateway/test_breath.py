"""Many turns that could begin at once begin one after another: what comes in meanwhile does not wait for all of them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from bot.gateway.backlog import BURST, REST, InFlight
from bot.gateway.conversation import Message
from tests.unit.gateway.conftest import Bench


async def test_between_the_beginnings_of_turns_the_loop_gets_to_what_comes_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_concurrent=100)
    bench.agent.hold = asyncio.Event()
    try:
        await bench.open()
        for number in range(50):
            one = bench.inbound(chat_key=f"tele:chat:{number}", request_id=f"R{number:02}")
            bench.turn_queue.apply(one.chat_key, Message(one))
        steps = []
        for _ in range(10):
            steps.append(len(bench.running))
            await asyncio.sleep(0)
        assert steps[0] <= 1
        assert max(after - before for before, after in itertools.pairwise(steps)) == 1
        async with asyncio.timeout(90):
            while len(bench.running) < 50:  # noqa: ASYNC110 - nobody signals that a turn has begun
                await asyncio.sleep(0)
        bench.agent.hold.set()
        await bench.idle()
    finally:
        await bench.close()


async def test_while_much_comes_in_the_next_turn_waits_a_little_and_no_longer() -> None:
    in_flight = InFlight(writing={f"R{number}" for number in range(BURST)})
    resting = asyncio.ensure_future(in_flight.rest())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not resting.done()
    await asyncio.wait_for(resting, REST + 5)


async def test_otherwise_it_waits_for_one_pass_of_the_loop() -> None:
    resting = asyncio.ensure_future(InFlight(writing={"R1"}).rest())
    for _ in range(2):
        await asyncio.sleep(0)
    assert resting.done()
