"""The fake provider's cache: its content, its lifetime, and the position to which thinking is bound."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from bot.contracts.base import Json
from bot.testing import anthropic_script as script
from bot.testing.anthropic import AnthropicServer
from bot.testing.clock import FakeClock
from tests.unit.testing.messages import CACHE, HOUR, Caller, assistant, body, text, user

LONG = "word " * 2_000  # slightly more than 2,500 tokens


async def test_the_cache_is_written_read_and_forgotten(caller: Caller, clock: FakeClock) -> None:
    asked = body(user("Hi"), system=[text(LONG, cache_control=CACHE)])
    first = await caller.usage(asked)
    assert first["cache_creation_input_tokens"] > 2_400
    assert first["cache_read_input_tokens"] == 0
    assert first["cache_creation"]["ephemeral_5m_input_tokens"] == first["cache_creation_input_tokens"]
    await clock.advance(299)
    second = await caller.usage(body(user("Something else"), system=[text(LONG, cache_control=CACHE)]))
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert second["cache_creation_input_tokens"] == 0
    await clock.advance(299)
    assert (await caller.usage(asked))["cache_read_input_tokens"] > 0, "reading keeps it warm"
    await clock.advance(301)
    assert (await caller.usage(asked))["cache_read_input_tokens"] == 0
    for changed in (
        body(user("Hi"), system=[text(LONG + ".", cache_control=CACHE)]),
        asked | {"model": "claude-opus-5"},
    ):
        assert (await caller.usage(changed))["cache_read_input_tokens"] == 0


async def test_an_hour_is_an_hour(caller: Caller, clock: FakeClock) -> None:
    asked = body(user("Hi"), system=[text(LONG, cache_control=HOUR)])
    first = await caller.usage(asked)
    assert first["cache_creation"]["ephemeral_1h_input_tokens"] == first["cache_creation_input_tokens"] > 0
    await clock.advance(3_599)
    assert (await caller.usage(asked))["cache_read_input_tokens"] > 0


async def test_too_little_is_not_cached(caller: Caller) -> None:
    asked = body(user("Hi"), system=[text("short", cache_control=CACHE)])
    for _ in range(2):
        usage = await caller.usage(asked)
        assert usage["cache_creation_input_tokens"] == usage["cache_read_input_tokens"] == 0


@pytest.mark.parametrize(("added", "found"), [(18, True), (19, True), (20, False)])
async def test_a_breakpoint_looks_back_twenty_blocks(caller: Caller, added: int, found: bool) -> None:
    start = [text(LONG)]
    await caller.usage(body(user(*start), cache_control=CACHE))
    more = [text(f"block {number}") for number in range(added)]
    usage = await caller.usage(body(user(*start, *more), cache_control=CACHE))
    assert (usage["cache_read_input_tokens"] > 0) is found


async def test_the_effort_spares_the_system_and_not_the_messages(caller: Caller) -> None:
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    asked = body(user(LONG), system=[text(LONG, cache_control=CACHE)], tools=tools, cache_control=CACHE)
    whole = (await caller.usage(asked))["cache_creation_input_tokens"]
    assert (await caller.usage(asked))["cache_read_input_tokens"] == whole
    other = (await caller.usage(asked | {"output_config": {"effort": "low"}}))["cache_read_input_tokens"]
    assert 0 < other < whole


async def test_entries_are_readable_once_the_answer_streams(caller: Caller) -> None:
    gate = asyncio.Event()
    asked = body(user("Hi"), system=[text(LONG, cache_control=CACHE)])
    caller.server.answer("later", hold=gate)
    slow = asyncio.create_task(caller.usage(asked))
    await caller.server.until(lambda: caller.server.active == 1)
    assert (await caller.usage(body(user("Hi"), system=[text(LONG)])))["cache_read_input_tokens"] == 0
    gate.set()
    assert (await slow)["cache_creation_input_tokens"] > 0
    assert (await caller.usage(asked))["cache_read_input_tokens"] > 0


async def test_thinking_is_bound_to_what_stood_before_it() -> None:
    async with AnthropicServer(bind_thinking=True) as server, aiohttp.ClientSession() as session:
        caller = Caller(server, session)
        server.answer(script.thinking("one"), "First")
        _, first = await caller.post(body())
        history = [user("Hi"), assistant(*first["content"]), user("More")]
        server.answer(script.thinking("two"), "Second")
        _, second = await caller.post(body(*history))
        history += [assistant(*second["content"]), user("More still")]
        assert (await caller.post(body(*history)))[0] == 200

        def without(*places: int) -> list[Json]:
            kept = []
            for at, message in enumerate(history):
                content = [b for b in message["content"] if not (at in places and b["type"] == "thinking")]
                kept.append(message | {"content": content})
            return kept

        assert (await caller.post(body(*without(1))))[0] == 200, "taken from the front"
        assert (await caller.post(body(*without(1, 3))))[0] == 200
        server.answer(script.thinking("three"), "Third")
        _, third = await caller.post(body(*history))
        history += [assistant(*third["content"]), user("End")]
        status, answer = await caller.post(body(*without(3)))
        assert status == 400, "taken out of the middle"
        assert "messages.5.content.0: Invalid `signature` in `thinking` block" in answer["error"]["message"]
        assert "bound to a different conversation" in answer["error"]["message"]
        for changed in (
            body(*history, system="new"),
            body(*history, tools=[{"name": "look", "input_schema": {"type": "object"}}]),
            body(user("Hello"), *history[1:]),
        ):
            assert (await caller.post(changed))[0] == 400
        dropping = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        assert (await caller.post(body(user("Hello"), *history[1:], thinking=dropping)))[0] == 200
        marked = assistant(*first["content"][:-1], first["content"][-1] | {"cache_control": CACHE})
        assert (await caller.post(body(user("Hi"), marked, user("More"))))[0] == 200
