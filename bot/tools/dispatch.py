"""The registry of tools, and the dispatcher, which runs the tool calls of one step.

Each call is validated and has a time limit. Calls that only read or start subagents run concurrently. Results are in the calls'
order.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Protocol

import pydantic

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Log, Redact, off_loop
from bot.contracts.messages import ANYBODYS, NOBODYS, Provenance
from bot.contracts.tools import MCP, READS, Effect, FoundTools, Pictured, Tool, ToolCall, ToolResult
from bot.storage.artifacts import ArtifactStore
from bot.telemetry import redaction
from bot.telemetry.log import describe
from bot.tools import context
from bot.tools.permissions import taint
from bot.tools.result_limits import READER, TOKEN, ResultLimits, fitting


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool in the catalog: the definition for the model, and the title and description that the tool's source gave.
    `server` is the tool's MCP server. `instructions` are that server's notes on its tools.
    """

    definition: Json
    title: str
    words: str
    server: str = ""
    instructions: str = ""

    @property
    def name(self) -> str:
        return str(self.definition["name"])


class ToolCatalog:
    """The tools that `tool_search` can find in addition to the tools that every request declares. The tools may change at any
    time. This base class has no tools. `sources` names each source of tools, such as an MCP server, with its state.
    """

    def get(self, name: str) -> Tool | None:
        del name
        return None

    def offers(self) -> Sequence[ToolOffer]:
        return ()

    def sources(self) -> Mapping[str, str]:
        return {}


NOTHING = ToolCatalog()
_NULL = {"type": "null"}
_NOISE = frozenset({"title", "minLength", "maxLength", "pattern", "format"})
"""Schema keywords that are not sent to the model, to save tokens. Arguments are still validated against these keywords."""
SEARCH = "tool_search"
ALWAYS = frozenset({"chat_send", "chat_load_history", SEARCH})
"""Tools that every request declares, however small the context window is."""


class Registry:
    """The tools of one agent. Each request declares some of these tools, sorted by name so that the cached prefix of requests
    stays the same. All other tools are in the catalog (`more`).
    """

    def __init__(self, tools: Iterable[Tool], more: ToolCatalog = NOTHING) -> None:
        self._more = more
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self.definitions: tuple[Json, ...] = tuple(map(definition, self._tools.values()))

    @functools.cached_property
    def forms(self) -> tuple[tuple[Json, ...], ...]:
        """Return three lists of definitions, largest first: complete definitions, definitions without descriptions of
        arguments, and only the tools in `ALWAYS`. With the last list, the model finds all other tools with `tool_search`.
        """
        brief = tuple(
            {**one, "input_schema": _without(one["input_schema"], "description")} for one in self.definitions
        )
        if SEARCH not in self._tools:
            return self.definitions, brief
        rest = ", ".join(name for name in self._tools if name not in ALWAYS)
        search = {"description": f"Find more tools to call: {rest}, and those of MCP servers."}
        few = (one | search if one["name"] == SEARCH else one for one in brief if one["name"] in ALWAYS)
        return self.definitions, brief, tuple(few)

    def behind(self, declared: Sequence[Json]) -> tuple[Json, ...]:
        """Return the definitions of the tools in this registry that a request with the definitions `declared` leaves out."""
        names = {one["name"] for one in declared}
        return tuple(one for one in self.definitions if one["name"] not in names)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._more.get(name)

    def without(self, barred: Container[str]) -> Registry:
        return Registry((tool for name, tool in self._tools.items() if name not in barred), self._more)

    def names(self) -> list[str]:
        return list(self._tools)


def definition(tool: Tool) -> Json:
    """Return the definition of a tool for the Messages API."""
    declared = {"name": tool.name, "description": tool.description, "input_schema": input_schema(tool.input)}
    return declared | ({"eager_input_streaming": True} if getattr(tool, "eager", False) else {})


@functools.cache
def input_schema(model: type[pydantic.BaseModel]) -> Json:
    schema: Json = _flat(model.model_json_schema())
    schema.pop("description", None)
    return schema


