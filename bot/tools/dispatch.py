"""Runs the tool calls of one step. Each call is validated and has a time limit. Calls that only read or delegate run
concurrently. Results keep the order of the calls.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
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
from bot.tools.failures import Failure, failure, unfit
from bot.tools.permissions import taint
from bot.tools.registry import Registry
from bot.tools.result_limits import ResultLimits


class ToolWatch(Protocol):
    """Receives reports of every running tool call of a turn, except of calls that send messages or start subagents."""

    def began(self, request_id: str, call: ToolCall) -> None:
        """Record that a call has started. Never blocks and never raises."""

    def noted(self, request_id: str, call_id: str, words: str | None) -> None:
        """Record the progress of a call; None means that the call waits for a person. Never blocks and never raises."""

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        """Record that a call has ended. Never blocks and never raises."""


CUT_OFF = (
    "This call did not arrive whole (the output limit was reached) and was not executed. "
    "Call again with shorter input, or in several calls."
)
UNRECORDED = (
    "This was not run: it cannot be written down now that it begins, and without that a crash could make it run "
    "twice. Tell the person, or try again later."
)
LOG_PREVIEW = 4_000  # characters
_SIDE_BY_SIDE: frozenset[Effect] = frozenset({"read", "delegate"})
_MESSAGE: frozenset[Effect] = frozenset({"message"})


class Recorder(Protocol):
    """Records tool calls in the log. After a crash, the records prevent a call with effects from running twice."""

    async def started(self, call: ToolCall, *, wait: bool) -> None:
        """Record that a call with effects starts. If `wait` is True, return only when the record is on disk. Raises
        `errors.StorageError`.
        """

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """Record that a call with effects has ended."""

    def looked(self, call: ToolCall, result: ToolResult, began_at: float) -> None:
        """Record a call without effects after it has ended; `began_at` is in epoch seconds."""


class CallWrapper(Protocol):
    """Wraps each call that has no recorded result. It runs the call, or returns another result without running it."""

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult: ...


async def unwrapped(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    """Run the call unchanged. This is the default `CallWrapper`."""
    del call
    return await run()


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Runs tool calls and returns tool results. An error of a tool becomes a result; a cancellation propagates."""

    registry: Registry
    _: KW_ONLY
    clock: Clock
    log: Log
    log_content: bool = True
    redact: Redact = str
    artifacts: ArtifactStore | None = None
    around: CallWrapper = unwrapped
    pictures: bool = True

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
        limits = ResultLimits(self.registry, self.artifacts, self.log)
        left = [call for call in calls if call.id not in known]
        results = dict(known)

        async def judged(call: ToolCall) -> ToolResult:
            with context.scope(context.CALL, call.id):
                if call.id in cut:
                    return await self._one(call, limits, Failure(CUT_OFF, "cut"))
                return await self.around(call, partial(self._recorded, call, recorder, limits))

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
        return await limits.step(calls, [results[call.id] for call in calls])

    def narrowed(self, registry: Registry, around: Callable[[CallWrapper], CallWrapper]) -> Dispatcher:
        """Return a dispatcher with only the tools of `registry` and a further wrapper around calls. Raises ValueError
        if this dispatcher lacks one of these tools.
        """
        if any(self.registry.get(name) is not registry.get(name) for name in registry.names()):
            raise ValueError("a narrowed dispatcher has a tool of its own")
        return replace(self, registry=registry, around=around(self.around))

    async def _recorded(self, call: ToolCall, recorder: Recorder | None, limits: ResultLimits) -> ToolResult:
        if recorder is None:
            return await self._one(call, limits)
        effects = self._effects(call)
        if effects <= READS:
            began_at = self.clock.now()
            result = await self._one(call, limits)
            recorder.looked(call, result, began_at)
            return result
        try:
            # A message is queued in the same log, after this record, before it is sent.
            await recorder.started(call, wait=effects != _MESSAGE)
        except errors.StorageError as error:
            self._write(call, "was not run", level="error", failure=f"{type(error).__name__}: {error}")
            return ToolResult(call.id, UNRECORDED, failed=True, origin=NOBODYS)
        result = await self._one(call, limits)
        recorder.finished(call, result)
        return result

    def _effects(self, call: ToolCall) -> frozenset[Effect]:
        tool = self.registry.get(call.name)
        return tool.effects if tool is not None else frozenset()

    async def _one(self, call: ToolCall, limits: ResultLimits, cut: Failure | None = None) -> ToolResult:
        began, tool = self.clock.monotonic(), self.registry.get(call.name)
        name = text.preview(call.name, 80)
        # Redaction comes before the cut, because half a secret would not be recognised.
        arguments = self.redact(json.dumps(call.input, ensure_ascii=False))
        self.log.write("tool_call", name, tool=name, tool_use_id=call.id, **self._shown("input", arguments))
        with context.scope(context.PROVENANCE, list[Provenance]()) as told:
            done = cut or await self._attempt(call, tool)
        usual = taint.usual(tool.name, tool.effects) if tool is not None else NOBODYS
        origin = functools.reduce(Provenance.__or__, told or [usual])
        passed = partial(self._write, call, duration=(self.clock.monotonic() - began) * 1000)
        if isinstance(done, FoundTools):
            passed("done", found=[one["name"] for one in done.definitions])
            return self._found(call, done, origin)
        pictures = done.pictures if isinstance(done, Pictured) and self.pictures else ()
        failed = done if isinstance(done, Failure) else None
        words = (
            done.words if isinstance(done, Pictured) else done.model if isinstance(done, Failure) else done
        )
        content, pointer = await self._clean(words), ""
        if failed is not None and failed.whole is not None:
            pointer = await limits.pointer(call, await self._clean(failed.whole), origin)
        shown, left_out = await limits.one(call, content, origin)
        passed(
            "failed" if failed else "done",
            level="warn" if failed else "info",
            failure=failed.operator if failed else None,
            artifact=limits.kept.get(call.id),
            **self._shown("result", content),
        )
        kept, notes = await limits.pictures(call, pictures, self.redact)
        whole = shown + pointer + notes or "(no output)"
        return ToolResult(call.id, whole, failed is not None, origin, left_out, pictures=kept)

    def _found(self, call: ToolCall, found: FoundTools, origin: Provenance) -> ToolResult:
        clean = [json.loads(self.redact(json.dumps(one, ensure_ascii=False))) for one in found.definitions]
        content = [{"type": "tool_reference", "tool_name": one["name"], "definition": one} for one in clean]
        if any(one["name"].startswith(MCP) for one in clean):
            origin = ANYBODYS  # MCP servers wrote these definitions
        said = {server: text.clean(self.redact(words)) for server, words in found.instructions.items()}
        return ToolResult(call.id, content, origin=origin, instructions=said)

    def _write(self, call: ToolCall, ended: str, **more: Any) -> None:
        name = text.preview(call.name, 80)
        self.log.write("tool_result", f"{name} {ended}", tool=name, tool_use_id=call.id, **more)

    async def _clean(self, words: str) -> str:
        """Redact and clean a text. A long text is cleaned in a thread."""
        return await off_loop(len(words), redaction.LONG, lambda: text.clean(self.redact(words)))

    def _shown(self, what: str, content: str) -> dict[str, Any]:
        """Return the text of a call for the log: a preview, or only the length if logging of text is off."""
        if not self.log_content:
            return {f"{what}_length": len(content)}
        return {what: text.shorten_middle(content, LOG_PREVIEW)}

    async def _attempt(self, call: ToolCall, tool: Tool | None) -> str | FoundTools | Pictured | Failure:
        if tool is None:
            names, named = ", ".join(self.registry.names()), text.preview(call.name, 80)
            return Failure(
                f"There is no tool named {named!r}. There are: {names}. `tool_search` finds others.",
                "unknown",
            )
        try:
            args = tool.input.model_validate(call.input)
        except pydantic.ValidationError as error:
            return unfit(error, self.redact)
        limit = asyncio.timeout(tool.timeout_seconds)
        try:
            async with limit:
                return await tool.run(args)
        except Exception as error:  # noqa: BLE001 - a tool may fail in any way; the turn goes on
            if isinstance(error, TimeoutError) and limit.expired():
                seconds = f"{tool.timeout_seconds:g}"
                told = f"{tool.name} took longer than {seconds} s and was stopped. Ask for less at once."
                return Failure(told, "timeout")
            # The error message may be long, because it contains everything that a command printed.
            return await asyncio.to_thread(failure, error, tool.name, self.redact)


def _said_before(view: Sequence[Message], call_id: str) -> str:
    """Return the model's thinking in its last answer, just before this call; "" if there is none."""
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
    """Wraps another `CallWrapper` and reports its running calls to `watch`. A call is not reported while it waits for
    approval. Calls inside a subagent are reported together with the subagent.
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
            # A cancelled call does not reach this line. It counts as stopped, together with its turn.
            self.watch.ended(turn.request_id, call.id, failed=result.failed)
            return result

        tool = self.registry.get(call.name)
        alone = tool is None or tool.effects <= _UNWATCHED or running.current().task is not None
        return await self.inner(call, run if alone else watched)
