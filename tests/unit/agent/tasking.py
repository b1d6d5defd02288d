"""Tasks under test: a model that answers turns and tasks apart, tools, and what can be seen of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from bot.contracts.base import Message
from bot.contracts.model import ModelReply, ModelRequest, TextDelta, Usage
from bot.contracts.tools import Effect
from bot.testing.model import ScriptedModel, reply
from bot.testing.tasks import MemoryTaskEvents
from bot.tools import context
from tests.unit.agent.conftest import Bench

Script = Callable[[ModelRequest], "ModelReply | Exception"]


class Routed(ScriptedModel):
    """Answers turns from the queue, and tasks by `script`, which may hold them back with `gate`."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script
        self.gate: asyncio.Event | None = None
        self.children: list[ModelRequest] = []
        self.syntheses: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        if request.purpose == "turn":
            async for event in super().stream(request):
                yield event
            return
        (self.children if request.purpose == "subagent" else self.syntheses).append(request)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.script(request)
        if isinstance(answer, Exception):
            raise answer
        yield TextDelta("…")
        yield answer


def asked(request: ModelRequest) -> str:
    """Everything that a request says."""
    return json.dumps(request.messages, ensure_ascii=False)


def steps(request: ModelRequest) -> int:
    """How many answers a request has in it."""
    return sum(message["role"] == "assistant" for message in request.messages)


def priced(*blocks: Any, tokens: int = 0, usd: float | None = 0.0) -> ModelReply:
    return replace(reply(*blocks), usage=Usage(input_tokens=tokens), cost_usd=usd)


def told(bench: Bench) -> list[Message]:
    """The results that the turn was shown last."""
    for message in reversed(bench.model.requests[-1].messages):
        found = [block for block in message["content"] if block["type"] == "tool_result"]
        if found:
            return found
    raise AssertionError("no results")


class Input(BaseModel):
    what: str = ""


class Fake:
    input = Input
    timeout_seconds = 60.0
    ages = True

    def __init__(self, name: str, run: Any = None, effects: frozenset[Effect] = frozenset({"read"})) -> None:
        self.name, self.description, self.effects = name, name, effects
        self._run = run
        self.seen: list[context.ToolExecutionContext] = []

    async def run(self, args: Input) -> str:
        self.seen.append(context.current())
        return str(await self._run(args)) if self._run is not None else "looked"


@pytest.fixture
def work(bench: Bench) -> Callable[..., Routed]:
    """Sets the agent up with a script for its tasks; more fields of `AgentDeps` may be given."""

    def made(script: Script, *tools: Any, **more: Any) -> Routed:
        model = Routed(script)
        bench.configure(model=model, task_events=MemoryTaskEvents())
        bench.add_tools(*tools)
        bench.configure(**more)
        return model

    return made


def events(bench: Bench) -> MemoryTaskEvents:
    assert isinstance(bench.deps.task_events, MemoryTaskEvents)
    return bench.deps.task_events
