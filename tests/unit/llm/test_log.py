"""Each request to the model and its answer are logged. The configured model logs its requests and retries them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import UserRef
from bot.contracts.model import ModelReply, TextDelta, Usage
from bot.llm.client import AnthropicModel
from bot.llm.wrapper import MESSAGE_PREVIEW, TOTAL_PREVIEW, LoggedModel, previews
from bot.system import SystemClock, UlidSource
from bot.telemetry.log import turn_scope
from bot.testing import anthropic_script as script
from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.unit.llm.asking import ScriptedModel, ask, items, tool, user

WORDS = "the parrot says 你好鹦鹉"
ANSWER = "the answer is 四十二"
REPLY = ModelReply(
    content=[
        {"type": "text", "text": ANSWER},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"q": "parrots of 巴西"}},
    ],
    stop_reason="tool_use",
    usage=Usage(1, 2, 3, 4),
    model="claude-sonnet-5-5",
    cost_usd=0.5,
    latency_ms=120,
    first_token_ms=20,
    provider_request_id="req_1",
    detail={"explanation": "words about parrots"},
)
REQUEST = ask(
    user("<turn_context>{}</turn_context>", WORDS),
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_0", "name": "look", "input": {"q": WORDS}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_0", "content": "polly the parrot"}],
    },
    tools=(tool("look"),),
    purpose="turn",
)
SECRETS = ("parrot", "鹦鹉", "四十二", "巴西", "polly", "helpful assistant")


def logged(
    model: ScriptedModel, log: MemoryLog, *, messages: bool = True, payload: bool = False
) -> LoggedModel:
    return LoggedModel(
        model, log=log, ids=UlidSource(), clock=FakeClock(), messages=messages, payload=payload
    )


async def test_a_call_makes_two_lines_linked_by_its_id() -> None:
    log = MemoryLog()
    assert await items(logged(ScriptedModel([TextDelta("t"), REPLY]), log), REQUEST) == [
        TextDelta("t"),
        REPLY,
    ]
    assert log.kinds == ["llm_request", "llm_response"]
    request, response = (entry.details for entry in log.entries)
    assert request["call_id"] == response["call_id"]
    assert request["model"] == "claude-sonnet-5-5"
    assert (request["message_count"], request["tool_count"], request["purpose"]) == (3, 1, "turn")
    expected: dict[str, Any] = {
        "model": "claude-sonnet-5-5",
        "stop_reason": "tool_use",
        "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4},
        "cost_usd": 0.5,
        "latency_ms": 120,
        "first_token_ms": 20,
        "provider_request_id": "req_1",
        "purpose": "turn",
        "tool_calls": ["look"],
    }
    assert {key: response[key] for key in expected} == expected


async def test_an_answer_and_a_failure_name_who_caused_them() -> None:
    log, model = MemoryLog(), ScriptedModel([REPLY], [errors.Overloaded("busy")])
    with turn_scope(person=UserRef("slack", "U1")):
        await items(logged(model, log), REQUEST)
        with pytest.raises(errors.Overloaded):
            await items(logged(model, log), REQUEST)
    assert [entry.details["person"] for entry in log.of("llm_response")] == ["slack:U1", "slack:U1"]


async def test_messages_are_previewed_when_they_are_logged() -> None:
    log = MemoryLog()
    await items(logged(ScriptedModel([REPLY]), log), REQUEST)
    request, response = (entry.details for entry in log.entries)
    assert [one["text"] for one in request["messages"]] == ["[tool_result] polly the parrot"], "what is new"
    assert ANSWER in response["messages"][0]["text"]
    assert "payload" not in request
    assert "helpful assistant" not in log.text


@pytest.mark.parametrize("payload", [False, True])
async def test_off_means_no_words_in_any_line(payload: bool) -> None:
    log = MemoryLog()
    model = ScriptedModel([REPLY], [errors.Overloaded("The provider answered 529")])
    silent = logged(model, log, messages=False, payload=payload)
    await items(silent, REQUEST)
    with pytest.raises(errors.Overloaded):
        await items(silent, REQUEST)
    assert len(log.entries) == 4
    assert [word for word in SECRETS if word in log.text] == []


async def test_off_holds_where_the_provider_repeats_the_words(server: AnthropicServer) -> None:
    log, model = (
        MemoryLog(),
        AnthropicModel(api_key=KEY, base_url=server.url, clock=SystemClock(), quotes=False),
    )
    silent = LoggedModel(model, log=log, ids=UlidSource(), clock=FakeClock(), messages=False)
    server.then(
        script.error(400, "invalid_request_error", f"cannot read: {WORDS}"),
        script.error_event(script.reply(ANSWER), message=f"failed at: {WORDS}"),
        script.html_page(400, WORDS),
        script.cut(script.reply(ANSWER)),
        script.refusal(),
    )
    for _ in range(4):
        with pytest.raises(errors.ModelError):
            await items(silent, REQUEST)
    await items(silent, REQUEST)
    await items(silent, REQUEST)
    assert len(log.entries) == 12
    assert [word for word in SECRETS if word in log.text] == []
    await model.close()


async def test_the_payload_is_whole_where_it_is_asked_for() -> None:
    log = MemoryLog()
    await items(logged(ScriptedModel([REPLY]), log, payload=True), REQUEST)
    payload = log.entries[0].details["payload"]
    assert payload["messages"] == list(REQUEST.messages)
    assert payload["system"] == list(REQUEST.system)
    assert payload["tools"] == list(REQUEST.tools)
    assert log.entries[1].details["payload"]["content"] == REPLY.content


async def test_an_answer_that_is_not_waited_for_has_its_line_too() -> None:
    log = MemoryLog()
    model = ScriptedModel([TextDelta("a"), TextDelta("b"), REPLY])
    stream = logged(model, log).stream(REQUEST)
    await anext(aiter(stream))
    await stream.aclose()
    (entry,) = log.of("llm_response")
    assert (entry.level, entry.details["error"]) == ("warn", "Stopped")
    assert model.closed_streams == 1


def test_previews_have_a_size_whatever_the_messages() -> None:
    emoji = "👨‍👩‍👧‍👦"
    messages: list[Json] = [user(emoji * 3_000) for _ in range(10)]
    shown = previews(messages)
    assert all(len(item["text"]) <= MESSAGE_PREVIEW for item in shown)
    assert sum(len(item["text"]) for item in shown) <= TOTAL_PREVIEW
    assert len(shown) == 3
    assert shown[-1]["text"].endswith(emoji + "…")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (script.cut(script.reply(ANSWER)), None),
        (dataclasses.replace(script.reply(ANSWER), edit=lambda wire: wire[:-1]), "end_turn"),
        (script.error_event(script.reply(ANSWER)), None),
    ],
    ids=["broken off", "without its end", "an error in the stream"],
)
async def test_an_answer_that_failed_in_the_middle_tells_its_reason_and_its_cost(
    server: AnthropicServer, model: AnthropicModel, answer: script.Answer, reason: str | None
) -> None:
    log = MemoryLog()
    server.then(answer)
    with pytest.raises(errors.ModelError):
        await items(LoggedModel(model, log=log, ids=UlidSource(), clock=FakeClock(), messages=False), REQUEST)
    (failed,) = [entry.details for entry in log.of("llm_response")]
    assert failed["stop_reason"] == reason
    assert failed["usage"]["inputTokens"] > 0
    assert 0 < failed["cost_usd"] < 1


async def test_a_call_that_was_refused_has_no_cost(server: AnthropicServer, model: AnthropicModel) -> None:
    log = MemoryLog()
    server.then(script.overloaded())
    with pytest.raises(errors.ModelError):
        await items(LoggedModel(model, log=log, ids=UlidSource(), clock=FakeClock(), messages=False), REQUEST)
    (failed,) = [entry.details for entry in log.of("llm_response")]
    assert (failed["stop_reason"], failed["usage"], failed["cost_usd"]) == (None, None, None)


def test_only_the_client_imports_the_providers_library() -> None:
    program = (
        "import sys, bot.llm.demo, bot.llm.wrapper, bot.llm.classify; "
        "assert not {'anthropic', 'httpx2'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
