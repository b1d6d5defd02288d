"""Who shows people what takes long is told of the calls that run, and of no others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.tools import Effect, ToolCall, ToolResult
from bot.telemetry.context import task_scope
from bot.tools import context
from bot.tools.context import ToolExecutionContext
from bot.tools.dispatch import CallWatcher
from bot.tools.registry import Registry
from tests.unit.tools.conftest import Says


class Heard:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, object]] = []

    def began(self, request_id: str, call: ToolCall) -> None:
        self.events.append((request_id, call.id, call.name))

    def noted(self, request_id: str, call_id: str, words: str | None) -> None:
        self.events.append((request_id, call_id, words))

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        self.events.append((request_id, call_id, failed))


def tool(name: str, *effects: Effect) -> Any:
    made = Says(name, "")
    made.effects = frozenset(effects)
    return made


REGISTRY = Registry([tool("look", "read"), tool("say", "message"), tool("task", "delegate")])


async def straight(_: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    return await run()


async def refused(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    return ToolResult(call.id, "no", failed=True)


async def called(
    heard: Heard, name: str, *, inner: Any = straight, inside: bool = False, result: Any = None
) -> ToolResult:
    nobody: Any = None
    turn = ToolExecutionContext(ChatKey("telegram", "1"), "01REQ", "77", None, nobody)

    async def run() -> ToolResult:
        if isinstance(result, BaseException):
            raise result
        return ToolResult("toolu_1", "done") if result is None else result

    with context.tool_scope(turn), task_scope("01TASK") if inside else contextlib.nullcontext():
        return await CallWatcher(inner, REGISTRY, heard)(ToolCall("toolu_1", name), run)


async def test_a_call_is_told_of_from_when_it_runs_to_its_end() -> None:
    heard = Heard()
    assert await called(heard, "look") == ToolResult("toolu_1", "done")
    assert heard.events == [("01REQ", "toolu_1", "look"), ("01REQ", "toolu_1", False)]


async def test_a_failure_is_told_as_one_and_what_is_stopped_ends_with_its_turn() -> None:
    heard = Heard()
    await called(heard, "look", result=ToolResult("toolu_1", "no", failed=True))
    with pytest.raises(asyncio.CancelledError):
        await called(heard, "look", result=asyncio.CancelledError())
    assert [told for _, _, told in heard.events] == ["look", True, "look"]


@pytest.mark.parametrize("name", ["say", "task", "unknown"])
async def test_messages_tasks_and_what_does_not_exist_are_not_told_of(name: str) -> None:
    heard = Heard()
    assert await called(heard, name) == ToolResult("toolu_1", "done")
    assert heard.events == []


async def test_a_call_that_is_refused_or_still_waits_for_an_approval_does_not_run() -> None:
    heard = Heard()
    assert await called(heard, "look", inner=refused) == ToolResult("toolu_1", "no", failed=True)
    assert heard.events == []
