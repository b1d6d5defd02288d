"""A fake model for tests that answers from a queue."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from bot.contracts.base import Json
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, ModelStream, TextDelta

_ids = itertools.count(1)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def tool_use(name: str, **arguments: Any) -> Json:
    """Return a tool call block with a unique id."""
    return {"type": "tool_use", "id": f"toolu_{next(_ids):06}", "name": name, "input": arguments}


def reply(*blocks: Json, stop_reason: str | None = None, cut: Iterable[str] = ()) -> ModelReply:
    """Return an answer made of these blocks."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    return ModelReply(content=list(blocks), stop_reason=reason, model="scripted", cut=frozenset(cut))


Answer = ModelReply | Exception | Callable[[ModelRequest], "ModelReply | Exception"]


class ScriptedModel:
    """A `contracts.model.Model` that answers from a queue. When the queue is empty, the model echoes the
    last text through `chat_send`. `requests` lists the requests.

    A queued answer is a `ModelReply`, an exception, or a function that takes the request and returns either.
    If `hold` is an event, calls wait until it is set. Each call sets the event `asked`.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers: deque[Answer] = deque(answers)
        self.requests: list[ModelRequest] = []
        self.hold: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.known = ModelFacts()
        """`ModelFacts` that are returned for every model name."""
        self.asked_of: list[str] = []

    async def stream(self, request: ModelRequest) -> ModelStream:
        self.requests.append(request)
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        answer: Answer = self.answers.popleft() if self.answers else _echo
        if not isinstance(answer, ModelReply | Exception):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        for block in answer.content:
            if block["type"] == "text":
                yield TextDelta(block["text"])
        yield answer

    async def check(self) -> None:
        """Do nothing; the check always succeeds."""

    async def facts(self, model: str) -> ModelFacts:
        self.asked_of.append(model)
        return self.known

    async def close(self) -> None:
        """Do nothing; there is nothing to close."""


def _echo(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]["content"][-1]
    if last["type"] == "tool_result":
        return reply()
    return reply(tool_use("chat_send", text=f"echo: {last.get('text', '')}"))
