"""The history is cut on whole turns, in one batch, and a replayed transcript gives the same bytes."""

from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.context import replay
from bot.context.store import AgentContextStore, Turn
from bot.contracts.base import Json, Message
from bot.contracts.transcript import TranscriptLine
from bot.core import blocks, view
from bot.core.repair import Entry
from tests.shares import examples
from tests.unit.lines import line

SYSTEM: list[Json] = [{"type": "text", "text": "role"}]


def user(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


def assistant(words: str, *, thinking: bool = False) -> Message:
    content = [{"type": "text", "text": words}]
    return {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, *content]
        if thinking
        else content,
    }


def a_turn(number: int, rounds: int = 0, *, thinking: bool = False) -> Turn:
    messages = [user(f"question {number}")]
    for step in range(rounds):
        call = {"type": "tool_use", "id": f"t{number}.{step}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "seen"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    messages.append(assistant(f"answer {number}", thinking=thinking))
    entries = tuple(Entry(f"{number}.{at}", message) for at, message in enumerate(messages))
    return Turn(f"r{number}", (f"r{number}",), entries)


def put(store: AgentContextStore, turn: Turn) -> list[str]:
    store.commit(turn)
    dropped = store.over_cap()
    store.drop(dropped)
    return dropped


def render(store: AgentContextStore) -> bytes:
    request = view.render(
        model="m",
        max_tokens=1,
        system=SYSTEM,
        tools=(),
        history=store.messages(),
        injected=[],
        current=[user("now")],
    )
    return json.dumps(request.messages, ensure_ascii=False).encode()


def test_sixty_messages_are_kept_and_the_sixty_first_cuts_to_half_in_one_batch() -> None:
    store = AgentContextStore(60)
    for number in range(30):
        assert put(store, a_turn(number)) == []
    assert len(store) == 60
    dropped = put(store, a_turn(30))
    assert len(store) == 30
    assert dropped[0] == "0.0"
    assert store.messages()[0] == user("question 16")


def test_between_cuts_the_request_only_grows_at_its_end() -> None:
    store = AgentContextStore(20)
    previous: list[Message] = []
    breaks = 0
    for number in range(40):
        put(store, a_turn(number))
        now = store.messages()
        breaks += now[: len(previous)] != previous
        previous = now
    assert breaks == 5  # the 11th turn, then every 6th: 22 messages become 10


def test_a_turn_longer_than_the_cap_is_cut_on_round_borders_once_it_is_done() -> None:
    store = AgentContextStore(10)
    put(store, a_turn(0))
    put(store, a_turn(1, rounds=12))
    messages = store.messages()
    assert 5 <= len(messages) <= 10
    assert messages[0] == user("question 1")
    assert messages[-1] == assistant("answer 1")
    render(store)


def test_what_a_person_added_to_a_long_turn_is_never_cut_from_it() -> None:
    long = a_turn(1, rounds=12)
    steered = (*long.entries[:3], Entry("steer", user("one more thing")), *long.entries[3:])
    store = AgentContextStore(10)
    put(store, Turn("r1", ("r1", "r2"), steered))
    assert user("one more thing") in store.messages()
    assert store.sources() == {"r1", "r2"}


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=40), st.integers(2, 24))
def test_whatever_the_turns_the_view_is_valid_within_the_cap_and_the_newest_turn_stays(
    turns: list[tuple[int, bool]], cap: int
) -> None:
    store = AgentContextStore(cap)
    for number, (rounds, thinking) in enumerate(turns):
        newest = a_turn(number, rounds, thinking=thinking)
        before = store.messages()
        dropped = put(store, newest)
        assert len(store) <= max(cap, 4)  # a question, its last round and the answer are the least there is
        assert store.messages()[-1]["content"][-1] == newest.entries[-1].message["content"][-1]
        if dropped:
            assert len(store) >= cap // 2
            assert not any(b["type"] in blocks.THINKING for m in store.messages() for b in m["content"])
        else:
            assert store.messages()[: len(before)] == before
        render(store)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(4, 16))
def test_halving_gets_strictly_smaller_and_ends(rounds: list[int], cap: int) -> None:
    store = AgentContextStore(cap * 10)
    for number, count in enumerate(rounds):
        put(store, a_turn(number, count))
    sizes = [len(store)]
    while store.turns:
        first = store.turns[-1].entries[0].message
        store.drop(store.oldest_half())
        sizes.append(len(store))
        assert not store.turns or store.messages()[0]["role"] == "user"
        assert not store.turns or store.turns[-1].entries[0].message == first
    assert all(later <= earlier // 2 for earlier, later in itertools.pairwise(sizes))


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=30), st.integers(2, 20))
def test_a_replayed_transcript_gives_the_same_bytes_as_the_store_that_was_lost(
    turns: list[tuple[int, bool, bool]], cap: int
) -> None:
    store = AgentContextStore(cap)
    lines: list[TranscriptLine] = []
    for number, (rounds, thinking, injected) in enumerate(turns):
        began = len(lines)
        turn = a_turn(number, rounds, thinking=thinking)
        lines.append(line(f"s{number}", "turn_start", turn.request_id))
        lines += [line(e.uuid, e.message["role"], turn.request_id, e.message) for e in turn.entries]
        if injected:
            lines.append(
                line(
                    f"i{number}", "injection", turn.request_id, data={"messages": [user("older")], "ts": [1]}
                )
            )
        lines.append(line(f"e{number}", "turn_end", turn.request_id, data={"status": "done"}))
        for one in lines[began:]:
            store.apply(one)
        if dropped := store.over_cap():
            lines.append(line(f"b{number}", "boundary", None, data={"dropped": dropped}))
            store.drop(dropped)
    again = AgentContextStore(cap)
    replay.replay(again, lines)
    assert render(again) == render(store)
    assert again.sources() == store.sources()


def test_a_turn_that_a_crash_cut_off_and_one_that_was_withdrawn_do_not_come_back() -> None:
    done, cut, refused = a_turn(1), a_turn(2, rounds=1), a_turn(3)
    lines = [
        line("s1", "turn_start", "r1"),
        *(line(e.uuid, e.message["role"], "r1", e.message) for e in done.entries),
    ]
    lines.append(line("e1", "turn_end", "r1", data={"status": "done"}))
    lines += [
        line("s2", "turn_start", "r2"),
        *(line(e.uuid, e.message["role"], "r2", e.message) for e in cut.entries),
    ]
    lines += [
        line("s3", "turn_start", "r3"),
        *(line(e.uuid, e.message["role"], "r3", e.message) for e in refused.entries),
    ]
    lines.append(line("e3", "turn_end", "r3", data={"status": "withdrawn"}))
    store = AgentContextStore(60)
    replay.replay(store, lines)
    assert [turn.request_id for turn in store.turns] == ["r1"]
    replay.replay(store, [line("b", "boundary", None, data={"dropped": "all"})])
    assert store.turns == []


def test_results_that_were_mended_go_with_their_calls() -> None:
    """A boundary that was written when the results could still be read names those that took their place then."""
    whole = a_turn(1, rounds=1)
    mended = tuple(
        Entry("1.1+", one.message, calls="1.1") if one.uuid == "1.2" else one for one in whole.entries
    )
    store = AgentContextStore(60)
    store.commit(Turn("r1", ("r1",), mended))
    store.drop(["1.0", "1.1", "1.2"])
    assert [entry.uuid for turn in store.turns for entry in turn.entries] == ["1.3"]
