"""Runs one subagent task: the agent loop in the task's own chat, with the tools and permissions of the turn
that started the task, within limits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bot import tags
from bot.contracts.approvals import Approval, Approvals, Verdict
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Message
from bot.contracts.environment import Clock, Ids
from bot.contracts.inbound import Inbound
from bot.contracts.model import ModelReply, ModelRequest, ModelStream
from bot.contracts.provenance import Provenance
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, events, prompt
from bot.core.agent_deps import AgentDeps
from bot.core.assembly import Frozen
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.context import ContextEntry
from bot.core.event_log import EventLog
from bot.core.fit import Fit, Frame
from bot.core.injection import OlderMessages
from bot.core.loop import Loop, LoopPorts
from bot.core.memory import in_plain_words
from bot.core.models import ModelDeps
from bot.core.prompt import TurnRequest
from bot.core.reply import NoReply
from bot.core.tasks import limits, wording
from bot.core.tasks.limits import Allowance, LimitReached, TaskLimits, TaskStopped
from bot.core.tasks.report import Order, Report
from bot.core.tool_calls import ToolCalls
from bot.llm.wrapper import ModelWrapper
from bot.tools.context import Injection, ToolExecutionContext
from bot.tools.dispatch import CallWrapper
from bot.tools.permissions import taint
from bot.tools.permissions.defaults import SCHEDULING
from bot.tools.permissions.display import visible
from bot.tools.registry import Registry

BARRED = frozenset({"task", "chat_send"}) | SCHEDULING
"""Names of tools that a task never has."""
REFUSALS = 3
"""Max denied calls before a person is asked whether the task should continue."""
PURPOSE = "subagent"
STEERED = "the person wrote something new, which comes first"
NOT_WANTED = "its calls were refused again and again"


def allowed(registry: Registry) -> Registry:
    """Return the tools of a task: the turn's tools without the barred ones."""
    return registry.without(BARRED)


@dataclass(frozen=True, slots=True)
class TaskPorts:
    """Collaborators of a turn's tasks. `parent` builds the turn's requests and provides its models, system
    prompt and tools.
    """

    chats: Chats
    event_log: EventLog
    parent: Fit
    agent: AgentDeps
    found: Callable[[Sequence[Message], Message, Sequence[Path]], Awaitable[Sequence[Message]]]
    """Function that returns messages to add after tool results (see `LoopPorts.found`), given the messages
    that the task has seen.
    """
    boot: str


