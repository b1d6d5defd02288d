"""The view changes by appending, or in a declared epoch; between epochs the cache finds all that was sent before."""

from __future__ import annotations

import itertools
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bot.contracts.base import Json
from bot.contracts.model import ModelReply
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Added, Bench, each
from tests.unit.agent.provider import MODEL, Call, Look, Provider, thinking, wanderer
from tests.unit.agent.test_crash import Names


def provided(bench: Bench, script: object, **more: object) -> Provider:
    model = Provider(bench.clock, bench.log, script)  # type: ignore[arg-type]
    bench.add_tools(Look())
    bench.configure(model=model, default_model=MODEL, **more)
    return model


def check(calls: list[Call]) -> None:
    for before, call in itertools.pairwise(calls):
        if call.declared:
            continue
        assert call.extends, "nobody declared that the view changes"
        if not call.cold:
            assert call.read >= before.prompt, "what was sent before is read from the cache, all of it"


async def converse(bench: Bench, seed: int) -> Provider:
    rng = random.Random(seed)
    model = provided(bench, wanderer(rng), max_messages=rng.choice([12, 60]))
    for number in range(6):
        await bench.store(number, "user", f"früher {number}")
    for number in range(rng.randrange(5, 14)):
        await bench.clock.advance(rng.choice([1.0, 30.0, 200.0, 301.0, 4_000.0]))
        doing = rng.random()
        if doing < 0.15:
            bench.restart()
        elif doing < 0.2:
            (bench.root / "Agent.md").write_text(f"You are number {number}.")
        elif doing < 0.25:
            await bench.pool.reset(KEY)
        more = [bench.inbound(f"und {number}.{at}") for at in range(rng.choice([0, 0, 1, 3]))]
        outcome = await bench.say(f"message {number} 你好", arrivals=Added(each(more)))
        assert outcome.status == "done", outcome.detail
    return model


@pytest.mark.parametrize("seed", one_in(2, range(8)))
async def test_there_is_no_undeclared_break_and_no_refused_request(bench: Bench, seed: int) -> None:
    model = await converse(bench, seed)
    check(model.calls)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(8, 8 + int(os.environ.get("CONVERSATIONS", "1000"))))
async def test_there_is_none_in_a_thousand_conversations(bench: Bench, seed: int) -> None:
    model = await converse(bench, seed)
    check(model.calls)


async def told(root: Path, seed: int, *, restarts: bool) -> list[Json]:
    """The bodies of a conversation whose every byte follows from its seed."""
    bench = Bench(root)
    rng = random.Random(seed)
    named = itertools.count()

    def renamed(answer: ModelReply) -> ModelReply:
        content = [
            {**block, "id": f"t{next(named)}"} if block["type"] == "tool_use" else block
            for block in answer.content
        ]
        return replace(answer, content=content)

    wander = wanderer(rng)
    ids = Names(1)
    model = provided(
        bench, lambda body: renamed(wander(body)), max_messages=24, mask_threshold=2_500, ids=ids
    )
    bench.ids = ids  # type: ignore[assignment]
    for number in range(10):
        await bench.clock.advance(rng.choice([30.0, 301.0]))
        await bench.say(f"message {number} 你好", archive=False)
        if restarts:
            await bench.pool.flush()
            bench.restart()
    await bench.close()
    return [call.body for call in model.calls]


@pytest.mark.parametrize("seed", one_in(3, range(6)))
async def test_with_a_restart_between_any_turns_every_request_is_the_same_to_the_byte(
    tmp_path: Path, seed: int
) -> None:
    through = await told(tmp_path / "chat", seed, restarts=False)
    (tmp_path / "chat").rename(tmp_path / "before")
    again = await told(tmp_path / "chat", seed, restarts=True)
    assert [json.dumps(body) for body in again] == [json.dumps(body) for body in through]


def shown(body: Json) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


async def looked(bench: Bench, turns: int, lines: int = 40, threshold: int = 3_000) -> Provider:
    """A conversation whose every turn looks at something."""
    steps = iter(
        step
        for number in range(turns)
        for step in (
            reply(thinking(), tool_use("look", lines=lines)),
            reply(thinking(), text(f"answer {number}")),
        )
    )
    model = provided(bench, lambda _: next(steps, reply(text("nothing more"))), mask_threshold=threshold)
    for number in range(turns):
        await bench.say(f"look {number} ✨")
    return model


async def test_old_results_are_masked_once_the_cache_is_cold_and_the_newest_stay(bench: Bench) -> None:
    model = await looked(bench, 12)
    assert bench.deps.limits.keep_observations == 4
    await bench.clock.advance(300.0)
    await bench.say("still warm")
    assert "masked" not in shown(model.calls[-1].body)
    await bench.clock.advance(300.5)
    await bench.say("cold")
    after = shown(model.calls[-1].body)
    assert after.count("[observation masked — 40 lines omitted]") == 8
    assert after.count("39: 見た") == 4
    assert after.index("masked") < after.index("39: 見た"), "new survives, old goes"
    assert "<system-reminder>" not in after
    (entry,) = bench.log.of("masking")
    assert (entry.details["reason"], entry.details["masked"]) == ("cold_cache", 8)
    assert entry.details["tokens_after"] < entry.details["tokens_before"]
    assert entry.details["expected_cost_usd"] > 0
    check(model.calls)


