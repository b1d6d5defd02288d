"""What happens beside the turns meets stops, undos, a second command, and a provider that hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import errors
from bot.agent import compactor
from bot.contracts.agent import CompactResult
from bot.core.compaction import Policy
from bot.core.memory import SessionMemory
from bot.core.notes.memories import Memories
from bot.system import SystemDisk
from bot.testing.model import reply, text
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.keeping import MEMORY, Answers
from tests.unit.agent.test_upkeep import LONG, epochs, settled, shown, talk

LATER = SessionMemory(facts=("the ship is called 海", "the mast is broken"))


@pytest.fixture
def answers(bench: Bench) -> Answers:
    tools = bench.deps.models.estimator.frame("scripted", (), bench.registry.definitions)
    memories = Memories(bench.root / "memory", disk=SystemDisk())
    bench.configure(memories=memories, compaction=Policy(keep_tokens=3_000), soft_tokens=12_800 + tools)
    return Answers(bench)


async def ran() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def pushed(bench: Bench, task: asyncio.Task[Any] | None) -> None:
    """Wait for a task, and let the time pass that somebody in there waits for."""
    while task is not None and not task.done():
        if bench.clock.sleeping:
            await bench.clock.advance(compactor.WAIT_SECONDS)
        await asyncio.sleep(0)


async def on_file(bench: Bench) -> Any:
    return await Memories(bench.root / "memory", disk=SystemDisk()).load(KEY)


async def test_compactions_that_hang_are_not_waited_for_at_every_turn(bench: Bench, answers: Answers) -> None:
    answers.memory = errors.Overloaded()
    answers.hold["compaction"] = asyncio.Event()
    said, clock = 0, asyncio.get_running_loop().time
    latest = clock() + 60
    # Each begins beside a turn. Where the disk is slow, one is given up before it has asked.
    while said < 12 or (clock() < latest and not answers.forks("compaction")):
        said += 1
        await pushed(bench, asyncio.create_task(bench.say(f"message {said} {LONG}")))
        await ran()
    passed = bench.clock.monotonic()
    assert 1 <= answers.forks("compaction") <= 3 + passed // 600
    assert len(bench.chat.seen) == said
    await bench.pool.close()


async def test_a_memory_that_hangs_keeps_no_compaction_away_and_does_not_come_late(
    bench: Bench, answers: Answers
) -> None:
    answers.hold["memory"] = asyncio.Event()
    for number in range(7):
        await pushed(bench, asyncio.create_task(bench.say(f"message {number} {LONG}")))
    runtime = bench.pool.runtime(KEY)
    await pushed(bench, runtime.compactor.compacting)
    assert answers.forks("compaction")
    assert {epoch["reason"] for epoch in epochs(bench)} == {"size"}
    covers = runtime.memory.covers
    assert covers is not None
    answers.hold["memory"].set()
    await settled(bench)
    assert runtime.memory.covers == covers, "what the summary knows is newer"


async def test_what_is_taken_back_goes_out_of_the_memory(bench: Bench, answers: Answers) -> None:
    bench.configure(soft_tokens=100_000)
    await talk(bench, 4)
    assert answers.forks("memory") == 1
    before = (await on_file(bench)).covers
    answers.memory = reply(text("<memory>\n## Facts\n- the mast is broken\n## Gone\n- 2\n</memory>"))
    while answers.forks("memory") == 1:
        await talk(bench, 1)
    assert (await on_file(bench)).markdown == LATER.markdown
    await bench.pool.undo(KEY)
    kept = await on_file(bench)
    assert (kept.markdown, kept.covers) == (MEMORY.markdown, before)


@pytest.mark.parametrize("restart", [False, True])
async def test_where_no_older_memory_is_known_it_is_written_anew_without_it(
    bench: Bench, answers: Answers, restart: bool
) -> None:
    bench.configure(soft_tokens=100_000)
    while not answers.forks("memory"):
        await talk(bench, 1)
    if restart:
        bench.restart()
    await bench.pool.undo(KEY)
    assert await on_file(bench) is None
    await talk(bench, 1)
    assert answers.forks("memory") == 2
    (directive,) = bench.model.requests[-1].messages[-1]["content"]
    assert "the ship" not in directive["text"], "nothing of the memory that knew too much"


async def test_a_memory_that_is_being_written_of_what_is_taken_back_is_given_up(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=100_000)
    answers.hold["memory"] = asyncio.Event()
    for number in range(5):
        await bench.say(f"message {number} {LONG}")
    await answers.begun["memory"].wait()
    await bench.pool.undo(KEY)
    answers.hold["memory"].set()
    await ran()
    assert not bench.pool.runtime(KEY).busy
    assert await on_file(bench) is None


async def test_a_second_compact_ends_the_first_that_hangs(bench: Bench, answers: Answers) -> None:
    answers.hold["compaction"] = asyncio.Event()
    for number in range(6):
        await bench.say(f"short {number}")
    both = [asyncio.create_task(bench.pool.compact(KEY, "the 船")) for _ in range(2)]
    await answers.begun["compaction"].wait()
    await ran()
    await bench.clock.advance(compactor.WAIT_SECONDS)
    await ran()
    assert bench.pool.runtime(KEY).busy, "the second one is at work"
    answers.hold["compaction"].set()
    assert [facts.outcome for facts in await asyncio.gather(*both)] == ["failed", "summary"]
    assert len(epochs(bench)) == 1


async def test_a_compact_that_hangs_ends_with_the_truth(bench: Bench, answers: Answers) -> None:
    answers.hold["compaction"] = asyncio.Event()
    for number in range(6):
        await bench.say(f"short {number}")
    before = shown(bench)
    asked = asyncio.create_task(bench.pool.compact(KEY, "the 船"))
    await answers.begun["compaction"].wait()
    await bench.clock.advance(compactor.LONGEST_SECONDS)
    assert await asked == CompactResult("failed")
    assert shown(bench) == before
    assert not bench.pool.runtime(KEY).busy


async def test_a_turn_that_the_memory_does_not_know_is_taken_back_behind_a_cut(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=100_000, max_messages=18)
    runtime = bench.pool.runtime(KEY)
    while runtime.store.head is None:
        await talk(bench, 1)
    assert runtime.memory.covers not in {entry.uuid for entry in runtime.store.turns[-1].entries}
    head = runtime.store.head
    assert await bench.pool.undo(KEY) is not None
    assert runtime.store.head == head
