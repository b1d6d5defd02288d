"""The loopback Messages API is as strict as the service."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable

import pytest

from bot.contracts.base import Json
from bot.testing import anthropic_script as script
from bot.testing.anthropic import KEY
from bot.testing.clock import FakeClock
from tests.unit.testing.messages import CACHE, HEADERS, HOUR, Caller, assistant, body, result, text, use, user

SYSTEM = {"role": "system", "content": [text("x")]}
REFUSED: dict[str, tuple[Json, str]] = {
    "no model": ({"max_tokens": 1, "messages": [user("Hi")]}, "model: Field required"),
    "temperature": (body(temperature=1.0), "temperature: Extra inputs are not permitted"),
    "thread": (body(thread={"type": "create"}), "thread: Extra inputs are not permitted"),
    "no messages": (body() | {"messages": []}, "at least one message"),
    "first is assistant": (body(assistant("Hi"), user("Hi")), 'first message must use the "user" role'),
    "last is assistant": (body(user("Hi"), assistant("Hi")), "does not support assistant message prefill"),
    "system role": (
        body(user("Hi"), SYSTEM, model="claude-sonnet-5"),
        "role 'system' is not supported on this model",
    ),
    "system first": (body(SYSTEM), 'first message must use the "user" role'),
    "system between users": (body(user("Hi"), SYSTEM, user("Hi")), "precede an assistant turn or be last"),
    "system behind an answer": (body(user("Hi"), assistant("Hi"), SYSTEM), "must follow a user turn"),
    "system twice": (body(user("Hi"), SYSTEM, SYSTEM), "precede an assistant turn or be last"),
    "system with a call": (body(user("Hi"), SYSTEM | {"content": [use()]}), "may only contain `text` blocks"),
    "unknown role": (body({"role": "tool", "content": "x"}), "messages.0.role"),
    "extra field": (body(user("Hi") | {"name": "Ana"}), "messages.0.name: Extra inputs are not permitted"),
    "no content": (body({"role": "user", "content": []}), "non-empty content"),
    "empty text": (body(user("")), "text content blocks must be non-empty"),
    "blank text": (body(user(" \n")), "must contain non-whitespace text"),
    "empty system": (body(system=[text("")]), "system: text content blocks must be non-empty"),
    "unknown block": (body(user({"type": "sound"})), "messages.0.content.0: Input tag 'sound'"),
    "null field": (body(user(text("Hi", note=None))), "messages.0.content.0.text.note: Extra inputs"),
    "call by user": (body(user(use())), "`tool_use` blocks cannot be in `user` messages"),
    "result by assistant": (
        body(user("Hi"), assistant(result()), user("x")),
        "`tool_result` blocks cannot be in",
    ),
    "input no object": (body(user("Hi"), assistant(use(input="x")), user(result())), "valid dictionary"),
    "id": (body(user("Hi"), assistant(use("a b")), user(result("a b"))), "should match pattern"),
    "unanswered": (
        body(user("Hi"), assistant(use()), user("And?")),
        (
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message."
        ),
    ),
    "one unanswered": (
        body(user("Hi"), assistant(use(), use("toolu_2")), user(result())),
        "without `tool_result` blocks immediately after: toolu_2.",
    ),
    "results late": (body(user("Hi"), assistant(use()), user("So:", result())), "immediately after: toolu_1"),
    "orphan result": (
        body(user("Hi"), assistant("Hi"), user(result("toolu_9"))),
        (
            "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_9. Each `tool_result` "
            "block must have a corresponding `tool_use` block in the previous message."
        ),
    ),
    "result twice": (
        body(user("Hi"), assistant(use()), user(result(), result())),
        "must have a single result",
    ),
    "id twice": (
        body(user("Hi"), assistant(use()), user(result()), assistant(use()), user(result())),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "five breakpoints": (
        body(user(*(text(f"{n}", cache_control=CACHE) for n in range(5)))),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "five with the automatic one": (
        body(user(*(text(f"{n}", cache_control=CACHE) for n in range(4))), cache_control=CACHE),
        "Found 5.",
    ),
    "short before long": (
        body(user(text("a", cache_control=CACHE), text("b", cache_control=HOUR))),
        "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'",
    ),
    "lifetime": (body(user(text("a", cache_control=CACHE | {"ttl": "1d"}))), "should be '5m' or '1h'"),
    "breakpoint on thinking": (
        body(
            user("Hi"),
            assistant({"type": "thinking", "thinking": "x", "signature": "s", "cache_control": CACHE}),
            user("x"),
        ),
        "thinking.cache_control: Extra inputs are not permitted",
    ),
    "thinking unsigned": (
        body(user("Hi"), assistant({"type": "thinking", "thinking": "x"}), user("x")),
        "thinking.signature: Field required",
    ),
    "tool twice": (
        body(tools=[{"name": "a", "input_schema": {"type": "object"}}] * 2),
        "Tool names must be unique",
    ),
    "tool name": (body(tools=[{"name": "a b", "input_schema": {"type": "object"}}]), "tools.0.custom.name"),
    "tool schema": (body(tools=[{"name": "a"}]), "input_schema"),
    "thinking off": (body(thinking={"type": "disabled"}), "thinking.type: 'disabled' is not supported"),
    "choice": (body(tool_choice={"type": "any"}), "tool_choice: Extra inputs are not permitted"),
    "max_tokens": (body(max_tokens=0, stream=True), "max_tokens"),
    "max_tokens as text": (body(max_tokens="9"), "max_tokens: Input should be a valid integer"),
    "output limit": (body(max_tokens=200_000), "max_tokens: 200000 > 128000"),
    "half a pair": (body(user("\ud83d")), "not valid JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_the_service_refuses_is_refused(caller: Caller, name: str) -> None:
    given, words = REFUSED[name]
    status, answer = await caller.post(given)
    assert status == 400
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error"
    assert words in answer["error"]["message"]


ACCEPTED: dict[str, Json] = {
    "text alone": body({"role": "user", "content": "Hi"}),
    "messages of the system": body(user("Hi"), SYSTEM, assistant("Yes"), user("Hi"), user("you"), SYSTEM),
    "same roles in a row": body(user("Hi"), user("there"), assistant("Yes"), assistant("sir"), user("Good")),
    "results in two messages": body(
        user("Hi"), assistant(use(), use("toolu_2")), user(result()), user(result("toolu_2"), "And?")
    ),
    "results and then text": body(user("Hi"), assistant("Look", use()), user(result(is_error=True), "And?")),
    "four breakpoints": body(
        user(text("a", cache_control=HOUR), text("b", cache_control=CACHE)),
        system=[text("s", cache_control=HOUR)],
        cache_control=CACHE,
    ),
    "result of blocks": body(user("Hi"), assistant(use()), user(result(content=[text("a"), text("b")]))),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_the_service_takes_is_taken(caller: Caller, name: str) -> None:
    status, answer = await caller.post(ACCEPTED[name])
    assert status == 200, answer
    assert answer["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"anthropic-version": "2026-10-21"}, 401, "header is required"),
        (HEADERS | {"authorization": "Bearer wrong"}, 401, "invalid x-api-key"),
        (HEADERS | {"x-api-key": "wrong"}, 401, "invalid x-api-key"),
        ({"x-api-key": KEY, "anthropic-version": "2026-10-21"}, 200, ""),
        ({"x-api-key": KEY}, 400, "anthropic-version"),
        (HEADERS | {"anthropic-version": "2020-01-01"}, 400, "not a valid version"),
    ],
)
async def test_key_and_version_are_asked_for(
    caller: Caller, headers: dict[str, str], status: int, words: str
) -> None:
    got, answer = await caller.post(body(), headers=headers)
    assert got == status
    assert words in answer.get("error", {}).get("message", "")


async def test_bodies_that_are_none(caller: Caller) -> None:
    assert (await caller.post(b"{nope"))[0] == 400
    assert (await caller.post(b"[]"))[0] == 400
    huge = io.BytesIO(b'{"a": "' + b"x" * (33 * 1024 * 1024) + b'"}')
    status, answer = await caller.post(huge)
    assert (status, answer["error"]["type"]) == (413, "request_too_large")
    status, answer = await caller.post(body(model="gpt-9"))
    assert (status, answer["error"]["type"]) == (404, "not_found_error")
    status, answer = await caller.post(body(), path="/v1/nothing")
    assert (status, answer["error"]["type"]) == (404, "not_found_error")


async def test_the_window_is_kept_with_the_services_sentences(caller: Caller) -> None:
    caller.server.windows["claude-sonnet-5-5"] = 1_000
    words = user("x" * 3_600)
    status, answer = await caller.post(body(words, max_tokens=10))
    assert status == 200
    used = answer["usage"]["input_tokens"]
    status, answer = await caller.post(body(words, max_tokens=500))
    assert status == 400
    assert answer["error"]["message"] == (
        f"input length and `max_tokens` exceed context limit: {used} + 500 > 1000, decrease input length or "
        "`max_tokens` and try again"
    )
    status, answer = await caller.post(body(user("x" * 8_000)))
    assert status == 400
    assert answer["error"]["message"].startswith("prompt is too long: 20")
    assert answer["error"]["message"].endswith(" tokens > 1000 maximum")


async def test_headers_tell_the_limits(caller: Caller, clock: FakeClock) -> None:
    async def left() -> int:
        async with caller.session.post(
            caller.server.url + "/v1/messages", json=body(), headers=HEADERS
        ) as response:
            assert response.headers["anthropic-ratelimit-requests-limit"] == "4000"
            assert response.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
            return int(response.headers["anthropic-ratelimit-requests-remaining"])

    assert [await left(), await left()] == [3_999, 3_998]
    await clock.advance(61)
    assert await left() == 3_999


async def test_answers_are_queued_then_scripted_then_an_echo(caller: Caller) -> None:
    async def words() -> str:
        return str((await caller.post(body(user("context", "你好"))))[1]["content"][0]["text"])

    caller.server.answer("queued")
    caller.server.script(lambda given: f"scripted {len(given['messages'])}")
    assert [await words(), await words()] == ["queued", "scripted 1"]

    async def later(given: Json) -> script.Reply:
        await asyncio.sleep(0)
        return script.reply(given["model"])

    caller.server.script(later)
    assert await words() == "claude-sonnet-5-5"
    caller.server.script(None)
    assert await words() == "echo: 你好"
    assert [seen.status for seen in caller.server.requests] == [200] * 4


async def test_an_answer_takes_its_time_on_the_servers_clock(caller: Caller, clock: FakeClock) -> None:
    caller.server.answer("slow", delay=5.0)
    asked = asyncio.create_task(caller.post(body()))
    await caller.server.until(lambda: clock.sleeping == 1)
    await clock.advance(4.9)
    assert not asked.done()
    await clock.advance(0.2)
    assert (await asked)[0] == 200
    assert (caller.server.active, caller.server.peak) == (0, 1)


async def test_the_models_and_their_windows(caller: Caller) -> None:
    caller.server.windows["local-model"] = 5_000
    checks: dict[str, Callable[[Json], bool]] = {
        "/v1/models": lambda answer: answer["data"][-1]["id"] == "local-model",
        "/v1/models/local-model": lambda answer: answer["max_input_tokens"] == 5_000,
    }
    for path, check in checks.items():
        async with caller.session.get(caller.server.url + path, headers=HEADERS) as response:
            assert response.status == 200
            assert check(await response.json())
        async with caller.session.get(caller.server.url + path) as response:
            assert response.status == 401


@pytest.mark.parametrize(
    "make", [script.refused_key, script.unpaid, script.overloaded, script.prompt_too_long]
)
async def test_failures_have_the_services_body(caller: Caller, make: Callable[[], script.Failure]) -> None:
    failure = make()
    caller.server.then(failure)
    status, answer = await caller.post(body())
    assert status == failure.status
    assert set(answer) == {"type", "error", "request_id"}
    assert (await caller.post(body()))[0] == 200


async def test_an_argument_is_held_back_until_it_is_whole_unless_the_tool_asks_otherwise(
    caller: Caller,
) -> None:
    given = {"path": "a" * 30, "note": "é" * 30}
    schema = {"type": "object"}
    for eager, pieces in (({"eager_input_streaming": True}, 7), ({}, 2)):
        caller.server.answer(script.tool_use("write", given))
        tools = [{"name": "write", "input_schema": schema} | eager]
        asked = body(user("Hi"), tools=tools, stream=True)
        url = f"{caller.server.url}/v1/messages"
        async with caller.session.post(url, json=asked, headers=HEADERS) as answer:
            lines = (await answer.text()).splitlines()
        raw = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        deltas = [one["delta"].get("partial_json") for one in raw if one["type"] == "content_block_delta"]
        assert len(list(filter(None, deltas))) == pieces
        assert json.loads("".join(deltas)) == given
