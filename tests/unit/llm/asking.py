"""Helpers to build requests and to read replies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from bot import errors
from bot.contracts.base import Json
from bot.contracts.model import Model, ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta

Item = TextDelta | ToolInputDelta | ModelReply


def user(*words: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": part} for part in words]}


def ask(*messages: Json, **how: Any) -> ModelRequest:
    """Return a request. A plain text becomes one message of the user."""
    values: dict[str, Any] = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1_000,
        "system": ({"type": "text", "text": "You are a helpful assistant."},),
        "messages": messages or (user("Hello, 你好"),),
    }
    return ModelRequest(**(values | how))


CALL = "toolu_earlier"
SECOND_STEP = (
    user("Please look it up"),
    {"role": "assistant", "content": [{"type": "tool_use", "id": CALL, "name": "look", "input": {"q": "é"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL, "content": "found"}]},
)
"""A conversation before the second step of a turn."""


def tool(name: str) -> Json:
    return {"name": name, "description": "A tool.", "input_schema": {"type": "object", "properties": {}}}


async def items(model: Model, request: ModelRequest) -> list[Item]:
    return [item async for item in model.stream(request)]


async def reply_of(model: Model, request: ModelRequest | None = None) -> ModelReply:
    """Return the only reply, which must be the last item of the stream."""
    got = await items(model, request or ask())
    assert isinstance(got[-1], ModelReply)
    assert not any(isinstance(item, ModelReply) for item in got[:-1])
    return got[-1]


class ScriptedModel:
    """A fake model. Each attempt plays one list of deltas, a reply or an error."""

    def __init__(self, *attempts: Sequence[Item | errors.ModelError]) -> None:
        self.attempts = list(attempts)
        self.asked: list[ModelRequest] = []
        self.closed_streams = 0
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Item, None]:
        self.asked.append(request)
        try:
            for item in self.attempts.pop(0):
                if isinstance(item, errors.ModelError):
                    raise item
                yield item
        finally:
            self.closed_streams += 1

    async def check(self) -> None:
        if self.attempts:
            raise errors.ModelRefused

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts()

    async def close(self) -> None:
        self.closed = True