async def test_what_was_masked_stays_masked_after_a_restart_and_the_request_is_the_same(bench: Bench) -> None:
    model = await looked(bench, 12)
    await bench.clock.advance(301.0)
    await bench.say("cold")
    masked = model.calls[-1].body["messages"]
    bench.restart()
    await bench.say("and on")
    again = model.calls[-1].body
    assert shown(again).count("observation masked") == 8
    plain = [
        json.dumps(message).replace(', "cache_control": {"type": "ephemeral"}', "") for message in masked
    ]
    assert [
        json.dumps(message).replace(', "cache_control": {"type": "ephemeral"}', "")
        for message in again["messages"][: len(masked)]
    ] == plain
    kept = bench.pool.runtime(KEY).store.messages()
    assert json.dumps(kept, ensure_ascii=False).count("39: 見た") == 12, "the store keeps the whole of it"
    check(model.calls)


async def test_masks_that_would_hide_little_wait_for_more_of_them(bench: Bench) -> None:
    model = await looked(bench, 7)
    assert bench.pool.runtime(KEY).view_changes.tokens() > 3_000
    await bench.clock.advance(301.0)
    await bench.say("cold")
    assert "masked" not in shown(model.calls[-1].body)
    model = await looked(bench, 5)
    await bench.clock.advance(301.0)
    await bench.say("cold again")
    (entry,) = bench.log.of("masking")
    assert entry.details["masked"] == 8


async def test_a_cold_chat_is_masked_from_the_threshold_on_though_most_of_it_stays(bench: Bench) -> None:
    model = await looked(bench, 8, lines=200)
    bench.configure(mask_threshold=8_000)
    for number in range(8):
        model.script = lambda _: reply(text("words " * 300))
        await bench.say(f"and {number}")
    runtime = bench.pool.runtime(KEY)
    assert 8_000 < runtime.view_changes.tokens() < 24_000
    await bench.clock.advance(301.0)
    await bench.say("cold")
    (entry,) = bench.log.of("masking")
    details = entry.details
    assert (details["reason"], details["masked"]) == ("cold_cache", 4)
    hidden = details["tokens_before"] - details["tokens_after"]
    assert 2_000 <= hidden < details["tokens_before"] / 2


async def test_a_warm_chat_is_masked_at_three_times_the_threshold(bench: Bench) -> None:
    model = await looked(bench, 14, lines=100, threshold=100_000)
    runtime = bench.pool.runtime(KEY)
    bench.configure(mask_threshold=runtime.view_changes.tokens() // 3 + 500)
    await bench.say("below")
    assert bench.log.of("masking") == []
    bench.configure(mask_threshold=2_000)
    await bench.say("above")
    (entry,) = bench.log.of("masking")
    assert (entry.details["reason"], entry.details["masked"]) == ("size", 10)
    check(model.calls)


async def test_a_small_history_is_never_masked(bench: Bench) -> None:
    model = await looked(bench, 6, lines=2)
    await bench.clock.advance(4_000.0)
    await bench.say("cold")
    assert "masked" not in shown(model.calls[-1].body)
    assert bench.log.of("masking") == []


async def test_thinking_before_the_first_mask_stays_and_all_behind_it_goes(bench: Bench) -> None:
    model = await looked(bench, 12)
    await bench.clock.advance(301.0)
    await bench.say("cold")
    messages = model.calls[-1].body["messages"]
    first = next(
        at
        for at, message in enumerate(messages)
        if "observation masked" in json.dumps(message, ensure_ascii=False)
    )
    with_thinking = [at for at, message in enumerate(messages) if '"thinking"' in json.dumps(message)]
    assert with_thinking == [1]
    assert first == 2


async def test_a_changed_role_file_waits_for_the_cold_and_is_declared(bench: Bench) -> None:
    model = await looked(bench, 2)
    (bench.root / "Agent.md").write_text("You are somebody else.")
    await bench.say("warm")
    assert "somebody else" not in json.dumps(model.calls[-1].body["system"])
    await bench.clock.advance(301.0)
    await bench.say("cold")
    assert "somebody else" in json.dumps(model.calls[-1].body["system"])
    assert [entry.details["reason"] for entry in bench.log.of("compaction")] == ["instructions"]
    assert '"thinking"' not in shown(model.calls[-1].body)
    check(model.calls)


async def test_another_model_after_a_restart_is_an_epoch_that_leaves_the_thinking_out(bench: Bench) -> None:
    model = await looked(bench, 2)
    bench.configure(default_model="claude-opus-5-5")
    await bench.say("who are you?")
    assert [entry.details["reason"] for entry in bench.log.of("compaction")] == ["model_change"]
    assert '"thinking"' not in shown(model.calls[-1].body)
    check(model.calls)


async def test_a_new_conversation_is_declared(bench: Bench) -> None:
    await looked(bench, 2)
    await bench.pool.reset(KEY)
    assert [entry.details["reason"] for entry in bench.log.of("compaction")] == ["new"]
