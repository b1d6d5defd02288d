"""The real library against the loopback Messages API: every kind of failure and its error."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from bot import errors
from bot.contracts.model import TextDelta
from bot.llm.client import AnthropicModel
from bot.system import SystemClock
from bot.testing import anthropic_script as script
from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.clock import FakeClock
from tests.unit.llm.asking import SECOND_STEP, ask, items, reply_of, tool, user

LONG = script.reply("A long answer in several pieces, 很长的回答, with emoji 👨‍👩‍👧‍👦.")

BROKEN: dict[str, Callable[[], script.Answer]] = {
    "cut after the start": lambda: script.cut(LONG, 1),
    "cut in the text": lambda: script.cut(LONG),
    "cut in a tool's input": lambda: script.cut(script.reply(script.tool_use("look", {"q": "x" * 90})), 6),
    "stall after the headers": lambda: script.stall(LONG, 0),
    "stall in the text": lambda: script.stall(LONG),
    "stall in a tool's input": lambda: script.stall(
        script.reply(script.tool_use("look", {"q": "x" * 90})), 6
    ),
    "end without message_stop": lambda: script.end_early(LONG),
    "end after message_delta": lambda: script.Reply(LONG.blocks, edit=lambda wire: wire[:-1]),
    "empty body": script.empty_body,
    "page of a proxy": script.html_page,
    "garbled JSON": lambda: script.garble(LONG),
    "unknown error": lambda: script.error_event(LONG, kind="brand_new_error"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_stream_is_told_and_the_next_call_works(
    server: AnthropicServer, model: AnthropicModel, hasty: AnthropicModel, name: str
) -> None:
    model = hasty if "stall" in name else model
    server.then(BROKEN[name]())
    with pytest.raises(errors.StreamBroken) as caught:
        await items(model, ask(tools=(tool("look"),)))
    assert caught.value.retryable
    assert caught.value.request_id
    assert (await reply_of(model)).stop_reason == "end_turn"
    assert len(server.requests) == 2


REFUSALS: dict[str, tuple[Callable[[], script.Answer], type[errors.ModelError], dict[str, Any]]] = {
    "overloaded mid-stream": (lambda: script.error_event(LONG), errors.Overloaded, {"status": 200}),
    "overflow mid-stream": (
        lambda: script.error_event(
            LONG, kind="invalid_request_error", message="prompt is too long: 9 tokens > 8 maximum"
        ),
        errors.ContextOverflow,
        {"tokens": 9, "window": 8},
    ),
    "429 with a wait": (lambda: script.rate_limited(30), errors.RateLimited, {"retry_after": 30.0}),
    "413 of a proxy": (script.too_large_page, errors.RequestTooLarge, {"status": 413}),
    "401": (script.refused_key, errors.ModelRefused, {"status": 401, "exit_code": 78}),
    "prompt too long": (
        script.prompt_too_long,
        errors.ContextOverflow,
        {"tokens": 213_462, "window": 200_000, "status": 400},
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_becomes_its_error(server: AnthropicServer, model: AnthropicModel, name: str) -> None:
    answer, kind, facts = REFUSALS[name]
    server.then(answer())
    with pytest.raises(errors.ModelError) as caught:
        await items(model, ask())
    assert type(caught.value) is kind
    assert {key: getattr(caught.value, key) for key in facts} == facts
    assert caught.value.request_id
    assert len(server.requests) == 1, "one call is one request"


async def test_unknown_blocks_events_and_stop_reasons_pass_through(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.then(script.unknown_block(), script.unknown_stop(), script.unknown_event(LONG))
    reply = await reply_of(model)
    assert reply.content[0] == {
        "type": "brand_new_block",
        "payload": {"a": [1, None, "é"]},
        "note": None,
    }
    assert (await reply_of(model)).stop_reason == "brand_new_reason"
    assert (await reply_of(model)).content == list(LONG.blocks)
    # A returned answer can be sent back in the history.
    history = (user("Hi"), {"role": "assistant", "content": reply.content}, user("And?"))
    assert (await reply_of(model, ask(*history))).stop_reason == "end_turn"


async def test_refusal_and_pause_are_replies_with_their_reason(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.then(script.refusal("bio"), script.pause_turn("Searching on."), script.reply("Found."))
    refused = await reply_of(model)
    assert refused.stop_reason == "refusal"
    assert refused.detail is not None
    assert refused.detail["category"] == "bio"
    paused = await reply_of(model)
    assert paused.stop_reason == "pause_turn"
    resumed = ask(user("Hello, 你好"), {"role": "assistant", "content": paused.content})
    assert (await reply_of(model, resumed)).content == [{"type": "text", "text": "Found."}]


async def test_thinking_comes_back_as_the_provider_signed_it() -> None:
    async with AnthropicServer(bind_thinking=True) as server:
        model = AnthropicModel(api_key=KEY, base_url=server.url, clock=SystemClock())
        server.answer(script.thinking("Hm, 嗯…"), "Yes.")
        reply = await reply_of(model)
        assert [block["type"] for block in reply.content] == ["thinking", "text"]
        kept = (user("Hello, 你好"), {"role": "assistant", "content": reply.content}, user("And?"))
        assert (await reply_of(model, ask(*kept))).stop_reason == "end_turn"
        moved = (user("Another question"), *kept[1:])
        with pytest.raises(errors.ThinkingUnbound):
            await reply_of(model, ask(*moved))
        await model.close()


async def test_equal_requests_make_equal_bytes_and_nothing_is_added(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    request = ask(*SECOND_STEP, tools=(tool("look"),))
    await reply_of(model, request)
    await reply_of(model, request)
    assert server.bodies[0] == {
        "model": request.model,
        "max_tokens": 1_000,
        "system": list(request.system),
        "tools": [tool("look")],
        "messages": list(SECOND_STEP),
        "stream": True,
    }
    assert json.dumps(server.bodies[0]) == json.dumps(server.bodies[1])


async def test_a_compatible_endpoint_gets_the_key_in_both_headers(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    await reply_of(model)
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-api-key"] == KEY


async def test_a_closed_port_is_unreachable(server: AnthropicServer, model: AnthropicModel) -> None:
    await server.stop()
    with pytest.raises(errors.ModelUnreachable):
        await reply_of(model)
    with pytest.raises(errors.ModelUnreachable):
        await model.check()


async def test_an_answer_that_never_ends_is_given_up_and_not_asked_for_again(server: AnthropicServer) -> None:
    clock = FakeClock()
    gate = asyncio.Event()
    model = AnthropicModel(api_key=KEY, base_url=server.url, clock=clock, total=100.0)
    server.then(script.pause(LONG, gate))
    stream = model.stream(ask())
    assert isinstance(await anext(aiter(stream)), TextDelta)
    await clock.advance(101.0)
    gate.set()
    with pytest.raises(errors.StreamBroken, match="longer than 100 s") as caught:
        async for _ in stream:
            pass
    assert not caught.value.retryable
    await model.close()


async def test_a_request_that_utf8_cannot_carry_is_invalid(model: AnthropicModel) -> None:
    with pytest.raises(errors.RequestInvalid):
        await reply_of(model, ask(user("half \ud83d")))


async def test_without_logging_the_words_of_the_conversation_are_in_no_error(server: AnthropicServer) -> None:
    model = AnthropicModel(api_key=KEY, base_url=server.url, clock=SystemClock(), quotes=False)
    secret = "my cat is called Mimi and 我的狗叫旺财"
    server.then(
        script.error(400, "invalid_request_error", f"messages.0: cannot read '{secret}' with key {KEY}")
    )
    with pytest.raises(errors.RequestInvalid) as caught:
        await reply_of(model, ask(user(f"Listen: {secret}!")))
    told = "".join(traceback.format_exception(caught.value))
    assert "Mimi" not in told
    assert "旺财" not in told
    assert KEY not in told
    assert "400" in told
    await model.close()
