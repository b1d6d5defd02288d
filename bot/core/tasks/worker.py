"""Runs one subagent task: the agent loop in the task's own chat, within limits. The task has the tools and permissions
of the turn that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import tomllib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bot import errors, tags, text
from bot.contracts.approvals import Approval, Approvals, Verdict
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json, Message
from bot.contracts.environment import ends_within
from bot.contracts.inbound import Inbound
from bot.contracts.model import ModelReply, ModelRequest, ModelStream
from bot.contracts.provenance import Provenance
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, events, user_message
from bot.core.agent import AgentDeps
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.context import ContextEntry
from bot.core.event_log import EventLog
from bot.core.fit import Fit, Frame
from bot.core.loop import Loop, OlderMessages, Refused, ToolCalls
from bot.core.memory import in_plain_words
from bot.core.prompt import Frozen
from bot.core.reply import NoReply
from bot.core.tasks import limits
from bot.core.tasks.limits import Allowance, LimitReached, TaskEvent, TaskEventKind, TaskTotals
from bot.core.user_message import TurnRequest
from bot.llm.wrapper import ModelWrapper, usage_object, words_of
from bot.tags import LAST_STEP
from bot.tools.context import Injection, ToolExecutionContext
from bot.tools.dispatch import CallWrapper
from bot.tools.permissions import taint
from bot.tools.permissions.defaults import SCHEDULING
from bot.tools.permissions.display import visible
from bot.words import say

BARRED = frozenset({"task", "chat_send"}) | SCHEDULING
"""Names of tools that no task has."""
REFUSALS = 3
"""Number of denied calls at which a task is stopped."""
PURPOSE = "subagent"
PLACEHOLDER = "A worker of its own carries this out."
"""Result of every call in a step that forks tasks. All forks see the same text, so they share the provider's cache."""
SUMMARY = 3_000
"""Max characters of the summary that the turn gets. The transcript has the whole text."""
NO_SUMMARY = "(no summary)"

_TEXTS = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))
PROMPTS = {name: words.replace("<rule>", _TEXTS["rule"]) for name, words in _TEXTS.items()}
"""Prompts for a fresh task, for a fork, and for the synthesis of several results."""


@dataclass(frozen=True, slots=True)
class TaskPorts:
    """Services for the tasks of a turn. `parent` builds the turn's requests; tasks use its models, prompt and tools."""

    chats: Chats
    event_log: EventLog
    parent: Fit
    agent: AgentDeps
    found: Callable[[Sequence[Message], Message, Sequence[Path]], Awaitable[Sequence[Message]]]
    """Function that returns messages to add after tool results (see `Loop.found`). Its first argument is the list of
    messages that the task has seen.
    """
    boot: str


