"""A rerun of a turn has no effects, and its answers are shown beside the recorded ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from bot.cli.replay import NO_RESULT, TAKEN, recorded, rerun
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.features.replay import RecordedRequest
from bot.llm.messages_api import wire
from bot.testing.model import ScriptedModel, reply, text, tool_use

LOOK = tool_use("skills_list")
SEND = tool_use("chat_send", text="完了")


def said(words: str) -> Message:
    return {"role": "user", "content": [text(words)]}


def result(call: Json, words: str) -> Message:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": words}]}


def turn() -> list[RecordedRequest]:
    """Return a turn that listed the skills and answered."""
    asked: list[Message] = [said("go")]
    records = []
    for number, block in enumerate((LOOK, SEND)):
        request = ModelRequest(
            model="m", max_tokens=10, system=[text("static"), text("chat")], messages=tuple(asked)
        )
        answer: Json = {
            "stopReason": "tool_use",
            "content": [block],
            "costUsd": 0.25,
            "usage": {"outputTokens": 2},
        }
        body = wire(request)
        records.append(
            RecordedRequest(str(number), "telegram:chat:1", "T", None, "turn", "m", "", body, None, answer)
        )
        asked += [{"role": "assistant", "content": [block]}, result(block, "found")]
    return records


async def test_calls_have_their_recorded_results_and_nothing_is_sent() -> None:
    model = ScriptedModel(
        reply(tool_use("skills_list")),
        reply(tool_use("run_shell", command="ls")),
        reply(tool_use("chat_send", text="da")),
    )
    came = await rerun(turn(), model, name="other", static="Answer in one word.")
    assert (came.answer, came.unknown, came.totals["calls"]) == ("da", ["run_shell"], 3)
    assert {one.model for one in model.requests} == {"other"}
    assert [block["text"] for block in model.requests[0].system] == ["Answer in one word.", "chat"]
    shown = [json.dumps(one.messages) for one in model.requests]
    assert "found" in shown[1]
    assert NO_RESULT in shown[2]
    assert TAKEN not in shown[2]


def test_what_is_recorded_is_told_with_its_cost() -> None:
    came: Any = recorded(turn())
    assert (came.answer, came.totals["costUsd"], came.totals["outputTokens"]) == ("完了", 0.5, 4)


def test_an_answer_that_was_continued_is_told_whole() -> None:
    first, second = turn()
    first = replace(first, answer={"stopReason": "max_tokens", "content": [text("It is ")]})
    second = replace(second, answer={"stopReason": "end_turn", "content": [text("完了.")]})
    assert recorded([first, second]).answer == "It is 完了."
