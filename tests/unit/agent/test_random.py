"""Random conversations: every request is valid, and memory and disk keep the same history."""

from __future__ import annotations

import asyncio
import json
import os
import random
from typing import Any

import pytest

from bot import errors
from bot.contracts import ModelReply
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def cut_call() -> ModelReply:
    call = tool_use("nothing", a=1)
    return reply(call, stop_reason="max_tokens", cut=[call["id"]])


ANSWERS: list[Any] = [
    lambda _: reply(tool_use("chat_send", text="hi 🏳️‍🌈")),
    lambda _: reply(tool_use("chat_send", text="你好")),
    lambda _: reply(THINKING, text("x"), tool_use("skills_list"), tool_use("skills_list")),
    lambda rng: reply(THINKING, tool_use("chat_load_history", limit=rng.choice([1, 5, 200]))),
    lambda rng: errors.ContextOverflow(
        "too long", tokens=rng.choice([None, 300_000]), window=rng.choice([None, 200_000])
    ),
    lambda _: reply(text("final")),
    lambda _: reply(stop_reason="refusal"),
    lambda _: reply(text("wait"), stop_reason="pause_turn"),
    lambda _: errors.StreamBroken("cut"),
    lambda _: reply(THINKING),
    lambda _: cut_call(),
    lambda _: errors.ThinkingUnbound("bound elsewhere"),
]


async def converse(bench: Bench, rng: random.Random) -> None:
    bench.configure(max_messages=rng.choice([4, 8, 12]))
    for number in range(rng.randrange(6)):
        await bench.store(number, rng.choice(["user", "assistant"]), f"old {number}")
    for number in range(rng.randrange(4, 14)):
        bench.model.answers.clear()
        step = rng.randrange(10)
        if step == 0:
            await bench.pool.reset(KEY)
        elif step <= 2:
            await restarted(bench)
        else:
            await turn(bench, rng, number)


async def restarted(bench: Bench) -> None:
    """A new process fills the store with the same bytes."""
    runtime = bench.pool._runtime(KEY)
    kept, filled = json.dumps(runtime.store.messages()), runtime._filled
    bench.restart()
    await bench.pool.describe(KEY)
    if filled:
        assert json.dumps(bench.pool._runtime(KEY).store.messages()) == kept


async def turn(bench: Bench, rng: random.Random, number: int) -> None:
    """One turn of random answers, steered or not, stopped somewhere or not."""
    bench.model.answers.extend(rng.choice(ANSWERS)(rng) for _ in range(rng.randrange(5)))
    more = [bench.inbound(f"and {number}")] if rng.random() < 0.4 else []
    saying = asyncio.create_task(
        bench.say(f"message {number}", take_more=lambda: [more.pop()] if more and rng.random() < 0.6 else [])
    )
    if rng.random() < 0.3:
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)
        await bench.pool.stop(KEY)
    outcome = await saying
    # A request that is not valid never leaves: the turn would end with this.
    assert "RequestInvalid" not in outcome.detail
    assert "Something went wrong" not in (outcome.notice or ""), outcome
    store = bench.pool._runtime(KEY).store
    assert len(store) <= max(bench.kit.max_messages, 4) or len(store.turns) == 1
    assert not store.turns or store.messages()[0]["role"] == "user"


@pytest.mark.parametrize("seed", range(60))
async def test_a_random_conversation_keeps_its_promises(bench: Bench, seed: int) -> None:
    await converse(bench, random.Random(seed))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(60, 60 + int(os.environ.get("CONVERSATIONS", "1000"))))
async def test_a_thousand_random_conversations_keep_their_promises(bench: Bench, seed: int) -> None:
    await converse(bench, random.Random(seed))
