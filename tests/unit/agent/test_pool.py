"""However many conversations there are, those in memory stay within a budget, and nobody notices."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.agent import pool
from bot.agent.pool import OVERHEAD, AgentPool
from bot.contracts.agent import TurnRequest
from bot.contracts.identity import ChatKey
from bot.identity_cache import MessageFact
from bot.sizes import size_of
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from tests.unit.agent.conftest import Bench

LONG = "很长的话 🧭 " * 2_000


async def say(bench: Bench, number: int, words: str = LONG) -> None:
    key = ChatKey("telegram", str(number))
    inbound = bench.inbound(words, chat_key=key)
    await bench.pool.run(TurnRequest(inbound.request_id, key, inbound=inbound, reply=bench.chat))


async def one_weighs(bench: Bench) -> int:
    """The bytes of one conversation of these tests."""
    await say(bench, 0)
    return OVERHEAD + size_of(bench.pool.runtime(ChatKey.parse("telegram:chat:0")).store.messages())


async def test_those_used_least_recently_go_first_and_come_back_whole(bench: Bench) -> None:
    one = await one_weighs(bench)
    bench.pool = AgentPool(bench.deps, budget=int(one * 3.5))
    for number in (1, 2, 3):
        await say(bench, number)
    await bench.pool.describe(ChatKey.parse("telegram:chat:1"))
    await say(bench, 4)
    assert list(bench.pool.runtimes) == [ChatKey.parse(f"telegram:chat:{number}") for number in (3, 1, 4)]
    before = json.dumps(bench.pool.runtime(ChatKey.parse("telegram:chat:3")).store.messages())
    for number in (5, 6, 7):
        await say(bench, number)
    assert ChatKey.parse("telegram:chat:3") not in bench.pool.runtimes
    await bench.pool.describe(ChatKey.parse("telegram:chat:3"))
    assert json.dumps(bench.pool.runtime(ChatKey.parse("telegram:chat:3")).store.messages()) == before
    assert len(bench.pool) <= 4


async def test_many_chats_stay_within_the_budget(bench: Bench) -> None:
    bench.pool = AgentPool(bench.deps, budget=20 * OVERHEAD)
    for number in range(200):
        await bench.pool.describe(ChatKey.parse(f"telegram:chat:{number}"))
    assert len(bench.pool) == 20
    assert bench.pool.weight == sum(bench.pool.weights.values()) == 20 * OVERHEAD
    assert len(bench.pool.weights) == 20


async def test_each_message_is_weighed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []

    def counted(value: object) -> int:
        weighed.append(size_of(value))
        return weighed[-1]

    monkeypatch.setattr(pool, "MESSAGE_BYTES", MessageFact(counted))
    bench.pool = AgentPool(bench.deps)
    await say(bench, 1)
    await bench.pool.describe(ChatKey.parse("telegram:chat:1"))
    await bench.pool.describe(ChatKey.parse("telegram:chat:1"))
    store = bench.pool.runtime(ChatKey.parse("telegram:chat:1")).store
    assert len(weighed) == len(store)
    assert bench.pool.weight == OVERHEAD + sum(weighed)
    await say(bench, 1)
    assert len(weighed) == len(store)
    assert bench.pool.weight == OVERHEAD + sum(weighed)
    await bench.pool.reset(ChatKey.parse("telegram:chat:1"))
    assert bench.pool.weight == OVERHEAD


async def test_what_is_at_work_stays_whatever_it_weighs(bench: Bench) -> None:
    bench.pool = AgentPool(bench.deps, budget=0)
    bench.model.hold = asyncio.Event()
    running = asyncio.create_task(say(bench, 1))
    await bench.model.asked.wait()
    await bench.pool.describe(ChatKey.parse("telegram:chat:2"))
    assert list(bench.pool.runtimes) == [ChatKey.parse("telegram:chat:1")]
    bench.pool.shrink()
    assert list(bench.pool.runtimes) == [ChatKey.parse("telegram:chat:1")]
    bench.model.hold.set()
    await running
    assert len(bench.pool) == 0
    assert bench.pool.weight == 0


async def test_no_second_agent_is_made_while_somebody_still_asks_the_first(
    bench: Bench, monkeypatch: Any
) -> None:
    load, loading, go_on = bench.transcript.has, asyncio.Event(), asyncio.Event()

    async def slow(chat_key: ChatKey) -> bool:
        loading.set()
        await go_on.wait()
        return await load(chat_key)

    monkeypatch.setattr(bench.transcript, "has", slow)
    bench.pool = AgentPool(bench.deps, budget=0)
    asked = asyncio.create_task(bench.pool.describe(ChatKey.parse("telegram:chat:1")))
    await loading.wait()
    assert bench.pool.evict(-1) == 0
    go_on.set()
    await asked
    assert len(bench.pool) == 0


async def test_short_of_memory_the_quiet_ones_go_and_half_of_the_rest(bench: Bench) -> None:
    for number in range(4):
        await say(bench, number)
    await bench.clock.advance(61)
    for number in range(4, 12):
        await say(bench, number)
    bench.pool.shrink()
    kept = [int(key.chat_id) for key in bench.pool.runtimes]
    assert kept in ([8, 9, 10, 11], [9, 10, 11])


async def test_short_of_memory_no_message_is_held_because_it_was_weighed(bench: Bench) -> None:
    class Weighed(dict[str, Any]):
        """A message of which is known whether it is still there."""

    message = Weighed(role="user", content=[{"type": "text", "text": "说 " * 1_000}])
    held = weakref.ref(message)
    assert pool.MESSAGE_BYTES(message)
    del message
    bench.pool.shrink()
    assert held() is None
    await say(bench, 1)
    assert bench.pool.weight == sum(bench.pool.weights.values()) > OVERHEAD


async def test_turns_that_begin_from_now_on_have_other_deps_and_those_that_run_their_own(
    bench: Bench,
) -> None:
    key = ChatKey.parse("telegram:chat:1")
    for number in (1, 2):
        await say(bench, number)
    before = bench.pool.runtime(key).store.messages()
    bench.model.hold = asyncio.Event()
    bench.model.asked.clear()
    running = asyncio.create_task(say(bench, 1))
    await bench.model.asked.wait()
    deps = replace(bench.deps, models=replace(bench.deps.models, default_model="another"))
    await bench.pool.use(deps)
    assert bench.pool.deps is deps
    assert len(bench.pool) == 1
    bench.model.hold.set()
    await running
    assert len(bench.pool) == 0
    count = len(bench.model.requests)
    assert "another" not in {request.model for request in bench.model.requests}
    await say(bench, 1)
    await say(bench, 2)
    assert {request.model for request in bench.model.requests[count:]} == {"another"}
    assert bench.pool.runtime(key).store.messages()[: len(before)] == before


async def test_a_conversation_that_owes_lines_to_the_disk_has_other_deps_once_they_are_written(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(SystemDisk())
    bench = Bench(tmp_path, disk)
    key = ChatKey.parse("telegram:chat:1")
    await say(bench, 1)
    disk.fail(Failure(times=None))
    await say(bench, 1)
    assert bench.pool.runtime(key).has_unwritten_lines
    await bench.pool.use(replace(bench.deps, models=replace(bench.deps.models, default_model="another")))
    assert (await bench.pool.describe(key)).default != "another"
    disk.mend()
    await bench.pool.flush()
    assert (await bench.pool.describe(key)).default == "another"
    await bench.close()


async def test_an_evicted_conversation_goes_without_a_collection(bench: Bench) -> None:
    """What survives collections that take long is left out of the next ones: a cycle would keep it for good."""
    gc.disable()
    try:
        await say(bench, 0)
        await say(bench, 1)  # what writes for all chats knows the last turn alone
        await bench.pool.flush()
        loop = asyncio.get_running_loop()
        gone = asyncio.Queue[str]()

        def watch(one: object) -> weakref.ref[object]:
            # The last to hold it may be a thread.
            return weakref.ref(one, lambda _: loop.call_soon_threadsafe(gone.put_nowait, "gone"))

        kept = bench.pool.runtime(ChatKey("telegram", "0"))
        watched = [watch(kept.store), watch(kept)]
        del kept
        assert bench.pool.evict(-1) == 2
        async with asyncio.timeout(90):  # what wrote of the last turn comes to its end
            for _ in watched:
                await gone.get()
    finally:
        gc.enable()
