"""One task: a conversation of its own with the model. Nothing of it enters the view of the turn that asked for it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bot import errors
from bot.agent.chat_totals import ChatTotals
from bot.agent.continuation import ContinuationPolicy
from bot.agent.deps import AgentDeps
from bot.agent.user_message import fresh_nonce, instructions, said_by_servers
from bot.contracts.approvals import Verdict
from bot.contracts.archive import ArchiveKey, ArchiveLine
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.provenance import Provenance
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, estimate, masking, prompt, repair, view
from bot.core.continuation import joined
from bot.core.injection import MOST_TOKENS, fitted
from bot.core.tasks import limits, wording
from bot.core.tasks.limits import Allowance, LimitReached, TaskLimits, TaskStopped
from bot.core.tasks.report import Order, Report
from bot.core.tasks.worker import NOT_WANTED, PURPOSE, REFUSALS, STEERED, TaskApprovals, refused_again
from bot.llm.wrapper import reply_of
from bot.tools.context import Injection, ToolExecutionContext, tool_scope
from bot.tools.dispatch import CallWrapper
from bot.tools.permissions import taint
from bot.tools.permissions.display import visible
from bot.tools.registry import Registry

MAX_TRIES = 3
SHORT_RESULT = 500
"""Characters to which a tool result may be cut where nothing else helps."""
CUTS = "its answers kept reaching the length limit"
WINDOW = "it does not fit into what the language model can read"


class Declined(errors.ShipmateError):
    """The model declined a task."""

    @property
    def for_model(self) -> str:
        return "The language model declined this task."


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of a task's requests: `prefix` is shared with the conversation (() where nothing is), `first` its own."""

    system: Sequence[Json]
    tools: Sequence[Json]
    prefix: tuple[Message, ...]
    first: Message


@dataclass(frozen=True, slots=True)
class Root:
    """The turn's part in a task: its execution context, the allowance of all tasks, and the totals that count its costs."""

    context: ToolExecutionContext
    allowance: Allowance
    chat_totals: ChatTotals
    limits: TaskLimits


