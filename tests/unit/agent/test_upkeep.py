"""Histories that grow are compacted, from the memory where it knows enough; short ones are left alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot import errors
from bot.agent import compactor
from bot.contracts.agent import CompactResult, TurnRequest
from bot.contracts.inbound import Quoted
from bot.contracts.model import ModelFacts, Usage
from bot.contracts.transcript import Boundary
from bot.core import memory
from bot.core.budget import Budget
from bot.core.compaction import Policy
from bot.core.estimate import Estimator
from bot.core.notes.memories import Memories, SavedMemory
from bot.system import SystemDisk
from bot.testing.model import reply, text, tool_use
from bot.tools.permissions import taint
from bot.words import Sentence
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.keeping import MEMORY, SUMMARY, Answers

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
LONG = "x" * 3_300
"""Some thousand tokens."""


@pytest.fixture
def answers(bench: Bench) -> Answers:
    tools = bench.deps.models.estimator.frame("scripted", (), bench.registry.definitions)
    bench.configure(
        memories=Memories(bench.root / "memory", disk=SystemDisk()),
        compaction=Policy(keep_tokens=3_000),
        soft_tokens=12_800 + tools,
    )
    return Answers(bench)


async def settled(bench: Bench) -> None:
    """Wait for what goes on beside the turns."""
    memory, compactor = bench.pool.runtime(KEY).memory, bench.pool.runtime(KEY).compactor
    async with asyncio.timeout(90):
        while memory.busy or compactor.busy:
            await asyncio.wait([task for task in (memory.writing, compactor.compacting) if task])
            await asyncio.sleep(0)


async def waited_for(bench: Bench) -> None:
    """Until somebody waits for as long as upkeep is waited for."""
    until = bench.clock.monotonic() + compactor.WAIT_SECONDS
    async with asyncio.timeout(90):
        while until not in bench.clock.wakes:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(0)


async def talk(bench: Bench, turns: int) -> None:
    for number in range(turns):
        await bench.say(f"message {number} {LONG}")
        await settled(bench)


def shown(bench: Bench) -> list[Any]:
    return list(bench.pool.runtime(KEY).store.view())


def epochs(bench: Bench, kind: str = "compaction") -> list[Any]:
    return [
        entry.details for entry in bench.log.entries if entry.kind == kind and entry.details.get("reason")
    ]


async def test_a_short_chat_costs_no_call_more(bench: Bench, answers: Answers) -> None:
    for number in range(12):
        await bench.say(f"hello {number} 你好")
        await settled(bench)
    assert {request.purpose for request in bench.model.requests} == {"turn"}
    assert len(bench.model.requests) == 12


async def test_over_the_soft_limit_a_summary_takes_the_place_of_the_oldest_turns(
    bench: Bench, answers: Answers
) -> None:
    answers.memory = errors.Overloaded()
    await talk(bench, 7)
    before = len(bench.pool.runtime(KEY).store)
    assert answers.forks("compaction") == 1
    head = shown(bench)[0]
    assert "我们谈了船" in head["content"][0]["text"]
    assert "hm" not in head["content"][0]["text"].split()
    assert 5 <= before < 14
    (epoch,) = epochs(bench)
    assert (epoch["reason"], epoch["how"]) == ("size", "summary")
    assert epoch["tokens_after"] < epoch["tokens_before"]
    await bench.say("next")
    assert bench.sent[0] | {} == {**head, "content": bench.sent[0]["content"]}
    assert bench.sent[0]["content"][0]["text"] == head["content"][0]["text"]


async def test_a_memory_that_knows_enough_is_taken_without_asking_the_model(
    bench: Bench, answers: Answers
) -> None:
    await talk(bench, 12)
    assert answers.forks("memory") >= 1
    assert answers.forks("compaction") == 0
    assert [epoch["how"] for epoch in epochs(bench)] == ["memory"] * len(epochs(bench))
    assert epochs(bench)
    assert "the ship is called 海" in shown(bench)[0]["content"][0]["text"]


async def test_the_memory_is_on_file_with_how_far_it_reaches(bench: Bench, answers: Answers) -> None:
    await talk(bench, 5)
    kept = await Memories(bench.root / "memory", disk=SystemDisk()).load(KEY)
    assert kept is not None
    assert memory.read(kept.markdown) == MEMORY
    order = [entry.uuid for turn in bench.pool.runtime(KEY).store.turns for entry in turn.entries]
    assert kept.covers in order
    folder = bench.root / "memory" / "telegram%3Achat%3A1"
    assert sorted(path.name for path in folder.iterdir()) == ["covers.json", "session.lines", "session.md"]
    sources = {turn.request_id for turn in bench.pool.runtime(KEY).store.turns}
    assert all({by.request_id for by in line} <= sources and line for line in kept.written)


async def test_an_extraction_that_fails_is_logged_and_tried_when_as_much_is_new_again(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=100_000)
    answers.memory = errors.Overloaded()
    await talk(bench, 4)
    assert answers.forks("memory") == 1
    assert any(entry.message == "the memory could not be written" for entry in bench.log.entries)
    await talk(bench, 1)
    assert answers.forks("memory") == 1
    await talk(bench, 1)
    assert answers.forks("memory") == 2
    assert len(bench.chat.seen) == 6


async def test_there_is_one_extraction_at_a_time_and_turns_go_on_beside_it(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=100_000)
    answers.hold["memory"] = asyncio.Event()
    for number in range(12):
        await bench.say(f"message {number} {LONG}")
    await answers.begun["memory"].wait()
    assert answers.forks("memory") == 1
    answers.hold["memory"].set()
    await settled(bench)
    assert len(bench.chat.seen) == 12


async def test_a_compaction_waits_for_the_memory_that_is_being_written(
    bench: Bench, answers: Answers
) -> None:
    answers.hold["memory"] = asyncio.Event()
    for number in range(5):
        await bench.say(f"message {number} {LONG}")
    await answers.begun["memory"].wait()
    compacting = asyncio.create_task(bench.pool.compact(KEY))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not compacting.done()
    answers.hold["memory"].set()
    assert (await compacting).outcome == "memory"


async def test_it_waits_no_longer_than_fifteen_seconds(bench: Bench, answers: Answers) -> None:
    answers.hold["memory"] = asyncio.Event()
    for number in range(5):
        await bench.say(f"message {number} {LONG}")
    await answers.begun["memory"].wait()
    compacting = asyncio.create_task(bench.pool.compact(KEY))
    await waited_for(bench)
    await bench.clock.advance(compactor.WAIT_SECONDS)
    assert (await compacting).outcome == "summary"
    await bench.pool.close()
    assert not bench.pool.runtime(KEY).busy


async def test_the_next_turn_waits_for_a_compaction_but_not_for_ever(bench: Bench, answers: Answers) -> None:
    answers.memory = errors.Overloaded()
    answers.hold["compaction"] = asyncio.Event()
    for number in range(6):
        await bench.say(f"message {number} {LONG}")
        if bench.pool.runtime(KEY).compactor.compacting:
            break
    await answers.begun["compaction"].wait()
    saying = asyncio.create_task(bench.say("are you there?", archive=False))
    await waited_for(bench)
    assert not saying.done()
    await bench.clock.advance(compactor.WAIT_SECONDS)
    await saying
    assert bench.chat.seen[-1] == "echo: are you there?"
    assert not epochs(bench), "the history is whole"
    await bench.pool.close()


async def test_three_failures_in_a_row_stop_it_for_ten_minutes(bench: Bench, answers: Answers) -> None:
    answers.memory = errors.Overloaded()
    answers.summary = reply(text("I would rather not."))
    await talk(bench, 12)
    assert answers.forks("compaction") == 3
    assert any("none for ten minutes" in entry.message for entry in bench.log.entries)
    await bench.clock.advance(601)
    answers.summary = reply(text(SUMMARY))
    await talk(bench, 1)
    assert answers.forks("compaction") == 4
    assert len(epochs(bench)) == 1


class Operators:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def tell(self, subject: str, words: Sentence) -> None:
        self.told.append((subject, str(words)))


async def test_a_budget_that_is_spent_is_no_failure_that_operators_hear_of(
    bench: Bench, answers: Answers
) -> None:
    operators = Operators()
    bench.configure(operators=operators)
    answers.memory = answers.summary = errors.BudgetSpent("$2 of $2", until=0.0)
    await talk(bench, 12)
    assert answers.forks("memory") >= 3
    assert answers.forks("compaction") >= 3
    assert operators.told == []


async def test_operators_hear_of_what_fails_again_and_again(bench: Bench, answers: Answers) -> None:
    operators = Operators()
    told = operators.told
    bench.configure(operators=operators)
    answers.memory = reply(text(MEMORY.markdown), stop_reason="max_tokens")
    answers.summary = errors.Overloaded("529")
    await talk(bench, 6)
    assert not told
    await talk(bench, 6)
    subjects = [subject for subject, _ in told]
    assert {"the memory of chats", "the compaction of chats"} == set(subjects)
    for _, words in told:
        assert "3 times in a row" in words
        assert str(KEY) in words
    assert "cut off" in told[subjects.index("the memory of chats")][1]
    await bench.clock.advance(601)
    await talk(bench, 1)
    assert [subject for subject, _ in told].count("the compaction of chats") == 2, "it still fails"
    answers.memory, answers.summary = reply(text(MEMORY.markdown)), reply(text(SUMMARY))
    before = len(told)
    await talk(bench, 12)
    assert len(told) == before


async def test_a_person_may_ask_for_it_and_say_what_matters(bench: Bench, answers: Answers) -> None:
    for number in range(6):
        await bench.say(f"short {number}")
    before = (await bench.pool.stats(KEY)).tokens
    facts = await bench.pool.compact(KEY, "the 船")
    assert facts.outcome == "summary"
    assert (facts.tokens_before, facts.tokens_after) == (before, (await bench.pool.stats(KEY)).tokens)
    assert facts.messages > 0
    assert facts.tokens_after < facts.tokens_before + 1_000
    assert "the 船" in json.dumps(bench.model.requests[-1].messages[-1], ensure_ascii=False)
    assert epochs(bench)[0]["reason"] == "compact"
    assert (await bench.pool.compact(KEY)).outcome == "nothing"


async def test_where_it_fails_the_history_stays_as_it_was(bench: Bench, answers: Answers) -> None:
    answers.summary = errors.Overloaded()
    for number in range(6):
        await bench.say(f"short {number}")
    before = json.dumps(shown(bench))
    assert (await bench.pool.compact(KEY)).outcome == "failed"
    assert json.dumps(shown(bench)) == before


async def test_with_nothing_said_there_is_nothing_to_compact(bench: Bench, answers: Answers) -> None:
    assert await bench.pool.compact(KEY) == CompactResult("nothing")
    await bench.say("hi")
    assert await bench.pool.compact(KEY) == CompactResult("nothing")


async def test_a_quiet_chat_is_compacted_shortly_before_the_cache_forgets_it(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=100_000, compaction=Policy(keep_tokens=3_000, idle_above=6_000))
    answers.reads = True
    await talk(bench, 5)
    for seconds, count in ((269.0, 0), (1.0, 1), (10.0, 1)):
        await bench.clock.advance(seconds)
        await bench.pool.tend()
        await settled(bench)
        assert len(epochs(bench)) == count
    assert epochs(bench)[0]["reason"] == "idle"


async def test_what_time_causes_is_on_the_bill_of_who_spoke_last(bench: Bench, answers: Answers) -> None:
    bench.configure(
        soft_tokens=100_000, compaction=Policy(keep_tokens=3_000, idle_above=6_000), memories=None
    )
    answers.reads = True
    await talk(bench, 5)
    await bench.clock.advance(270.0)
    await bench.pool.tend()
    await settled(bench)
    assert answers.persons[-1] == ("compaction", "telegram:77")
    assert {who for _, who in answers.persons} == {"telegram:77"}


@pytest.mark.parametrize(
    ("read", "above", "enabled"), [(False, 6_000, True), (True, 90_000, True), (True, 6_000, False)]
)
async def test_without_a_cache_or_with_little_to_gain_a_quiet_chat_is_left_alone(
    bench: Bench, answers: Answers, read: bool, above: int, enabled: bool
) -> None:
    policy = Policy(keep_tokens=3_000, idle_above=above, idle=enabled)
    bench.configure(soft_tokens=100_000, compaction=policy)
    answers.reads = read
    await talk(bench, 5)
    await bench.clock.advance(271)
    await bench.pool.tend()
    assert not bench.pool.runtime(KEY).busy
    assert not epochs(bench)


async def test_what_the_message_cap_cuts_goes_into_the_memory_where_that_knows_it(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=100_000, max_messages=18)
    await talk(bench, 7)
    capped = [epoch for epoch in epochs(bench) if epoch["reason"] == "message_cap"]
    assert [epoch["how"] for epoch in capped] == ["memory"]
    assert "the ship is called 海" in shown(bench)[0]["content"][0]["text"]
    assert answers.forks("compaction") == 0
    assert len(bench.pool.runtime(KEY).store) >= 9, "half the cap stays"


async def test_in_the_middle_of_a_turn_the_history_is_compacted_before_it_does_not_fit(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=1_000_000, memories=None)
    await talk(bench, 10)
    bench.model.known = ModelFacts(window=20_000)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    hard = bench.deps.budget().hard
    assert isinstance(bench.deps.budget(), Budget)
    assert hard is not None
    before = answers.forks("compaction")
    bench.model.answers.append(reply(tool_use("skills_list")))
    await bench.say("go on")
    assert answers.forks("compaction") == before + 1
    assert epochs(bench)[-1]["reason"] == "size"
    assert bench.chat.seen[-1].startswith("echo: ") or bench.chat.seen
    request = bench.model.requests[-1]
    assert Estimator().request(request) < hard
    assert any("go on" in json.dumps(message) for message in request.messages)


async def test_a_summary_that_is_made_in_a_turn_is_also_from_those_whom_the_turn_quotes(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=1_000_000, memories=None)
    await talk(bench, 10)
    bench.model.known = ModelFacts(window=20_000)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    before = answers.forks("compaction")
    asked = bench.inbound("go on", quoted=(Quoted(user_id="9", text="do evil"),))
    await bench.pool.run(TurnRequest(asked.request_id, KEY, inbound=asked, reply=bench.chat))
    assert answers.forks("compaction") == before + 1
    head = bench.pool.runtime(KEY).store.head
    assert head is not None
    assert taint.seen([head]).people == {"77", "9"}


async def test_a_memory_is_from_all_that_was_in_view_though_it_is_cut_before_that_is_written(
    bench: Bench, answers: Answers
) -> None:
    asked = bench.inbound(f"read it {LONG}", quoted=(Quoted(user_id="9", text="do evil"),))
    await bench.pool.run(TurnRequest(asked.request_id, KEY, inbound=asked, reply=bench.chat))
    gate = answers.hold["memory"] = asyncio.Event()
    while not answers.begun["memory"].is_set():
        await bench.say(f"more {LONG}")
        await asyncio.sleep(0)
    runtime = bench.pool.runtime(KEY)
    gone = tuple(entry.uuid for turn in runtime.store.turns for entry in turn.entries)
    runtime.view_changes.apply("message_cap", Boundary(dropped=gone))
    gate.set()
    await settled(bench)
    assert bench.deps.history.memories is not None
    kept = await bench.deps.history.memories.load(KEY)
    assert kept is not None
    assert kept.origin.people == {"77", "9"}


async def test_a_large_turn_behind_a_small_history_is_not_compacted_for_nothing(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=1_000_000, memories=None)
    for number in range(6):
        await bench.say(f"short {number}")
    bench.model.known = ModelFacts(window=20_000)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    await bench.say("x" * 60_000)
    assert answers.forks("compaction") == 0
    assert len(bench.chat.seen) == 7


async def test_what_the_last_turn_had_loaded_does_not_count_for_the_next(
    bench: Bench, answers: Answers
) -> None:
    bench.configure(soft_tokens=1_000_000, memories=None)
    await talk(bench, 4)
    bench.model.known = ModelFacts(window=40_000)
    await bench.deps.models.windows.ask(bench.model, "scripted")
    bench.pool.runtime(KEY).compactor.answered(Usage(input_tokens=39_000))
    await bench.say("next")
    assert answers.forks("compaction") == 0


async def test_switched_off_nothing_happens_unasked(bench: Bench, answers: Answers) -> None:
    bench.configure(compaction=Policy(enabled=False))
    await talk(bench, 8)
    assert {request.purpose for request in bench.model.requests} == {"turn"}


async def test_after_a_restart_head_memory_and_next_request_are_the_same(
    bench: Bench, answers: Answers
) -> None:
    await talk(bench, 12)
    assert epochs(bench)
    runtime = bench.pool.runtime(KEY)
    before = (json.dumps(shown(bench)), runtime.memory.known, runtime.memory.covers)
    bench.restart()
    again = bench.pool.runtime(KEY)
    await again.fill()
    assert (json.dumps(shown(bench)), again.memory.known, again.memory.covers) == before


async def test_a_person_may_ask_for_it_after_a_restart(bench: Bench, answers: Answers) -> None:
    for number in range(6):
        bench.model.answers.append(reply(THINKING, tool_use("chat_send", text="答え")))
        await bench.say(f"short {number}")
    bench.restart()
    assert (await bench.pool.compact(KEY)).outcome == "summary"
    assert "signature" not in json.dumps(bench.model.requests[-1].messages), "it was bound to another prompt"
    await bench.say("still there?")
    assert bench.chat.seen[-1] == "echo: still there?"
    assert "我们谈了船" in bench.sent[0]["content"][0]["text"]


async def test_a_compaction_survives_a_crash_right_behind_it(bench: Bench, answers: Answers) -> None:
    for number in range(6):
        await bench.say(f"short {number}")
    await bench.pool.compact(KEY)
    view = json.dumps(shown(bench))
    for _ in range(2):
        bench.restart()
        await bench.pool.runtime(KEY).fill()
        assert json.dumps(shown(bench)) == view


async def test_a_memory_that_cannot_be_written_is_remembered_all_the_same(
    bench: Bench, answers: Answers
) -> None:
    (bench.root / "memory").write_text("in the way")
    await talk(bench, 4)
    assert bench.pool.runtime(KEY).memory.known == MEMORY
    assert any(entry.message == "the memory could not be written" for entry in bench.log.entries)


async def test_a_new_conversation_does_not_remember_the_old_one(bench: Bench, answers: Answers) -> None:
    await talk(bench, 5)
    await bench.pool.reset(KEY)
    assert bench.pool.runtime(KEY).memory.known is None
    assert await Memories(bench.root / "memory", disk=SystemDisk()).load(KEY) is None


async def test_a_memory_that_cannot_be_read_is_as_good_as_none(bench: Bench, answers: Answers) -> None:
    memories = Memories(bench.root / "memory", disk=SystemDisk())
    await memories.save(KEY, SavedMemory("not a memory", "x"))
    await bench.say("hi")
    assert bench.chat.seen == ["echo: hi"]
    assert bench.pool.runtime(KEY).memory.known is None


async def test_a_stop_of_the_process_gives_up_what_goes_on(bench: Bench, answers: Answers) -> None:
    answers.hold["memory"] = asyncio.Event()
    for number in range(5):
        await bench.say(f"message {number} {LONG}")
    await answers.begun["memory"].wait()
    await bench.pool.close()
    assert not bench.pool.runtime(KEY).busy
    assert not (bench.root / "memory").exists()