def _flat(value: Any) -> Any:
    """Return a shortened schema: without the keywords in `_NOISE`, without null for optional arguments, and with
    one `type` list instead of several plain types in `anyOf`. A field that is named like a keyword is kept.
    """
    if isinstance(value, list):
        return [_flat(item) for item in value]
    if not isinstance(value, dict):
        return value
    flat = {key: _flat(item) for key, item in value.items() if key not in _NOISE or isinstance(item, dict)}
    options = flat.get("anyOf")
    if isinstance(options, list) and _NULL in options:
        left = [one for one in options if one != _NULL]
        types = [one["type"] for one in left if one.keys() == {"type"}]
        several = {"type": types} if len(types) == len(left) else {"anyOf": left}
        option = left[0] if len(left) == 1 else several
        flat = option | {key: item for key, item in flat.items() if key != "anyOf"}
    if flat.get("default", "") is None:
        del flat["default"]
    return flat


def _without(value: Any, word: str) -> Any:
    if isinstance(value, dict):
        return {
            key: _without(item, word)
            for key, item in value.items()
            if not (key == word and isinstance(item, str))
        }
    return [_without(item, word) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------ dispatch

CUT_OFF = (
    "This call did not arrive whole (the output limit was reached) and was not executed. "
    "Call again with shorter input, or in several calls."
)
UNRECORDED = (
    "This was not run: it cannot be written down now that it begins, and without that a crash could make it run "
    "twice. Tell the person, or try again later."
)
LOG_PREVIEW = 4_000  # Max characters of a call's input, and of its result, in a log line
_SIDE_BY_SIDE: frozenset[Effect] = frozenset({"read", "delegate"})
_MESSAGE: frozenset[Effect] = frozenset({"message"})


class Recorder(Protocol):
    """Records calls with effects in the log. After a crash, the records prevent such a call from running twice."""

    async def started(self, call: ToolCall) -> None:
        """Record that a call starts. Return only when the record is on disk. Raises `errors.StorageError`."""

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """Record that a call has ended."""


CallWrapper = Callable[[ToolCall, Callable[[], Awaitable[ToolResult]]], Awaitable[ToolResult]]
"""Function that wraps each call that has no recorded result yet. It runs the call, or returns a result of its own."""


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
    around: CallWrapper = lambda _, run: run()
    pictures: bool = True

    async def run(
        self, calls: Sequence[ToolCall], cut: frozenset[str] = frozenset(), recorder: Recorder | None = None
    ) -> list[ToolResult]:
        """Run the calls of one step and return their results in the order of the calls.

        A call with effects that cannot be recorded is not run. The size of each result, and of all results together, is
        limited. A result that exceeds a limit is stored whole as an artifact.
        """
        limits, results = ResultLimits(self.registry, self.artifacts, self.log), dict[str, ToolResult]()

        async def judged(call: ToolCall) -> None:
            with context.scope(context.CALL, call.id):
                if call.id in cut:
                    results[call.id] = await self._one(call, limits, Failure(CUT_OFF, "cut"))
                else:
                    run = partial(self._recorded, call, recorder, limits)
                    results[call.id] = await self.around(call, run)

        with context.scope(context.STEP, [call for call in calls if call.id not in cut]):
            for beside, some in itertools.groupby(calls, lambda call: self._effects(call) <= _SIDE_BY_SIDE):
                if beside:
                    async with asyncio.TaskGroup() as group:
                        for call in some:
                            group.create_task(judged(call))
                else:
                    for call in some:
                        await judged(call)
        return await limits.step(calls, [results[call.id] for call in calls])

    def narrowed(self, registry: Registry, around: Callable[[CallWrapper], CallWrapper]) -> Dispatcher:
        """Return a dispatcher with only the tools of `registry` and a further wrapper around calls. Raises ValueError
        if this dispatcher lacks one of these tools.
        """
        if any(self.registry.get(name) is not registry.get(name) for name in registry.names()):
            raise ValueError("a narrowed dispatcher has a tool of its own")
        return replace(self, registry=registry, around=around(self.around))

    async def _recorded(self, call: ToolCall, recorder: Recorder | None, limits: ResultLimits) -> ToolResult:
        effects = self._effects(call)
        if recorder is None or effects <= READS:
            return await self._one(call, limits)
        try:
            # A call that sends a message needs no record here, because the log stores the message before it is sent.
            if effects != _MESSAGE:
                await recorder.started(call)
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
        # Redact secrets before the text is cut, because half a secret would not be recognised.
        arguments = self.redact(json.dumps(call.input, ensure_ascii=False))
        self.log.write("tool_call", name, tool=name, tool_use_id=call.id, **self._shown("input", arguments))
        with context.scope(context.PROVENANCE, list[Provenance]()) as told:
            done = cut or await self._attempt(call, tool)
        usual = taint.usual(tool.name, tool.effects) if tool is not None else NOBODYS
        origin = functools.reduce(Provenance.__or__, told or [usual])
        passed = partial(self._write, call, duration=(self.clock.monotonic() - began) * 1000)
        if isinstance(done, FoundTools):
            passed("done", found=[one["name"] for one in done.definitions])
            clean: list[Json] = [text.deep(one, self.redact) for one in done.definitions]
            tools = [{"type": "tool_reference", "tool_name": one["name"], "definition": one} for one in clean]
            if any(one["name"].startswith(MCP) for one in clean):
                origin = ANYBODYS  # MCP servers wrote these definitions
            said = {server: text.clean(self.redact(words)) for server, words in done.instructions.items()}
            return ToolResult(call.id, tools, origin=origin, instructions=said)
        pictures, failed, pointer, kept = list[str](), None, "", None
        if isinstance(done, Failure):
            failed, words = done, done.model
            if done.whole is not None:
                kept = await limits.keep(call, await self._clean(done.whole), origin)
                pointer = f"\n[whole output: artifact {kept}, read it with {READER}]" if kept else ""
        elif isinstance(done, Pictured):
            pictures, words = [*done.pictures] if self.pictures else [], done.words
        else:
            words = done
        stored, notes = await limits.pictures(call, pictures, self.redact)
        content = await self._clean(words) + pointer + notes
        shown, left_out = await limits.one(call, content, origin)
        passed(
            "failed" if failed else "done",
            level="warn" if failed else "info",
            failure=failed.operator if failed else None,
            artifact=kept if left_out is None else left_out.artifact,
            **self._shown("result", content),
        )
        return ToolResult(
            call.id, shown or "(no output)", failed is not None, origin, left_out, pictures=stored
        )

    def _write(self, call: ToolCall, ended: str, **more: Any) -> None:
        name = text.preview(call.name, 80)
        self.log.write("tool_result", f"{name} {ended}", tool=name, tool_use_id=call.id, **more)

    async def _clean(self, words: str) -> str:
        return await off_loop(len(words), redaction.LONG, lambda: text.clean(self.redact(words)))

    def _shown(self, what: str, content: str) -> dict[str, Any]:
        if not self.log_content:
            return {f"{what}_length": len(content)}
        return {what: text.shorten_middle(content, LOG_PREVIEW)}

    async def _attempt(self, call: ToolCall, tool: Tool | None) -> str | FoundTools | Pictured | Failure:
        if tool is None:
            names, named = ", ".join(self.registry.names()), text.preview(call.name, 80)
            told = f"There is no tool named {named!r}. There are: {names}. `tool_search` finds others."
            return Failure(told, "unknown")
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
            # The message may contain all output of a command. Use a thread, because shortening the message may take long.
            return await asyncio.to_thread(failure, error, tool.name, self.redact)


# ------------------------------------------------------------ failures

STREAM = 1_000 * TOKEN
"""Max token estimate of each output stream of a command (1,000 tokens). Of a longer stream, only the end is kept."""
MESSAGE, GOT, PROBLEMS = 300, 100, 20
"""Max characters of a field's error, max characters of the field's value, and max fields in a description of invalid arguments."""
_EXPECTED = re.compile(r".*? should (?:be |have |match )?(?=\S)")
"""Pattern of the beginning of a pydantic message, such as "Input should be a valid integer"."""
_NAMED = {"missing": "a value", "extra_forbidden": "no field of this name"}


@dataclass(frozen=True, slots=True)
class Failure:
    """Descriptions of a failed call for the model and for the operator. The model's text never contains a traceback, a secret
    or a path outside the project. If the model's text was shortened, `whole` is the full text.
    """

    model: str
    operator: str
    whole: str | None = None


def failure(error: Exception, tool: str, redact: Redact = str) -> Failure:
    """Return a description of an error that a tool raised. Only the operator gets the message of an unexpected error,
    because it may contain anything.
    """
    operator = redact(describe(error))
    if isinstance(error, errors.CommandFailed):
        return _command(error, tool, redact, operator)
    if isinstance(error, errors.ToolError):
        return Failure(redact(str(error)), type(error).__name__)
    if isinstance(error, errors.ShipmateError):
        return Failure(f"{tool} failed: {error.for_model}", operator)
    if isinstance(error, OSError) and error.errno is not None:
        named = error.filename if isinstance(error.filename, str) else ""
        # Paths outside the project are not shown.
        where = f" ({text.preview(redact(named), GOT)})" if named and named[0] not in "/~" else ""
        code = errno.errorcode.get(error.errno, "error")
        return Failure(f"{tool} failed with {code}{where}: {error.strerror or 'it failed'}.", operator)
    return Failure(f"{tool} failed: {type(error).__name__}. Try another way.", operator)


def unfit(error: pydantic.ValidationError, redact: Redact = str) -> Failure:
    """Return a description of invalid arguments, one line per field: `- field: expected what, got what`."""
    problems = error.errors(include_url=False)
    lines = [_problem(problem, redact) for problem in problems[:PROBLEMS]]
    if len(problems) > PROBLEMS:
        lines.append(f"- and {len(problems) - PROBLEMS} more")
    head = "The input does not fit the tool; it was not run."
    return Failure("\n".join([head, *lines, "Mend the input and call again."]), "invalid input")


def _problem(problem: Mapping[str, Any], redact: Redact) -> str:
    field = ".".join(str(part) for part in problem["loc"]) or "input"
    kind, message = problem["type"], text.preview(redact(problem["msg"]), MESSAGE)
    expected = _NAMED.get(kind) or _EXPECTED.sub("", message, count=1)
    got, value = "nothing", problem["input"]
    if kind != "missing":
        shown = f"the text {value[: 20 * GOT]!r}" if isinstance(value, str) else str(value)[: 20 * GOT]
        got = text.preview(redact(shown), GOT)
    words = f"expected {expected}, got {got}"
    if expected == message:
        words = message.removeprefix("Value error, ")
    return f"- {text.preview(redact(field), GOT)}: {words}"


def _command(error: errors.CommandFailed, tool: str, redact: Redact, operator: str) -> Failure:
    whole = {"stdout": redact(error.stdout).rstrip("\n"), "stderr": redact(error.stderr).rstrip("\n")}
    short = {name: text.shorten_middle(one, max(100, fitting(one, STREAM))) for name, one in whole.items()}
    ended = f"exit code {error.status}" if error.status >= 0 else f"signal {-error.status}"
    head = f"{tool}: the command ended with {ended}."
    if error.limit is not None:
        ended = f"stopped after {error.limit:g} s"
        head = (
            f"{tool}: the command took longer than {error.limit:g} s and was stopped; part of it may be done."
        )
    if error.over is not None:
        ended = f"stopped: {error.over}"
        head = f"{tool}: the command was stopped: {error.over}. Part of it may be done; do it with less."

    def rendered(streams: Mapping[str, str]) -> str:
        parts = []
        for name, words in streams.items():
            if words:
                longest = max((len(run) for run in re.findall(r"`{3,}", words)), default=2)
                fence = "`" * (longest + 1)
                parts.append(f"{name}:\n{fence}\n{words}\n{fence}")
        return "\n".join([head, *(parts or ["It printed nothing."])])

    return Failure(rendered(short), f"{operator} ({ended})", rendered(whole) if whole != short else None)
