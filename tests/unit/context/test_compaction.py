"""What leaves the view goes on borders that no request notices, and only where enough of it stays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.context.store import AgentContextStore, Turn
from bot.contracts.base import Json, Message
from bot.core import compaction, estimate, memory, view
from bot.core.compaction import KEEP_MESSAGES, Breaker
from bot.core.repair import Entry
from bot.testing.clock import FakeClock
from tests.shares import examples


def a_turn(number: int, rng: random.Random, *, longest: int = 8) -> Turn:
    """A turn with parallel tools, pieces of one answer, and words that joined it."""
    messages: list[Message] = [said(f"question {number} " + "字" * rng.randrange(200))]
    for step in range(rng.randrange(longest)):
        calls = [f"t{number}.{step}.{one}" for one in range(rng.randrange(1, 4))]
        blocks: list[Json] = [{"type": "tool_use", "id": call, "name": "look", "input": {}} for call in calls]
        if rng.random() < 0.2:
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "first piece"}]})
        messages.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": "x" * rng.randrange(3_000)}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
        if rng.random() < 0.2:
            messages.append(said("and one more thing"))
    messages.append({"role": "assistant", "content": [{"type": "text", "text": f"answer {number}"}]})
    return Turn(f"r{number}", (f"r{number}",), entries(number, messages))


def said(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


def entries(number: int, messages: Sequence[Message]) -> tuple[Entry, ...]:
    return tuple(Entry(f"{number:03}.{at:03}", message) for at, message in enumerate(messages))


def filled(turns: Sequence[Turn]) -> AgentContextStore:
    store = AgentContextStore(10_000)
    for turn in turns:
        store.commit(turn)
    return store


def uuids(turns: Sequence[Turn]) -> list[str]:
    return [entry.uuid for turn in turns for entry in turn.entries]


def named(turns: Sequence[Turn]) -> list[list[tuple[str, Message]]]:
    return [turn.named for turn in turns]


def check(request: Sequence[Message]) -> None:
    view.render(
        model="m", max_tokens=1, system=(), tools=(), history=request, injected=(), current=[said("now")]
    )


HISTORIES = st.tuples(st.integers(0, 14), st.integers(0, 10**9), st.sampled_from([0, 300, 2_000, 10_000]))


@given(HISTORIES)
@settings(derandomize=True, deadline=None, max_examples=examples(300))
def test_what_stays_is_enough_whole_and_a_valid_request(history: tuple[int, int, int]) -> None:
    count, seed, keep = history
    rng = random.Random(seed)
    turns = [a_turn(number, rng, longest=rng.choice([2, 8, 30])) for number in range(count)]
    store = filled(turns)
    dropped = compaction.border(named(store.turns), size=estimate.tokens, keep=keep)
    order = uuids(turns)
    assert dropped == [one for one in order if one in set(dropped)], "in order, each once"
    store.compact(dropped, memory.head("what happened", nonce="0a1b2c3d"))
    check(store.view())
    kept = store.messages()
    if dropped:
        assert estimate.tokens(kept) >= keep
        assert len(kept) >= KEEP_MESSAGES
    at_border = {turn.request_id: set(uuids([turn])) & set(dropped) for turn in turns}
    cut = [turn for turn in turns if at_border[turn.request_id] not in (set(), set(uuids([turn])))]
    assert len(cut) <= 1, "turns are whole, but the one that is too long"
    for turn in cut:
        whole = [entry.message for one in turns[turns.index(turn) :] for entry in one.entries]
        assert estimate.tokens(whole) > compaction.most(keep)
        words = [
            entry
            for entry in turn.entries
            if entry.message["role"] == "user" and "text" in entry.message["content"][0]
        ]
        assert not {entry.uuid for entry in words} & set(dropped), "what people said stays"


@given(HISTORIES, st.integers(0, 10**9))
@settings(derandomize=True, deadline=None, max_examples=examples(300))
def test_only_what_the_memory_covers_goes_and_still_on_borders(
    history: tuple[int, int, int], at: int
) -> None:
    count, seed, keep = history
    rng = random.Random(seed)
    turns = [a_turn(number, rng, longest=20) for number in range(count)]
    order = uuids(turns)
    dropped = compaction.border(named(turns), size=estimate.tokens, keep=keep)
    covers = order[at % len(order)] if order else None
    known = compaction.covered(named(turns), dropped, covers)
    assert known == dropped[: len(known)]
    assert all(one <= (covers or "") for one in known)
    store = filled(turns)
    store.compact(known, memory.head("what happened", nonce="0a1b2c3d"))
    check(store.view())
    assert compaction.covered(named(turns), dropped, "no such line") == []
    assert compaction.covered(named(turns), dropped, order[-1] if order else None) == dropped


def test_the_border_stands_between_turns_as_soon_as_enough_stays() -> None:
    turns = [
        Turn(
            f"r{number}",
            (),
            entries(
                number, [said("x" * 3_300), {"role": "assistant", "content": [{"type": "text", "text": "y"}]}]
            ),
        )
        for number in range(20)
    ]
    dropped = compaction.border(named(turns), size=estimate.tokens, keep=4_000)
    assert dropped == uuids(turns[:16])
    few = compaction.border(named(turns), size=estimate.tokens, keep=0)
    assert few == uuids(turns[:17]), "five messages, and turns are whole"


def test_a_turn_that_is_too_long_loses_its_oldest_rounds_and_keeps_its_question() -> None:
    rng = random.Random(1)
    messages: list[Message] = [said("find it")]
    for step in range(20):
        messages += [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"t{step}", "name": "look", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"t{step}", "content": "x" * 2_800}],
            },
        ]
    messages.append({"role": "assistant", "content": [{"type": "text", "text": "found"}]})
    turns = [a_turn(0, rng), Turn("long", (), entries(1, messages))]
    dropped = compaction.border(named(turns), size=estimate.tokens, keep=4_000)
    kept = [entry.message for entry in turns[1].entries if entry.uuid not in dropped]
    assert set(uuids(turns[:1])) <= set(dropped)
    assert kept[0] == said("find it")
    assert kept[-1] == messages[-1]
    assert 4_000 <= estimate.tokens(kept) < 6_000


@given(st.integers(0, 10**9), st.integers(0, 40_000))
@settings(derandomize=True, deadline=None, max_examples=examples(200))
def test_a_prompt_without_its_oldest_rounds_is_smaller_by_that_much_and_valid(seed: int, tokens: int) -> None:
    rng = random.Random(seed)
    messages = [entry.message for number in range(6) for entry in a_turn(number, rng).entries]
    left = compaction.without_oldest(messages, tokens, estimate.tokens)
    assert messages[len(messages) - len(left) :] == left
    assert estimate.tokens(messages) - estimate.tokens(left) >= min(tokens, estimate.tokens(messages))
    check(left)


def test_tool_calls_and_tokens_together_call_for_an_extraction_or_many_tokens_alone() -> None:
    wanted = compaction.wants_extraction
    assert not wanted(4_999, 100)
    assert not wanted(14_999, 2)
    assert wanted(5_000, 3)
    assert wanted(15_000, 0)


def test_what_is_new_is_what_came_after_the_newest_line_that_is_covered() -> None:
    turns = [a_turn(number, random.Random(number)) for number in range(3)]
    assert list(compaction.since(named(turns), turns[1].entries[-1].uuid)) == [
        entry.message for entry in reversed(turns[2].entries)
    ]
    assert len(list(compaction.since(named(turns), None))) == len(uuids(turns))


async def test_three_failures_in_a_row_stop_it_until_ten_minutes_or_a_success() -> None:
    clock = FakeClock()
    breaker = Breaker(clock)
    assert [breaker.failed() for _ in range(2)] == [False, False]
    breaker.succeeded()
    assert [breaker.failed() for _ in range(3)] == [False, False, True]
    assert breaker.open
    await clock.advance(599)
    assert breaker.open
    await clock.advance(2)
    assert not breaker.open, "it may be tried once"
    breaker.failed()
    assert breaker.open
    breaker.succeeded()
    assert not breaker.open


@pytest.mark.parametrize("pieces", [1, 3])
def test_pieces_of_one_answer_stay_together(pieces: int) -> None:
    piece: Any = {"role": "assistant", "content": [{"type": "text", "text": "p"}]}
    messages = [said("a"), *[piece] * pieces, said("b"), piece]
    assert [len(group) for group in compaction.rounds(messages)] == [1, pieces, 1, 1]
