"""Runs the tool calls of one step. Calls are validated and have time limits; calls that only read or
delegate run concurrently. Results keep the order of the calls.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import pydantic

from bot import errors, text
from bot.contracts.base import Message
from bot.contracts.environment import Clock, Log, Redact, off_loop
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance
from bot.contracts.tools import MCP, READS, Effect, FoundTools, Pictured, Tool, ToolCall, ToolResult
from bot.storage.artifacts import ArtifactStore
from bot.telemetry import context as running
from bot.telemetry import redaction
from bot.tools import context
from bot.tools.failures import Failure, failure, timed_out, unfit
from bot.tools.permissions import taint
from bot.tools.registry import Registry
from bot.tools.result_limits import ResultLimits


class ToolWatch(Protocol):
    """Is notified of every running tool call of a turn, except calls that send messages or start subagents."""

    def began(self, request_id: str, call: ToolCall) -> None:
        """Record that a call has started. Never blocks and never raises."""
        ...

    def noted(self, request_id: str, call_id: str, words: str | None) -> None:
        """Record the progress of a call; None means that the call waits for a person. Never blocks and never raises."""
        ...

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        """Record that a call has ended. Never blocks and never raises."""
        ...


CUT_OFF = (
    "This call did not arrive whole (the output limit was reached) and was not executed. "
    "Call again with shorter input, or in several calls."
)
UNRECORDED = (
    "This was not run: it cannot be written down now that it begins, and without that a crash could make it run "
    "twice. Tell the person, or try again later."
)
LOG_PREVIEW = 4_000  # characters
_Done = str | FoundTools | Pictured | Failure
_SIDE_BY_SIDE: frozenset[Effect] = frozenset({"read", "delegate"})
_MESSAGE: frozenset[Effect] = frozenset({"message"})


class Recorder(Protocol):
    """Records tool calls in the log, so that after a crash no call with effects runs twice."""

    async def started(self, call: ToolCall, *, wait: bool) -> None:
        """Record that a call with effects starts. With `wait`, the record is on disk when this returns.
        Raises `errors.StorageError`.
        """
        ...

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """Record that a call with effects has ended."""
        ...

    def looked(self, call: ToolCall, result: ToolResult, began_at: float) -> None:
        """Record a call without effects after it has ended; `began_at` is in epoch seconds."""
        ...


class CallWrapper(Protocol):
    """Wraps each call that has no recorded result: runs the call, or returns a result without running it."""

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult: ...


async def unwrapped(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    """Run the call; this is the `CallWrapper` that adds nothing."""
    del call
    return await run()


class Dispatcher:
    """Turns tool calls into tool results. Errors of tools become results; cancellation propagates."""

    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        log: Log,
        log_content: bool = True,
        redact: Redact = str,
        artifacts: ArtifactStore | None = None,
        around: CallWrapper = unwrapped,
        pictures: bool = True,
    ) -> None:
        self._pictures = pictures
        self._around = around
        self._registry = registry
        self._artifacts = artifacts
        self._log_content = log_content
        self._redact = redact
        self._clock = clock
        self._log = log

    async def run(
        self,
        calls: Sequence[ToolCall],
        cut: frozenset[str] = frozenset(),
        recorder: Recorder | None = None,
        known: Mapping[str, ToolResult] = MappingProxyType({}),
    ) -> list[ToolResult]:
        """Run the calls of one step and return their results in the same order.

        A call whose result is in `known` (by id) is not run again; every other call is recorded. A call with
        effects that cannot be recorded is not run. The size of each result, and of all results together, is
        limited. A result that exceeds a limit is stored whole as an artifact.
        """
        sizing = ResultLimits(self._registry, self._artifacts, self._log)
        left = [call for call in calls if call.id not in known]
        results = dict(known)
        judged = partial(self._judged, cut=cut, recorder=recorder, sizing=sizing)
        with context.scope(context.STEP, [call for call in left if call.id not in cut]):
            for beside, run in itertools.groupby(left, lambda call: self._effects(call) <= _SIDE_BY_SIDE):
                some = list(run)
                if beside:
                    async with asyncio.TaskGroup() as group:
                        tasks = [group.create_task(judged(call)) for call in some]
                    results |= {call.id: task.result() for call, task in zip(some, tasks, strict=True)}
                    continue
                for call in some:
                    results[call.id] = await judged(call)
        return await sizing.step(calls, [results[call.id] for call in calls])

    def narrowed(self, registry: Registry, around: Callable[[CallWrapper], CallWrapper]) -> Dispatcher:
        """Return a dispatcher with fewer tools and a further wrapper around calls. Raises ValueError for a
        tool that this dispatcher lacks.
        """
        if any(self._registry.get(name) is not registry.get(name) for name in registry.names()):
            raise ValueError("a narrowed dispatcher has a tool of its own")
        return Dispatcher(
            registry,
            clock=self._clock,
            log=self._log,
            log_content=self._log_content,
            redact=self._redact,
            artifacts=self._artifacts,
            around=around(self._around),
            pictures=self._pictures,
        )

    async def _judged(
        self, call: ToolCall, cut: frozenset[str], recorder: Recorder | None, sizing: ResultLimits
    ) -> ToolResult:
        run = partial(self._recorded, call, cut, recorder, sizing)
        with context.call_scope(call.id):
            return await (run() if call.id in cut else self._around(call, run))

    async def _recorded(
        self, call: ToolCall, cut: frozenset[str], recorder: Recorder | None, sizing: ResultLimits
    ) -> ToolResult:
        if recorder is None or call.id in cut:
            return await self._one(call, cut, sizing)
        effects = self._effects(call)
        if effects <= READS:
            began_at = self._clock.now()
            result = await self._one(call, cut, sizing)
            recorder.looked(call, result, began_at)
            return result
        try:
            # Before a message is sent, it is queued in the same log, after this record.
            await recorder.started(call, wait=effects != _MESSAGE)
        except errors.StorageError as error:
            return self._not_run(call, error)
        result = await self._one(call, cut, sizing)
        recorder.finished(call, result)
        return result

    def _not_run(self, call: ToolCall, error: errors.StorageError) -> ToolResult:
        name = text.preview(call.name, 80)
        cause = f"{type(error).__name__}: {error}"
        self._log.write(
            "tool_result",
            f"{name} was not run",
            level="error",
            tool=name,
            tool_use_id=call.id,
            failure=cause,
        )
        return ToolResult(call.id, UNRECORDED, failed=True, origin=NOBODYS)

    def _effects(self, call: ToolCall) -> frozenset[Effect]:
        """Return the effects of a call; none for an unknown tool."""
        tool = self._registry.get(call.name)
        return tool.effects if tool is not None else frozenset()

    async def _one(self, call: ToolCall, cut: frozenset[str], sizing: ResultLimits) -> ToolResult:
        began = self._clock.monotonic()
        name = text.preview(call.name, 80)
        # The text is redacted before it is cut, because half a secret would not be recognised.
        arguments = self._redact(json.dumps(call.input, ensure_ascii=False))
        self._log.write("tool_call", name, tool=name, tool_use_id=call.id, **self._shown("input", arguments))
        with context.collect_provenance() as told:
            done = Failure(CUT_OFF, "cut") if call.id in cut else await self._attempt(call)
        origin = functools.reduce(Provenance.__or__, told or [self._usual(call)])
        if isinstance(done, FoundTools):
            return self._found(call, done, origin, began)
        found = done.pictures if isinstance(done, Pictured) and self._pictures else ()
        done = done.words if isinstance(done, Pictured) else done
        failed = done if isinstance(done, Failure) else None
        content = await self._clean(done if isinstance(done, str) else done.model)
        pointer = ""
        if failed is not None and failed.whole is not None:
            pointer = await sizing.pointer(call, await self._clean(failed.whole), origin)
        shown, left_out = await sizing.one(call, content, origin)
        self._log.write(
            "tool_result",
            f"{name} {'failed' if failed else 'done'}",
            level="warn" if failed else "info",
            duration=(self._clock.monotonic() - began) * 1000,
            tool=name,
            tool_use_id=call.id,
            failure=failed.operator if failed else None,
            artifact=sizing.artifact(call),
            **self._shown("result", content),
        )
        pictures, notes = await sizing.pictures(call, found, self._redact)
        words = shown + pointer + notes or "(no output)"
        return ToolResult(call.id, words, failed is not None, origin, left_out, pictures=pictures)

    async def _clean(self, words: str) -> str:
        """Redact and clean a text, in a thread if it is long."""
        return await off_loop(len(words), redaction.LONG, lambda: text.clean(self._redact(words)))

    def _usual(self, call: ToolCall) -> Provenance:
        """Return the provenance of a result whose tool reported none."""
        tool = self._registry.get(call.name)
        return taint.usual(tool.name, tool.effects) if tool is not None else NOBODYS

    def _found(self, call: ToolCall, found: FoundTools, origin: Provenance, began: float) -> ToolResult:
        """Return the result of a search for tools: the redacted definitions and server instructions, which
        the model gets.
        """
        self._log.write(
            "tool_result",
            f"{call.name} done",
            duration=(self._clock.monotonic() - began) * 1000,
            tool=call.name,
            tool_use_id=call.id,
            found=[one["name"] for one in found.definitions],
        )
        clean = [json.loads(self._redact(json.dumps(one, ensure_ascii=False))) for one in found.definitions]
        content = [{"type": "tool_reference", "tool_name": one["name"], "definition": one} for one in clean]
        if any(one["name"].startswith(MCP) for one in clean):
            origin = ANYBODYS  # MCP servers wrote these definitions
        said = {server: text.clean(self._redact(words)) for server, words in found.instructions.items()}
        return ToolResult(call.id, content, origin=origin, instructions=said)

    def _shown(self, what: str, content: str) -> dict[str, Any]:
        """Return the text of a call for the log: a preview, or only the length if logging of text is off."""
        if not self._log_content:
            return {f"{what}_length": len(content)}
        return {what: text.shorten_middle(content, LOG_PREVIEW)}

    async def _attempt(self, call: ToolCall) -> _Done:
        """Run a call; return the tool's result, or its failure."""
        tool = self._registry.get(call.name)
        if tool is None:
            names = ", ".join(self._registry.names())
            named = text.preview(call.name, 80)
            return Failure(
                f"There is no tool named {named!r}. There are: {names}. `tool_search` finds others.",
                "unknown",
            )
        try:
            args = tool.input.model_validate(call.input)
        except pydantic.ValidationError as error:
            return unfit(error, self._redact)
        return await self._timed(tool, args)

    async def _timed(self, tool: Tool, args: pydantic.BaseModel) -> _Done:
        limit = asyncio.timeout(tool.timeout_seconds)
        try:
            async with limit:
                return await tool.run(args)
        except Exception as error:  # noqa: BLE001 - a tool may fail in any way; the turn goes on
            if isinstance(error, TimeoutError) and limit.expired():
                return timed_out(tool.name, tool.timeout_seconds)
            # The error message may be long, because it contains everything that a command printed.
            return await asyncio.to_thread(failure, error, tool.name, self._redact)


