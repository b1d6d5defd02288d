"""The tests that every model must pass, for any provider. `test_<name>_model.py` subclasses `ModelContract`.

A subclass supplies the fixture `model`. The model must answer through the tool `chat_send` if the request
offers it, else in text.
"""

from __future__ import annotations

import abc
import asyncio
import copy
import json
from typing import Any

import pytest

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.testing import anthropic_rules

EVERYDAY = (
    "hello",
    "你好，今天天气怎么样？",
    "ありがとう、また明日",
    "مرحبا بالعالم، كيف حالك؟",
    "👨‍👩‍👧‍👦 🇪🇺 👍🏽 e\u0301",
    '"quoted" \\ back\nand a new line',
    "x" * 20_000,
)
CHAT_SEND: Json = {
    "name": "chat_send",
    "description": "Send the reply.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
Item = TextDelta | ToolInputDelta | ModelReply


def request(*messages: Message, tools: tuple[Json, ...] = (CHAT_SEND,)) -> ModelRequest:
    return ModelRequest(
        model="claude-sonnet-5-5",
        max_tokens=1_000,
        system=({"type": "text", "text": "You are a helpful assistant."},),
        messages=messages,
        tools=tools,
    )


def said(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


async def ask(model: Model, asked: ModelRequest) -> tuple[list[TextDelta | ToolInputDelta], ModelReply]:
    """Return the deltas and the reply. The check fails unless there is exactly one reply, at the end."""
    *deltas, reply = [item async for item in model.stream(asked)]
    assert isinstance(reply, ModelReply)
    previews = [item for item in deltas if not isinstance(item, ModelReply)]
    assert len(previews) == len(deltas)
    return previews, reply


def nothing_is_none(value: Any) -> bool:
    if isinstance(value, dict):
        return all(item is not None and nothing_is_none(item) for item in value.values())
    return all(map(nothing_is_none, value)) if isinstance(value, list) else True


class ModelContract(abc.ABC):
    """Tests of a model."""

    @abc.abstractmethod
    def model(self) -> Any:
        """Create the model; close it after the test."""

    @pytest.mark.parametrize(
        "words", EVERYDAY, ids=lambda words: words[:12].encode("unicode_escape").decode()
    )
    @pytest.mark.parametrize("tools", [(), (CHAT_SEND,)], ids=["text", "tool"])
    async def test_deltas_are_a_preview_of_the_reply(
        self, model: Model, words: str, tools: tuple[Json, ...]
    ) -> None:
        deltas, reply = await ask(model, request(said(words), tools=tools))
        assert deltas
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        assert text == "".join(block["text"] for block in reply.content if block["type"] == "text")
        for block in reply.content:
            if block["type"] == "tool_use":
                pieces = [d for d in deltas if isinstance(d, ToolInputDelta) and d.tool_use_id == block["id"]]
                assert json.loads("".join(piece.partial_json for piece in pieces)) == block["input"]
                assert {piece.name for piece in pieces} == {block["name"]}

    async def test_a_reply_is_whole_and_accounted_for(self, model: Model) -> None:
        _, reply = await ask(model, request(said("hello")))
        assert reply.content
        assert nothing_is_none(reply.content)
        assert reply.model
        assert reply.cut == frozenset()
        assert min(reply.usage.input_tokens, reply.usage.output_tokens) > 0
        assert reply.latency_ms >= 0
        assert (reply.stop_reason == "tool_use") is any(
            block["type"] == "tool_use" for block in reply.content
        )

    async def test_what_it_says_can_be_sent_back_until_it_is_done(self, model: Model) -> None:
        messages: list[Message] = []
        for words in ("hello", "你好", "again"):
            messages.append(said(words))
            for _ in range(8):
                asked = request(*messages)
                self.must_be_valid(asked)
                _, reply = await ask(model, asked)
                messages.append({"role": "assistant", "content": reply.content})
                calls = [block["id"] for block in reply.content if block["type"] == "tool_use"]
                if not calls:
                    break
                results = [
                    {"type": "tool_result", "tool_use_id": call, "content": "Delivered."} for call in calls
                ]
                messages.append({"role": "user", "content": results})
            assert messages[-1]["role"] == "assistant", "it comes to an end"

    @staticmethod
    def must_be_valid(asked: ModelRequest) -> None:
        """Raise if the provider would refuse the request."""
        anthropic_rules.check(
            {
                "model": asked.model,
                "max_tokens": asked.max_tokens,
                "system": list(asked.system),
                "tools": list(asked.tools),
                "messages": list(asked.messages),
            },
            anthropic_rules.Leave(),
        )

    async def test_the_request_stays_as_it_was(self, model: Model) -> None:
        asked = request(said("hello"))
        before = copy.deepcopy(asked)
        _, reply = await ask(model, asked)
        reply.content.append({"type": "text", "text": "mine"})
        assert asked == before

    async def test_leaving_in_the_middle_harms_nobody(self, model: Model) -> None:
        stream = model.stream(request(said("x" * 5_000)))
        assert isinstance(await anext(aiter(stream)), TextDelta | ToolInputDelta)
        await stream.aclose()
        _, reply = await ask(model, request(said("hello")))
        assert reply.stop_reason

    async def test_answers_side_by_side_do_not_mix(self, model: Model) -> None:
        names = [f"number {number} 号" for number in range(20)]
        replies = await asyncio.gather(*(ask(model, request(said(name))) for name in names))
        for name, (_, reply) in zip(names, replies, strict=True):
            assert name in json.dumps(reply.content, ensure_ascii=False)

    async def test_check_is_content_and_close_may_be_called_twice(self, model: Model) -> None:
        await model.check()
        await model.close()
        await model.close()

    async def test_its_facts_are_numbers_that_make_sense_or_nothing_unless_it_knows_no_such_model(
        self, model: Model
    ) -> None:
        for name in ("claude-sonnet-5-5", "no-such-model"):
            try:
                facts = await model.facts(name)
            except errors.ModelUnknown:
                continue
            for figure in (facts.window, facts.max_output):
                assert figure is None or figure > 0
