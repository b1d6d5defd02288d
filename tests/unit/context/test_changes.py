"""Summaries, masks and cuts change what is shown, never what is kept whole; a replay carries them out alike."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.context import replay
from bot.context.store import AgentContextStore
from bot.contracts.base import Message
from bot.contracts.transcript import Boundary, Event, Mask, MessageEvent, TranscriptLine, TurnEnd, TurnStart
from bot.core import blocks
from bot.history.transcript.lines import dumped, parsed
from tests.shares import examples
from tests.unit.context.test_store import a_turn, user

HEAD: Message = {"role": "user", "content": [{"type": "text", "text": "Summary: 要約"}]}


def thoughts(messages: list[Message] | tuple[Message, ...]) -> list[int]:
    return [
        at
        for at, message in enumerate(messages)
        if any(b["type"] in blocks.THINKING for b in message["content"])
    ]


def test_a_summary_stands_for_what_went_and_counts_towards_the_cap() -> None:
    store = AgentContextStore(6)
    for number in range(3):
        store.commit(a_turn(number))
    store.compact(["0.0", "0.1"], HEAD)
    assert store.view()[:2] == (HEAD, user("question 1"))
    assert store.messages()[0] == user("question 1")
    assert store.over_cap() == []
    store.commit(a_turn(3))
    dropped = store.over_cap()
    assert dropped == ["1.0", "1.1"], "four are left, half the cap at the least"
    store.drop(dropped)
    assert store.view()[0] == HEAD
    store.compact([], None)
    assert store.view()[0] == user("question 2")


def test_a_mask_changes_what_is_shown_and_what_is_kept_stays_whole() -> None:
    store = AgentContextStore(60)
    for number in range(3):
        store.commit(a_turn(number, rounds=1, thinking=True))
    whole = store.messages()
    assert store.mask({"t1.0": "[masked]"})
    assert store.messages()[:5] == whole[:5]
    result = store.view()[6]["content"][0]
    assert result == {"type": "tool_result", "tool_use_id": "t1.0", "content": "[masked]"}
    assert "seen" in json.dumps(store.messages()[6])
    assert thoughts(store.view()) == [3], "what was thought before it may stay, what came behind it may not"
    assert not store.mask({"elsewhere": "x"}), "that call stands in no turn that is kept"


def test_what_was_masked_is_forgotten_with_its_turn() -> None:
    store = AgentContextStore(60)
    store.commit(a_turn(0, rounds=1))
    store.mask({"t0.0": "[masked]", "running": "[masked]"})
    store.drop([entry.uuid for entry in store.turns[0].entries])
    assert store.masked == {"running": "[masked]"}
    store.clear()
    assert store.masked == {}


def test_between_changes_the_view_grows_at_its_end_and_is_not_made_anew() -> None:
    store = AgentContextStore(60)
    store.commit(a_turn(0, rounds=2))
    store.mask({"t0.0": "[masked]"})
    before = store.view()
    assert store.view() is before
    store.commit(a_turn(1))
    after = store.view()
    assert all(one is other for one, other in zip(before, after, strict=False)), "the very same messages"


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_replay_of_any_changes_shows_the_same_bytes(seed: int, count: int) -> None:
    rng = random.Random(seed)
    store, lines = AgentContextStore(rng.choice([8, 60])), list[TranscriptLine]()

    def happens(event: Event, request_id: str | None = None) -> None:
        lines.append(TranscriptLine(uuid=f"{len(lines)}", ts=0, request_id=request_id, event=event))
        store.apply(lines[-1])

    for number in range(count):
        turn = a_turn(number, rng.randrange(4), thinking=rng.random() < 0.7)
        happens(TurnStart(), turn.request_id)
        for entry in turn.entries:
            happens(MessageEvent(role=entry.message["role"], message=entry.message), turn.request_id)
        calls = [call for message in store.messages() for call in blocks.result_ids(message)]
        own = [call for entry in turn.entries for call in blocks.result_ids(entry.message)]
        roll = rng.random()
        if roll < 0.3 and (calls or own):
            words = rng.sample(calls + own, min(2, len(calls + own)))
            happens(Mask(results=dict.fromkeys(words, f"[masked {number}]")))
        elif roll < 0.45:
            happens(Boundary(dropped=tuple(store.oldest_half()), head=rng.choice([HEAD, None])))
        elif roll < 0.5:
            happens(Boundary(dropped="all"))
        happens(TurnEnd(status="done"), turn.request_id)
        if dropped := store.over_cap():
            happens(Boundary(dropped=tuple(dropped)))
    again = AgentContextStore(60)
    replay.replay(again, [line for raw in map(stored, lines) if (line := parsed(raw)) is not None])
    assert json.dumps(again.view()) == json.dumps(store.view())
    assert json.dumps(again.messages()) == json.dumps(store.messages())
    assert (again.head, again.masked) == (store.head, store.masked)


def stored(line: TranscriptLine) -> bytes:
    return dumped(line, "s")
