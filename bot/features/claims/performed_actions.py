"""Records the tool calls of a turn and of the turn's subagents as `PerformedAction`s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

import regex

from bot.contracts.base import Json, Message
from bot.contracts.tools import MCP, Effect, ToolCall, ToolResult
from bot.features.claims.detection import Kind
from bot.tools.builtin.chat_send import ChatSend
from bot.tools.dispatch import CallWrapper
from bot.tools.permissions.defaults import SCHEDULING
from bot.tools.registry import Registry

TASK = "task"
_LOOKS = regex.compile(
    "check|count|describe|fetch|find|get|inspect|list|lookup|query|read|search|show|status|view|whoami",
    regex.IGNORECASE,
)
"""Verbs in names of third-party tools that only read."""
_EVERYTHING: frozenset[Kind] = frozenset({"sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"})
_BY_EFFECT: dict[Effect, frozenset[Kind]] = {
    "write": frozenset({"saved", "deleted"}),
    "run": frozenset({"saved", "deleted", "ran", "acted"}),
    "message": frozenset({"sent", "mailed", "acted"}),
}


@dataclass(frozen=True, slots=True)
class PerformedAction:
    """A tool call that was run. `worked` is True if the tool reported no failure."""

    tool: str
    effects: frozenset[Effect]
    worked: bool
    looks: bool = False

    def bears_out(self, *, inside: bool = True) -> frozenset[Kind]:
        """Return the kinds of claims that this action supports. A subagent whose calls are unknown (`inside`
        is False) supports all kinds.
        """
        if self.looks:
            return frozenset()
        if self.tool == ChatSend.name:
            return frozenset({"sent"})
        if self.tool.startswith(MCP) or (self.tool == TASK and not inside):
            return _EVERYTHING
        if self.tool in SCHEDULING:
            return frozenset({"scheduled", "acted"})
        if {"run", "network"} <= self.effects:
            return _EVERYTHING  # a command that reaches the network may do anything
        return frozenset().union(*(_BY_EFFECT.get(effect, ()) for effect in self.effects))


@dataclass(slots=True)
class PerformedActions:
    """The tool calls of a turn. `calling` counts the running tools."""

    done: list[PerformedAction] = field(default_factory=list)
    calling: int = 0


_current: ContextVar[PerformedActions | None] = ContextVar("performed_actions", default=None)


def record_here() -> PerformedActions:
    """Start recording in the current asyncio task, which belongs to one turn."""
    actions = PerformedActions()
    _current.set(actions)
    return actions


@dataclass(frozen=True, slots=True)
class ActionRecorder:
    """A `tools.dispatch.CallWrapper` that records each call that was run."""

    around: CallWrapper
    registry: Registry

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        actions = _current.get()
        if actions is None:
            return await self.around(call, run)

        async def seen() -> ToolResult:
            actions.calling += 1
            try:
                result = await run()
            finally:
                actions.calling -= 1
            actions.done.append(action_of(call, self.registry, failed=result.failed))
            return result

        return await self.around(call, seen)


def action_of(call: ToolCall, registry: Registry, *, failed: bool) -> PerformedAction:
    """Return a call as a `PerformedAction`."""
    tool = registry.get(call.name)
    effects = tool.effects if tool is not None else frozenset[Effect]()
    return PerformedAction(call.name, effects, not failed, _looks(call, effects))


def _looks(call: ToolCall, effects: frozenset[Effect]) -> bool:
    """Return True if a call can only have read something."""
    name = call.name
    if name.startswith(MCP):
        words = regex.findall(r"[A-Z]?[a-z]+", name.split("__", 2)[-1])
        return effects == {"read"} or (bool(words) and _LOOKS.fullmatch(words[0]) is not None)
    if name == "memory":
        return bool(call.input.get("command") == "view")
    return name == "schedule_list" or effects == {"read"}


def performed_in(messages: Iterable[Message], registry: Registry) -> list[PerformedAction]:
    """Return the actions of the tool calls in these messages. Whether a call worked is taken from its result."""
    calls: dict[str, ToolCall] = {}
    found: list[PerformedAction] = []
    for message in messages:
        content = message["content"]
        blocks: Sequence[Json] = content if isinstance(content, list) else ()
        for block in blocks:
            if block.get("type") == "tool_use":
                calls[block["id"]] = ToolCall.of(block)
            elif block.get("type") == "tool_result" and block["tool_use_id"] in calls:
                call, result = calls[block["tool_use_id"]], ToolResult.of(block)
                found.append(action_of(call, registry, failed=result.failed))
    return found