TaskStatus = Literal["whole", "cut", "silent", "failed"]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one task. `content` is the task's summary, or the reason why there is none. `footer` states calls,
    tokens, cost and seconds. `failed_calls` counts tool calls that failed.
    """

    call_id: str
    label: str
    prompt: str
    content: str
    status: TaskStatus
    footer: str
    tools_used: tuple[str, ...]
    failed_calls: int
    tokens: int


class Worker:
    """Runs the task that a tool call started, reports its progress and counts its usage. `around` is the context of
    that call, `before` are the task's totals in earlier processes. `first_token` is set when the model begins to
    answer.
    """

    def __init__(
        self,
        chat: Chat,
        call_id: str,
        ordered: events.Ordered,
        *,
        around: ToolExecutionContext,
        parent: Chat,
        allowance: Allowance,
        first_token: asyncio.Event,
        before: TaskTotals,
        ports: TaskPorts,
    ) -> None:
        self._chat = chat
        self.id = ordered.inbound.request_id
        self._call_id = call_id
        self.label = ordered.label
        self.asked_by = around.request_id
        self._prompt = ordered.inbound.text
        self._mode = ordered.mode
        self._around = around
        self._ports = ports
        self.agent = ports.agent
        self.limits = ports.agent.tasks
        self.allowance = allowance
        self.first_token = first_token
        self._totals = before
        self._began: float | None = None
        self._waits = 0
        self._waits_since = 0.0
        self._over = False
        self._kept = False
        self._refused = 0
        self._steered = False
        self.last_call = ""
        """Limit that allows no further model call after the latest; "" if another call fits."""
        models = self.models = replace(ports.parent.models, purpose="task")
        self._prefix: list[Message] = []
        self._frame = Frame(Frozen(""), self._system(), ports.agent.registry.without(BARRED).forms)
        if self._mode == "fork":
            shown = parent.context.shown()
            calls = blocks.tool_calls(shown[-1]["content"])
            results = [ToolResult(call.id, PLACEHOLDER).block for call in calls]
            shown.append({"role": "user", "content": results})
            if models.name != ports.parent.models.name:
                shown = blocks.without_thinking(map(in_plain_words, shown))
            self._prefix = shown
            self._frame = Frame(Frozen(""), ports.parent.frame.system, (tuple(ports.parent.tools),))
        fit = Fit(
            chat,
            models,
            ports.agent.limits,
            ages=lambda name: (tool := ports.agent.registry.get(name)) is not None and tool.ages,
            append=self._append,
            clock=ports.agent.clock,
            log=ports.agent.log,
            redact=ports.agent.redact,
            prefix=self._prefix,
            purpose=PURPOSE,
        )
        seen = around.injection if self._prefix else None
        self._older = OlderMessagesOfTask(self, chat, self._append, seen)
        self._loop = Loop(
            chat,
            self.id,
            ports.chats,
            model=LimitedModel(self),
            frame=self._begun,
            tell=self._told,
            found=self._found,
            before_turn=_room_is_there,
            before_asking=_mask_results,
            calls=TaskCalls(self, chat, ports, self._older),
            reply=NoReply(),
            wrapped=NoReply(),
            fit=fit,
            agent=ports.agent,
            boot=ports.boot,
            most_steps=self.limits.max_model_calls + 1,
        )
        self._tell("queued")

    def _system(self) -> list[Json]:
        """Return the system prompt of a fresh task. It is the same for all tasks, so that the provider caches it."""
        words = f"{PROMPTS['fresh']}\nprojectRoot: {self.agent.root}"
        return [{"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}]

    async def run(self, slots: asyncio.Semaphore) -> TaskResult:
        """Run the task once a slot is free, report its end, and return the result."""
        try:
            async with slots:
                self._start()
                words, limit = await self._within_time(self._work()), ""
        except LimitReached as error:
            words, limit = self._last_words(), error.words
        except errors.ShipmateError as error:
            cause = (
                "The language model declined this task." if isinstance(error, Refused) else error.for_model
            )
            self.close("failed", cause, error.person)
            return await self._result(cause, "failed")
        self.close("ended", f"It was {limit}." if limit else "", say("progress.limit") if limit else "")
        words = self.agent.redact(words).strip()
        if len(words) > SUMMARY:
            words = text.head(words, SUMMARY).rstrip() + " … (cut: the whole is in the transcript)"
        if limit:
            known = f"What it said last:\n{words}" if words else "It had said nothing yet."
            return await self._result(f"({limit}) {known}", "cut")
        return await self._result(words or NO_SUMMARY, "whole" if words else "silent")

    async def _work(self) -> str:
        """Run the task's loop and return the last text. Raises `LimitReached`, or `errors.ShipmateError` on failure."""
        await self._loop.run()
        if self.last_call and len(self._entries) > 2:
            raise limits.limit_reached(self.last_call)
        running = self._chat.context.running
        return running.words if running is not None else ""

    async def _within_time(self, work: Coroutine[Any, Any, str]) -> str:
        """Run `work` within the task's time limit. Waits for people do not count. Raises `LimitReached`."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                left = self.limits.max_seconds - self._seconds
                if left <= 0:
                    raise limits.limit_reached(f"{self.limits.max_seconds:g} seconds")
                await ends_within(max(left, 1.0), task, self.agent.clock)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    # ------------------------------------------------------------ reports

    @property
    def totals(self) -> TaskTotals:
        return replace(self._totals, seconds=self._seconds)

    @property
    def _seconds(self) -> float:
        """Return the seconds that the task has worked, without its waits for people."""
        if self._began is None:
            return 0.0
        return (self._waits_since if self._waits else self.agent.clock.monotonic()) - self._began

    def _start(self) -> None:
        self._began = self.agent.clock.monotonic()
        self.agent.log.write("task", "a task begins", mode=self._mode, tool_use_id=self._call_id)
        self._tell("started")

    def answered(self, reply: ModelReply, charged_usd: float) -> None:
        """Count an answer of the model. `charged_usd` is its cost towards the limits."""
        self._totals = self._totals.with_answer(reply.usage, reply.cost_usd, charged_usd)
        self._tell("model")

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Do not count the time inside the `with` block, in which the task waits for a person."""
        if not self._waits:
            self._waits_since = self.agent.clock.monotonic()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits and self._began is not None:
                self._began += self.agent.clock.monotonic() - self._waits_since

    def close(self, kind: Literal["ended", "failed", "stopped"], error: str, told: str = "") -> None:
        """Report the end of the task, once. `error` goes to the log; `told` is the sentence for people."""
        if self._over:
            return
        self._over = True
        totals = self.totals
        self.agent.log.write(
            "task",
            f"the task has {kind}",
            level="warn" if error else "info",
            duration=totals.seconds * 1000,
            tool_use_id=self._call_id,
            error=error or None,
            model_calls=totals.model_calls,
            tool_calls=totals.tool_calls,
            usage=usage_object(totals.usage),
            cost_usd=None if totals.unpriced else round(totals.cost_usd, 6),
            artifact=self.id,
        )
        self._tell(kind, told)

    def _tell(self, kind: TaskEventKind, error: str = "") -> None:
        calls, most, now = self._totals.model_calls, self.limits.max_model_calls, self.agent.clock.now()
        event = TaskEvent(kind, self.id, self._around.request_id, now, self.label, calls, most, error)
        self.agent.task_events(event)

    async def _result(self, content: str, status: TaskStatus) -> TaskResult:
        await self._keep()
        totals, said = self.totals, [one.message["content"] for one in self._entries]
        cost = "unknown price" if totals.unpriced else f"${totals.cost_usd:.4f}"
        steps = f"all its steps: read_artifact {self.id}" if self._kept else "its steps could not be kept"
        return TaskResult(
            self._call_id,
            self.label,
            self._prompt,
            content,
            status,
            f"[task: {totals.model_calls} model calls, {totals.tool_calls} tool calls, {totals.tokens:,} tokens, "
            f"{cost}, {totals.seconds:.0f} s; {steps}]",
            tools_used=tuple(call.name for one in said for call in blocks.tool_calls(one)),
            failed_calls=sum(bool(block.get("is_error")) for one in said for block in one),
            tokens=totals.tokens,
        )

    async def _keep(self) -> None:
        """Write the task's transcript. If the disk refuses it, the task still succeeds."""
        messages = [one.message for one in self._entries]
        head = f"Task “{self.label}” ({self._mode}) of the turn {self._around.request_id}"
        said = (f"== {one['role']}\n{words_of(one['content'])}" for one in messages)
        try:
            await self.agent.artifacts.put(
                self.agent.redact("\n\n".join([head, *said])),
                chat_key=self._around.chat_key,
                request_id=self._around.request_id,
                tool="task",
                tool_use_id=self._call_id,
                artifact_id=self.id,
                origin=self.origin,
            )
            self._kept = True
        except errors.StorageError as error:
            self.agent.log.write(
                "storage", "a task's transcript is not kept", level="error", cause=str(error)
            )

    def _last_words(self) -> str:
        said = (one.message for one in reversed(self._entries) if one.message["role"] == "assistant")
        return next(filter(str.strip, (blocks.plain_text(one["content"]) for one in said)), "")

    @property
    def origin(self) -> Provenance:
        """Return the sources whose text the task's answer may contain."""
        return taint.seen(self._view())

    @property
    def _entries(self) -> Sequence[ContextEntry]:
        running = self._chat.context.running
        return running.entries if running is not None else ()

    def _view(self) -> list[Message]:
        # The turn's model wrote the task's instructions, so the sources of the turn are sources of the task.
        context = self._chat.context
        return [*context.older(), *self._around.view(), *context.current()[1:]]

    # ------------------------------------------------------------ functions for the task's loop

    async def _begun(self) -> Frame:
        return self._frame

    async def _told(self, inbound: Inbound) -> events.Told:
        around, agent = self._around, self.agent
        if self._mode == "fork":
            words = PROMPTS["fork"].format(prompt=inbound.text)
            message: Message = {"role": "user", "content": [{"type": "text", "text": words}]}
        else:
            request = TurnRequest(around.request_id, around.chat_key, prompt=inbound.text)
            nonce = tags.nonce(agent.ids.ulid())
            message = user_message.build(request, int(agent.clock.now() * 1000), nonce)
        return events.Told(message, (inbound.request_id,))

    async def _found(self, results: Message, touched: Sequence[Path]) -> Sequence[Message]:
        return await self._ports.found([*self._prefix, *self._chat.context.current()], results, touched)

    def _append(self, data: events.EventData) -> None:
        self._ports.chats.append(Fact(self._chat.key, data, self.id))

    def limited(self, request: ModelRequest, size: int) -> ModelRequest:
        """Return the request, estimated at `size` tokens, with an output limit that fits. If no call fits after this
        one, the request tells the model so. Raises `LimitReached`.
        """
        usd = limits.at_most(self.models.prices, request.model, size, limits.ANSWER_TOKENS)
        most, self.last_call = limits.next_call(self.limits, self._totals, usd, size, request.max_tokens)
        request = replace(request, max_tokens=most)
        if not self.last_call or not self._totals.model_calls:
            return request
        *before, newest = request.messages
        content = [*newest["content"], {"type": "text", "text": LAST_STEP}]
        return replace(request, messages=(*before, {**newest, "content": content}))

    # ------------------------------------------------------------ the task's tools

    def context(self, touched: Callable[[Path], object]) -> ToolExecutionContext:
        """Return the context for the task's tool calls, with the turn's person, chat and permissions."""
        return replace(
            self._around,
            reply=None,
            injection=self._older,
            view=self._view,
            touched=touched,
            tasks=None,
            approvals=lambda one: TaskApprovals(one, self),
        )

    async def call(
        self, around: CallWrapper, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Run a tool call of the task inside the wrapper that the turn's calls have too, and count the call."""
        ran = False

        async def through() -> ToolResult:
            nonlocal ran
            ran = True
            return await run()

        result = await around(call, through)
        if not ran:
            self._refused += 1
        self._totals = replace(self._totals, tool_calls=self._totals.tool_calls + 1)
        return result

    async def decide(self, approvals: Approvals, *asked: Approval) -> Verdict:
        """Ask a person for approval. If the person writes a message instead, stop the task after this step."""
        with self.waiting():
            verdict = await approvals.decide(*asked)
        self._steered = self._steered or verdict.ended == "steered"
        return verdict

    def check_going_on(self) -> None:
        """Raise `LimitReached` if the task may not continue after this step."""
        if self._steered:
            raise LimitReached("stopped: the person wrote something new, which comes first")
        # More attempts would be denied too.
        if self._refused >= REFUSALS:
            raise LimitReached("stopped: its calls were refused again and again")


class LimitedModel(ModelWrapper):
    """Calls a task's model within the task's limits."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.models.model)
        self._worker = worker

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the answer to a request (see `contracts.model.Model`). Raises `LimitReached`."""
        worker, name, prices = self._worker, request.model, self._worker.models.prices
        size = worker.models.estimator.request(request)
        request = worker.limited(request, size)
        most = request.max_tokens
        with worker.allowance.reserved(size + most, limits.at_most(prices, name, size, most)):
            async for piece in self._model.stream(request):
                worker.first_token.set()
                if isinstance(piece, ModelReply):
                    charged = prices.at_most(name, piece.usage, piece.cost_usd)
                    worker.allowance.spend(limits.tokens(piece.usage), charged)
                    worker.answered(piece, charged)
                yield piece


class TaskCalls(ToolCalls):
    def __init__(self, worker: Worker, chat: Chat, ports: TaskPorts, injection: Injection) -> None:
        self._worker = worker
        registry = ports.agent.registry.without(BARRED)
        super().__init__(
            chat,
            chat.turn.id if chat.turn is not None else "",
            ports.chats,
            ports.event_log,
            ports.agent.dispatcher.narrowed(registry, lambda around: partial(worker.call, around)),
            reply=None,
            queued=lambda _: False,
            boot=ports.boot,
            injection=injection,
        )

    async def run(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run these calls (see `ToolCalls.run`). Raises `LimitReached` if the task may not continue."""
        if self._worker.last_call:
            raise limits.limit_reached(self._worker.last_call)
        await super().run(calls, cut)
        self._worker.check_going_on()

    def _context(self, first: Inbound, people: Sequence[str]) -> ToolExecutionContext:
        del first, people
        return self._worker.context(self.touched.append)


class TaskApprovals:
    """Implements `contracts.approvals.Approvals` for a task. Each question to a person names the task."""

    def __init__(self, approvals: Approvals, worker: Worker) -> None:
        self._approvals = approvals
        self._worker = worker

    async def decide(self, *asked: Approval) -> Verdict:
        label = visible(self._worker.label)
        return await self._worker.decide(self._approvals, *(replace(one, task=label) for one in asked))


class OlderMessagesOfTask(OlderMessages):
    """Implements `tools.context.Injection` for a task. `seen` is the turn's `Injection` if the task is a fork."""

    def __init__(
        self, worker: Worker, chat: Chat, append: Callable[[events.EventData], None], seen: Injection | None
    ) -> None:
        agent = worker.agent
        super().__init__(chat, worker.id, agent.limits.max_injected_messages, append, agent.ids)
        self._asked_by = worker.asked_by
        self._seen = seen

    def in_view(self, line: ArchiveLine) -> bool:
        if line.request_id >= self._asked_by or super().in_view(line):
            return True
        return self._seen is not None and self._seen.in_view(line)


async def _room_is_there(_: Fit) -> None:
    """Do nothing, because a task's first request fits."""


async def _mask_results(fit: Fit) -> None:
    """Mask old tool results of a task. The transcript keeps them."""
    fit.mask_old("size", above=fit.budget().limit)