class Child:
    """A task at work. Its tools are those of `registry`, all of which the turn has too, and each call is judged as one
    of the turn would be.
    """

    def __init__(
        self,
        order: Order,
        start: Start,
        root: Root,
        *,
        registry: Registry,
        report: Report,
        deps: AgentDeps,
        heard: Callable[[], object],
    ) -> None:
        """`heard` is told at each sign of the model: from the first on, the provider's cache has what was sent."""
        self._heard = heard
        self._order = order
        self._start = start
        self._root = root
        self._report = report
        self._deps = deps
        self.tools_used: list[str] = []
        self.errors = 0
        self._own: list[Message] = [start.first]
        self._masked = set[str]()
        """Calls whose results have given way to a line."""
        self._all: list[Message] = [start.first]
        self._touched: list[Path] = []
        self._refused: list[str] = []
        self._over = ""
        self._last = ""
        seen = root.context.injection if start.prefix else None
        self._loading = HistoryLoader(order.request_id, order.chat_key, deps, seen)
        self._dispatcher = deps.dispatcher.narrowed(registry, lambda around: partial(self._call, around))

    @property
    def words(self) -> str:
        """Its last words."""
        said = (
            blocks.plain_text(one["content"]) for one in reversed(self._own) if one["role"] == "assistant"
        )
        return next((words for words in said if words.strip()), "")

    @property
    def origin(self) -> Provenance:
        """The people whose words have led the task: its answer may hold theirs."""
        return taint.seen(self._context().view())

    async def work(self) -> str:
        """Carry the task out; its last words. Raises `LimitReached`, `Declined`, `errors.ModelError`."""
        continuation = ContinuationPolicy.begun(self._deps)
        await self.keep()
        with tool_scope(self._context()):
            while True:
                reply = continuation.taken(await self._ask(continuation))
                if reply.stop_reason == "refusal":
                    raise Declined
                calls = self._add(reply, continuation.continued)
                await self.keep()
                if calls:
                    await self._act(calls, reply, continuation)
                elif not self._goes_on(reply, continuation):
                    break
        if self._last and len(self._own) > 2:
            raise LimitReached(self._last)
        return blocks.plain_text(self._own[-1]["content"]) if self._own[-1]["role"] == "assistant" else ""

    def release(self) -> None:
        """It is over: what it held of messages goes."""
        self._own, self._all = [], []
        self._loading.release()

    # ------------------------------------------------------------ asking the model

    async def _ask(self, continuation: ContinuationPolicy) -> ModelReply:
        """One answer, with less in the request where it does not fit."""
        for left in reversed(range(MAX_TRIES)):
            if self._too_large():
                self._lighten(cut=False)
            try:
                return await self._answer(continuation)
            except errors.ThinkingUnbound:
                if not left:
                    raise
                self._own = blocks.without_thinking(self._own)
            except errors.OutputOverflow as error:
                self._deps.models.windows.refused(self._deps.models.name, error)
                most = continuation.max_tokens
                continuation.limit_output(min(error.limit or most // 2, most - 1))
                if not left or continuation.max_tokens < limits.LEAST_ANSWER:
                    raise TaskStopped(WINDOW) from error
            except errors.ContextOverflow as error:
                self._deps.models.windows.refused(self._deps.models.name, error)
                if not left or not self._lighten(cut=True):
                    raise TaskStopped(WINDOW) from error
        raise AssertionError("unreachable")  # pragma: no cover - the last try returns or raises

    async def _answer(self, continuation: ContinuationPolicy) -> ModelReply:
        deps, root = self._deps, self._root
        request = self._request(continuation)
        prompt = deps.models.estimator.request(request)
        totals = self._report.totals
        usd = limits.expected(deps.models.prices, request.model, prompt, limits.ANSWER_TOKENS).usd
        most, self._last = limits.next_call(root.limits, totals, usd, prompt, request.max_tokens)
        request = replace(request, max_tokens=most)
        if self._last and totals.model_calls:
            # No more is to come: what there is has to be said now.
            continuation = replace(
                continuation, max_tokens=most, tail=(*continuation.tail, wording.last_step())
            )
            request = self._request(continuation)
        room = limits.expected(deps.models.prices, request.model, prompt, most)
        async with root.allowance.room(room) as bill:
            began = deps.clock.monotonic()
            reply = await reply_of(self._deps.models.model.stream(request), self._heard)
            bill.charge(deps.models.prices, request.model, reply)
        deps.models.learn(request, reply)
        root.chat_totals.asked(reply.usage, reply.cost_usd)
        self._report.answered(reply, bill.usd, deps.clock.monotonic() - began)
        return reply

    def _request(self, continuation: ContinuationPolicy) -> ModelRequest:
        """The next request. What is shared ends in a breakpoint, so that all who share it read it from the cache."""
        request = view.render(
            model=self._deps.models.name,
            max_tokens=continuation.max_tokens,
            system=self._start.system,
            tools=self._start.tools,
            history=self._start.prefix,
            injected=self._loading.messages,
            current=[*self._own, *continuation.tail],
        )
        request = self._deps.models.fitted(replace(request, purpose=PURPOSE), "task")
        return repair.sound(request, paused=continuation.paused)[0]

    def _add(self, reply: ModelReply, continued: int) -> list[ToolCall]:
        """Append what the model said; returns its tool calls."""
        content = blocks.redacted(reply.content, self._deps.redact)
        content = blocks.sayable(content, paused=reply.stop_reason == "pause_turn")
        if continued and self._own[-1]["role"] == "assistant":
            content = joined(self._own.pop()["content"], content)
        if content:
            self._note({"role": "assistant", "content": content})
        return blocks.tool_calls(content)

    def _goes_on(self, reply: ModelReply, continuation: ContinuationPolicy) -> bool:
        """True if the model has not said all that it is to say."""
        if self._last:
            return False
        if reply.stop_reason == "pause_turn" and not continuation.continued:
            return continuation.pause()
        spoke = bool(blocks.plain_text(reply.content).strip())
        words = self._own[-1]["role"] == "assistant" and blocks.plain_text(self._own[-1]["content"]).strip()
        if reply.stop_reason in {"max_tokens", "pause_turn"}:
            return continuation.continue_text(spoke=spoke) if words else continuation.retry_with_more_output()
        if words:
            return False
        if reply.stop_reason == "model_context_window_exceeded":
            return self._lighten(cut=True) and continuation.smaller()
        return continuation.prompt()

    # ------------------------------------------------------------ its tools

    async def _act(self, calls: list[ToolCall], reply: ModelReply, continuation: ContinuationPolicy) -> None:
        """Run what it calls, in the turn's stead. Raises `LimitReached` where it may not go on."""
        if self._last:
            raise LimitReached(self._last)
        loaded = len(self._loading.messages)
        results = await self._dispatcher.run(calls, reply.cut)
        self._note({"role": "user", "content": [one.block for one in results]})
        if fresh := self._loading.messages[loaded:]:
            # It stands before what was thought already, which would be refused behind it.
            self._own = blocks.without_thinking(self._own)
            self._all.append(wording.loaded(len(fresh)))
        await self._instruct()
        await self.keep()
        if self._over:
            raise TaskStopped(self._over)
        if not continuation.after_tools(cut=bool(reply.cut)):
            raise TaskStopped(CUTS)
        if len(self._refused) >= REFUSALS:
            await self._whether_to_go_on()

    async def _call(
        self, around: CallWrapper, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Wrap a call of the task as those of the turn are wrapped, and report it."""
        began, ran = self._deps.clock.monotonic(), False

        async def through() -> ToolResult:
            nonlocal ran
            ran = True
            return await run()

        result = await around(call, through)
        failed = result.failed
        if not ran:
            self._refused.append(call.name)
        self.errors += failed
        self.tools_used.append(call.name)
        self._report.called(call.name, self._deps.clock.monotonic() - began, failed=failed)
        return result

    async def _whether_to_go_on(self) -> None:
        """Ask the person, who knows what this is for: a task that is refused again and again gets nowhere by itself."""
        order, context = self._order, self._root.context
        question = refused_again(order, self._refused, context, self._report.totals.tool_calls)
        with self.waiting():
            verdict = await self._deps.approvals.decide(question)
        self._refused.clear()
        if verdict.ended != "approved":
            raise TaskStopped(STEERED if verdict.ended == "steered" else NOT_WANTED)

    def _context(self) -> ToolExecutionContext:
        """The turn as the task's tools see it: the same person, chat and rights, and what they may have been led by."""
        return replace(
            self._root.context,
            reply=None,
            injection=self._loading,
            # What it was asked follows from what the turn sees, and counts as that.
            view=lambda: [*self._loading.messages, *self._root.context.view(), *self._own[1:]],
            touched=self._touched.append,
            tasks=None,
            approvals=lambda one: TaskApprovals(one, self.label, self.waiting, self.decided),
        )

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A person is waited for: that time is not the task's."""
        self._report.waits()
        try:
            yield
        finally:
            self._report.goes_on()

    def decided(self, verdict: Verdict) -> None:
        """A person was asked. One who wrote something instead is answered first."""
        if verdict.ended == "steered":
            self._over = STEERED

    @property
    def label(self) -> str:
        """Return the text as an approver sees it: nothing in it turns around what stands behind it."""
        return visible(self._order.label)

    async def _instruct(self) -> None:
        """Append what the servers of the tools say that it has found, and the instructions for what its tools have touched."""
        seen = (*self._start.prefix, *self._own)
        said = said_by_servers(self._own[-1], self._deps, seen)
        found = await instructions(self._touched, self._deps, seen) if self._touched else None
        for message in filter(None, (said, found)):
            self._note(message)

    # ------------------------------------------------------------ its messages

    def _note(self, message: Message) -> None:
        self._own.append(message)
        self._all.append(message)

    def _too_large(self) -> bool:
        budget, deps = self._deps.budget(), self._deps
        own = deps.models.estimator.messages(deps.models.name, self._own)
        whole = own + deps.models.estimator.messages(deps.models.name, self._start.prefix)
        return own > budget.soft or (budget.hard is not None and whole > budget.hard)

    def _lighten(self, *, cut: bool) -> bool:
        """Mask old results, or else (`cut`) cut the longest; whether that changed anything. The transcript has them."""
        keep = self._deps.limits.keep_observations
        words = masking.masks(self._own, ages=self._ages, keep=keep, masked=self._masked)
        self._masked.update(words)
        if not words and cut:
            words = blocks.shortened_results(self._own, SHORT_RESULT)
        if words:
            # What was thought behind what has changed would be refused.
            self._own = blocks.without_thinking([blocks.masked(one, words) for one in self._own])
        return bool(words)

    def _ages(self, name: str) -> bool:
        tool = self._deps.registry.get(name)
        return tool is not None and tool.ages

    async def keep(self) -> None:
        """Bring the transcript to the disk, as far as it has come."""
        await self._report.keep(self._all, self.origin, self._deps.history.artifacts, self._deps.redact)


class HistoryLoader:
    """`tools.context.Injection` of one task. `seen` is that of the turn where the task sees what the turn does, else
    None; `request_id` and `chat_key` are those of the turn.
    """

    def __init__(self, request_id: str, chat_key: ChatKey, deps: AgentDeps, seen: Injection | None) -> None:
        self.messages: list[Message] = []
        self._request_id = request_id
        self._chat_key = chat_key
        self._deps = deps
        self._seen = seen
        self._keys: set[ArchiveKey] = set()

    def release(self) -> None:
        """The task is over: what it held of messages goes."""
        self.messages = []

    def room(self) -> int:
        full = estimate.tokens(self.messages) >= MOST_TOKENS
        return 0 if full else self._deps.limits.max_injected - len(self.messages)

    def in_view(self, line: ArchiveLine) -> bool:
        if line.request_id >= self._request_id or self._key(line) in self._keys:
            return True
        return self._seen is not None and self._seen.in_view(line)

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        taken = fitted(lines[-self.room() :], self.messages)
        self._keys.update(map(self._key, lines[len(lines) - len(taken) :]))
        self.messages += prompt.loaded_messages(taken, fresh_nonce(self._deps))
        return taken

    def _key(self, line: ArchiveLine) -> ArchiveKey:
        return ArchiveKey.of(line, self._chat_key)
