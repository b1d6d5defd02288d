"""A turn that is asked once more: nothing happens in it, and what comes of it stands beside what is recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot import errors
from bot.agent import recording
from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest, Usage
from bot.contracts.provenance import ORIGIN
from bot.llm.body import wire
from bot.testing import anthropic_rules as rules
from bot.testing.model import ScriptedModel, reply, text, tool_use
from tests.unit.agent.conftest import Added, Bench, each
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_recording import again, request_ids

THINKING: Json = {"type": "thinking", "thinking": "hm", "signature": "s"}


class Other(ScriptedModel):
    """Another model, which refuses what the provider would refuse."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        rules.check(json.loads(wire(request)), rules.Leave(types={"thinking"}))
        async for event in super().stream(request):
            yield event


def results(model: ScriptedModel) -> list[Json]:
    """What the newest request answers to calls."""
    return [one for one in model.requests[-1].messages[-1]["content"] if one["type"] == "tool_result"]


def spending(*blocks: Json, cost: float | None) -> ModelReply:
    answer = reply(*blocks)
    return ModelReply(answer.content, answer.stop_reason, Usage(10, 2, 3, 4), model="other", cost_usd=cost)


async def test_what_the_turn_called_has_its_result_and_nothing_runs(bench: Bench) -> None:
    for number in range(24):
        await bench.store(number, "user", f"früher {number}", request_id=f"00{number:024}")
    bench.configure(max_messages=40)
    bench.model.answers.extend(
        [
            reply(THINKING, tool_use("chat_load_history", limit=2)),
            reply(tool_use("memory", command="create", path="/memories/a.md", file_text="海")),
            reply(tool_use("chat_send", text="完了")),
        ]
    )
    more = [bench.inbound("and blue")]
    await bench.say("go", arrivals=Added(each(more)))
    (request_id,) = (await request_ids(bench))[-1:]
    turn = await again(bench, request_id)
    kept = {file: file.read_bytes() for file in bench.root.rglob("*.*") if file.is_file()}
    model = Other(
        spending(THINKING, tool_use("chat_load_history", limit=2), cost=0.5),
        spending(tool_use("memory", command="view", path="/memories"), cost=0.25),
        spending(tool_use("chat_send", text="I look.", more=True), cost=0.25),
        spending(tool_use("chat_send", text="done"), cost=0.0),
    )
    came = await recording.rerun(turn, model, name="other", static="Be brief.")
    assert came.answer == "I look.\n\ndone"
    assert came.unknown == ["memory"]
    assert came.totals == {
        "calls": 4,
        "inputTokens": 40,
        "outputTokens": 8,
        "cacheReadTokens": 12,
        "cacheWriteTokens": 16,
        "costUsd": 1.0,
    }
    assert bench.chat.seen == ["完了"], "nothing is sent"
    assert {file: file.read_bytes() for file in bench.root.rglob("*.*") if file.is_file()} == kept
    first, second, third, fourth = model.requests
    assert {one.model for one in model.requests} == {"other"}
    assert first.system[0]["text"] == "Be brief."
    assert first.system[1] == (turn.calls[0].request or first).system[1]
    assert "and blue" in str(first.messages), "what joined is there from the beginning"
    assert str(second.messages).count("<loaded_history-") == str(first.messages).count("<loaded_history-") + 2
    assert "loaded" in str(second.messages[-1]["content"][0]["content"]).lower()
    assert third.messages[-1]["content"][0]["content"] == recording.NOT_RECORDED
    assert fourth.messages[-1]["content"][0]["content"] == recording.TAKEN
    assert "thinking" not in {
        block["type"] for one in model.requests for m in one.messages for block in m["content"]
    }


async def test_what_is_recorded_is_told_in_the_same_way(bench: Bench) -> None:
    answers = [tool_use("chat_send", text="hi", more=True), tool_use("chat_send", text="there")]
    bench.model.answers.extend(
        spending(one, cost=cost) for one, cost in zip(answers, (None, 0.1), strict=True)
    )
    await bench.say("hello")
    (request_id,) = await request_ids(bench)
    came = recording.recorded(await again(bench, request_id))
    assert came.answer == "hi\n\nthere"
    assert came.totals["calls"] == 2
    assert came.totals["inputTokens"] == 20
    assert came.totals["costUsd"] is None


async def test_the_same_model_with_the_same_answers_gets_the_same_requests(bench: Bench) -> None:
    answers = [reply(THINKING, tool_use("skills_list")), reply(text("none"))]
    bench.model.answers.extend(answers)
    await bench.say("hello")
    (request_id,) = await request_ids(bench)
    turn = await again(bench, request_id)
    model = ScriptedModel(*answers)
    came = await recording.rerun(turn, model, name=None, static=None)
    assert came.answer == "none"
    assert list(model.requests[0].messages) == list((turn.calls[0].request or model.requests[0]).messages)
    assert results(model) == [
        {key: value for key, value in one.items() if key not in {"cache_control", ORIGIN}}
        for one in turn.calls[0].results
    ]


async def test_a_call_that_was_cut_has_no_result_and_silence_ends_it(bench: Bench) -> None:
    await bench.say("hello")
    (request_id,) = await request_ids(bench)
    turn = await again(bench, request_id)
    call = tool_use("chat_send", text="hal")
    model = ScriptedModel(reply(call, stop_reason="max_tokens", cut=[call["id"]]), reply())
    came = await recording.rerun(turn, model, name=None, static=None)
    assert came.unknown == ["chat_send"]
    assert [one["stopReason"] for one in came.calls] == ["max_tokens", "end_turn"]


async def test_what_cannot_be_asked_is_told(bench: Bench) -> None:
    await bench.say("hello")
    (request_id,) = await request_ids(bench)
    await remove(bench, "1", request_id)
    turn = await again(bench, request_id)
    with pytest.raises(errors.RequestInvalid, match="words were removed"):
        await recording.rerun(turn, ScriptedModel(), name=None, static=None)