def _said_before(view: Sequence[Message], call_id: str) -> str:
    """Return the model's thinking just before a call in its last answer; "" if there is none."""
    content = next((one["content"] for one in reversed(view) if one["role"] == "assistant"), ())
    said = ""
    for block in content:
        if block.get("id") == call_id:
            return said
        if block.get("type") in {"thinking", "tool_use"}:
            said = str(block.get("thinking") or "")
    return ""


_UNWATCHED: frozenset[Effect] = frozenset({"message", "delegate"})


@dataclass(frozen=True, slots=True)
class CallWatcher:
    """Wraps another `CallWrapper` and reports calls while they run, but not while they wait for approval.
    Calls inside a subagent are reported together with the subagent.
    """

    inner: CallWrapper
    registry: Registry
    watch: ToolWatch

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        async def watched() -> ToolResult:
            turn = context.current()
            self.watch.began(turn.request_id, call)
            context.progress.set(partial(self.watch.noted, turn.request_id, call.id))
            if said := _said_before(turn.view(), call.id):
                self.watch.noted(turn.request_id, call.id, said)
            result = await run()
            # A cancelled call does not get here; it ends as stopped, together with its turn.
            self.watch.ended(turn.request_id, call.id, failed=result.failed)
            return result

        tool = self.registry.get(call.name)
        alone = tool is None or tool.effects <= _UNWATCHED or running.current().task is not None
        return await self.inner(call, run if alone else watched)