class LimitedModel(ModelWrapper):
    """A model with a task's limits. Once no further call fits, the request says so and `last` names the
    limit. `heard` is called at each stream event.
    """

    def __init__(
        self,
        most: TaskLimits,
        allowance: Allowance,
        told: Report,
        models: ModelDeps,
        *,
        heard: Callable[[], object],
        clock: Clock,
    ) -> None:
        super().__init__(models.model)
        self._limits = most
        self._allowance = allowance
        self._report = told
        self._models = models
        self._clock = clock
        self._heard = heard
        self.last = ""

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the answer to a request (see `contracts.model.Model`). Raises `LimitReached`."""
        models, totals = self._models, self._report.totals
        size, prices = models.estimator.request(request), models.prices
        usd = limits.expected(prices, request.model, size, limits.ANSWER_TOKENS).usd
        most, self.last = limits.next_call(self._limits, totals, usd, size, request.max_tokens)
        request = replace(request, max_tokens=most)
        if self.last and totals.model_calls:
            *before, newest = request.messages
            content = [*newest["content"], *wording.last_step()["content"]]
            request = replace(request, messages=(*before, {**newest, "content": content}))
        reply: ModelReply | None = None
        async with self._allowance.room(limits.expected(prices, request.model, size, most)) as bill:
            began = self._clock.monotonic()
            async for piece in self._model.stream(request):
                self._heard()
                if isinstance(piece, ModelReply):
                    reply = piece
                    bill.charge(prices, request.model, piece)
                    self._report.answered(piece, bill.usd, self._clock.monotonic() - began)
                else:
                    yield piece
        if reply is not None:
            yield reply


class Worker:
    """Runs the task that a tool call has started. `around` is the context of that tool call."""

    def __init__(
        self,
        chat: Chat,
        order: Order,
        told: Report,
        *,
        around: ToolExecutionContext,
        parent: Chat,
        allowance: Allowance,
        heard: Callable[[], object],
        ports: TaskPorts,
    ) -> None:
        self._chat = chat
        self._order = order
        self._report = told
        self._around = around
        self._ports = ports
        self._refused: list[str] = []
        self._over = ""
        models = replace(ports.parent.models, purpose="task")
        shown = [*parent.context.view(), *parent.context.older(), *parent.context.current()]
        if forked := order.mode == "fork":
            shown.append(wording.placeholders(blocks.tool_calls(shown[-1]["content"])))
            if models.name != ports.parent.models.name:
                shown = blocks.without_thinking(map(in_plain_words, shown))
            self._frame = Frame(Frozen(""), ports.parent.system, (tuple(ports.parent.tools),))
        else:
            self._frame = Frame(
                Frozen(""), wording.system(ports.agent.root), allowed(ports.agent.registry).forms
            )
        self._prefix = shown if forked else []
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
        self.model = LimitedModel(
            ports.agent.limits.tasks, allowance, told, models, heard=heard, clock=ports.agent.clock
        )
        self._older = OlderMessagesOfTask(
            chat,
            order,
            ports.agent.limits.max_injected,
            self._append,
            ids=ports.agent.ids,
            seen=around.injection if forked else None,
        )
        loop_ports = LoopPorts(
            self.model,
            self._begun,
            self._told,
            self._found,
            _room_is_there,
            _mask_results,
            TaskCalls(self, chat, ports, self._older),
            NoReply(),
            NoReply(),
            fit,
            ports.agent,
            ports.boot,
            most_steps=ports.agent.limits.tasks.calls + 1,
        )
        self._loop = Loop(chat, order.id, ports.chats, loop_ports)

    async def work(self) -> str:
        """Run the task and return its last text. Raises `LimitReached`, or `errors.ShipmateError` if the
        task failed.
        """
        await self._loop.run()
        if self.model.last and len(self._entries) > 2:
            raise LimitReached(self.model.last)
        running = self._chat.context.running
        return running.words if running is not None else ""

    # ------------------------------------------------------------ the task's results

    @property
    def words(self) -> str:
        """Return the last text that the task's model wrote."""
        said = (
            blocks.plain_text(one.message["content"])
            for one in reversed(self._entries)
            if one.message["role"] == "assistant"
        )
        return next((words for words in said if words.strip()), "")

    @property
    def origin(self) -> Provenance:
        """Return the sources whose text the task's answer may contain."""
        return taint.seen(self._view())

    @property
    def tools_used(self) -> tuple[str, ...]:
        """Return the names of the tools that the task called."""
        return tuple(call.name for one in self._entries for call in blocks.tool_calls(one.message["content"]))

    @property
    def errors(self) -> int:
        """Return the number of the task's failed calls."""
        return sum(bool(block.get("is_error")) for one in self._entries for block in one.message["content"])

    @property
    def label(self) -> str:
        """Return the label as an approver sees it, without characters that reorder text."""
        return visible(self._order.label)

    @property
    def _entries(self) -> Sequence[ContextEntry]:
        running = self._chat.context.running
        return running.entries if running is not None else ()

    def _view(self) -> list[Message]:
        # The task's order is derived from the turn's context, so the task has the same sources as the turn.
        context = self._chat.context
        return [*context.older(), *self._around.view(), *context.current()[1:]]

    async def keep(self) -> None:
        """Write the task's transcript."""
        said, ports = [one.message for one in self._entries], self._ports
        await self._report.keep(said, self.origin, ports.agent.artifacts, ports.agent.redact)

    # ------------------------------------------------------------ functions for the task's loop

    async def _begun(self) -> Frame:
        return self._frame

    async def _told(self, inbound: Inbound) -> events.Told:
        order, ports = self._order, self._ports
        if order.mode == "fork":
            message = wording.directive(inbound.text)
        else:
            request = TurnRequest(order.request_id, order.chat_key, prompt=inbound.text)
            nonce = tags.nonce(ports.agent.ids.ulid())
            message = prompt.user_message(request, int(ports.agent.clock.now() * 1000), nonce)
        return events.Told(message, (inbound.request_id,))

    async def _found(self, results: Message, touched: Sequence[Path]) -> Sequence[Message]:
        return await self._ports.found([*self._prefix, *self._chat.context.current()], results, touched)

    def _append(self, data: events.EventData) -> None:
        self._ports.chats.append(Fact(self._chat.key, data, self._order.id))

    # ------------------------------------------------------------ the task's tools

    def context(self, touched: Callable[[Path], object]) -> ToolExecutionContext:
        """Return the context of the task's tool calls, with the person, chat and permissions of the turn and
        the sources that may have influenced the task.
        """
        return replace(
            self._around,
            reply=None,
            injection=self._older,
            view=self._view,
            touched=touched,
            tasks=None,
            approvals=lambda one: TaskApprovals(one, self.label, self.waiting, self.decided),
        )

    async def call(
        self, around: CallWrapper, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Run a call of the task with the same wrapper as the turn's calls, and report the call."""
        began, ran = self._ports.agent.clock.monotonic(), False

        async def through() -> ToolResult:
            nonlocal ran
            ran = True
            return await run()

        result = await around(call, through)
        if not ran:
            self._refused.append(call.name)
        self._report.called(call.name, self._ports.agent.clock.monotonic() - began, failed=result.failed)
        return result

    async def may_go_on(self) -> None:
        """Check after a step whether the task may continue. Raises `LimitReached`. After repeated denials a
        person is asked, since further attempts would be denied as well.
        """
        if self._over:
            raise TaskStopped(self._over)
        if len(self._refused) < REFUSALS:
            return
        question = refused_again(self._order, self._refused, self._around, self._report.totals.tool_calls)
        with self.waiting():
            verdict = await self._ports.agent.approvals.decide(question)
        self._refused.clear()
        if verdict.ended != "approved":
            raise TaskStopped(STEERED if verdict.ended == "steered" else NOT_WANTED)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the `with` block as waiting for a person, which does not count as the task's time."""
        self._report.waits()
        try:
            yield
        finally:
            self._report.goes_on()

    def decided(self, verdict: Verdict) -> None:
        """Handle a person's decision. If the person wrote a message instead, the task stops so that the
        message is answered first.
        """
        if verdict.ended == "steered":
            self._over = STEERED


def refused_again(
    order: Order, refused: Sequence[str], context: ToolExecutionContext, calls: int
) -> Approval:
    """Return the question whether a task should continue after the calls in `refused` were denied."""
    name = f"{order.id}:{calls}"
    return Approval(
        request_id=order.request_id,
        call_id=name,
        chat_key=order.chat_key,
        tool="task",
        fingerprint=name,
        shown=f"task\ndescription: {visible(order.label)}\nrefused: {', '.join(refused)}",
        why="refused",
        rule="",
        channel=context.channel,
        user_id=context.user_id,
        granted=True,
        lasting=False,
        subject="task",
    )


class TaskCalls(ToolCalls):
    """Runs the tool calls of a task."""

    def __init__(self, worker: Worker, chat: Chat, ports: TaskPorts, injection: Injection) -> None:
        self._worker = worker
        dispatcher = ports.agent.dispatcher.narrowed(
            allowed(ports.agent.registry), lambda around: partial(worker.call, around)
        )
        super().__init__(
            chat,
            chat.turn.id if chat.turn is not None else "",
            ports.chats,
            ports.event_log,
            dispatcher,
            reply=None,
            queued=lambda _: False,
            boot=ports.boot,
            injection=injection,
        )

    async def run(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run these calls (see `ToolCalls.run`). Raises `LimitReached` if the task may not continue."""
        if self._worker.model.last:
            raise LimitReached(self._worker.model.last)
        await super().run(calls, cut)
        await self._worker.may_go_on()

    def _context(self, first: Inbound, people: Sequence[str]) -> ToolExecutionContext:
        del first, people
        return self._worker.context(self._touched.append)


class TaskApprovals:
    """Implements `contracts.approvals.Approvals` for a task; each question names the task."""

    def __init__(
        self,
        approvals: Approvals,
        label: str,
        waiting: Callable[[], AbstractContextManager[None]],
        decided: Callable[[Verdict], object],
    ) -> None:
        self._approvals = approvals
        self._label = label
        self._waiting = waiting
        self._decided = decided

    async def decide(self, *asked: Approval) -> Verdict:
        with self._waiting():
            verdict = await self._approvals.decide(*(replace(one, task=self._label) for one in asked))
        self._decided(verdict)
        return verdict


class OlderMessagesOfTask(OlderMessages):
    """Implements `tools.context.Injection` for a task. `seen` is the turn's injection if the task sees the
    turn's history.
    """

    def __init__(
        self,
        chat: Chat,
        order: Order,
        most: int,
        append: Callable[[events.EventData], None],
        *,
        ids: Ids,
        seen: Injection | None,
    ) -> None:
        super().__init__(chat, order.id, most, append, ids)
        self._asked_by = order.request_id
        self._seen = seen

    def in_view(self, line: ArchiveLine) -> bool:
        if line.request_id >= self._asked_by or super().in_view(line):
            return True
        return self._seen is not None and self._seen.in_view(line)


async def _room_is_there(_: Fit) -> None:
    """Do nothing, since a task starts with a history that fits."""


async def _mask_results(fit: Fit) -> None:
    """Mask a task's old tool results; the transcript keeps them."""
    fit.mask_old("size", above=fit.budget().limit)
