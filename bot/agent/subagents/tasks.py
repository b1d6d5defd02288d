"""The tasks of one turn: the root at which everything is registered that one of them has started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bot import errors
from bot.agent.active_turn import ActiveTurn
from bot.agent.deps import AgentDeps
from bot.agent.steps import SUBAGENT
from bot.agent.subagents.child import Child, Root, Start
from bot.agent.user_message import fresh_nonce
from bot.contracts.agent import TurnRequest
from bot.contracts.base import Json
from bot.contracts.tasks import TaskMode
from bot.contracts.tools import ToolResult
from bot.core import blocks, prompt
from bot.core.tasks import limits, merging, wording
from bot.core.tasks.limits import Allowance, LimitReached
from bot.core.tasks.merging import Result, Status
from bot.core.tasks.report import Order, Report
from bot.core.tasks.turn_tasks import BROKEN, STOPPED
from bot.core.tasks.worker import allowed
from bot.telemetry.context import task_scope
from bot.tools import context


class Tasks:
    """`tools.context.Tasks` of a turn, for the block in which that works: what is left of them then is ended.

    `system` is what stands before the messages of the turn.
    """

    def __init__(self, turn: ActiveTurn, system: Sequence[Json], deps: AgentDeps) -> None:
        self._turn = turn
        self._system = system
        self._deps = deps
        self._allowance = Allowance(deps.limits.tasks)
        self._slots = asyncio.Semaphore(deps.limits.tasks.side_by_side)
        self._warm: dict[int, asyncio.Event] = {}
        self._running: set[asyncio.Task[str]] = set()
        self._results: dict[str, Result] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        left = list(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def run(self, words: str, description: str, mode: TaskMode) -> str:
        """As `tools.context.Tasks.run`."""
        turn, deps = context.current(), self._deps
        order = Order(
            deps.ids.ulid(),
            context.call_id(),
            turn.chat_key,
            turn.request_id,
            deps.redact(wording.label(description, words)),
            deps.redact(words),
            mode,
        )
        begun = self._turn.steps.begin(order.id, "tool", SUBAGENT, order.call_id)
        warm, leads = self._cache(order)
        with task_scope(order.id):
            about = {"callId": order.call_id, "mode": mode, "label": order.label}
            deps.history.requests.record_task(order.id, order.chat_key, order.request_id, about)
            report = Report(order, deps.limits.tasks, events=deps.task_events, clock=deps.clock, log=deps.log)
            start = self._forked(order) if mode == "fork" else self._fresh(order)
            root = Root(turn, self._allowance, self._turn.view_changes.chat_totals, deps.limits.tasks)
            registry = allowed(deps.registry)
            child = Child(order, start, root, registry=registry, report=report, deps=deps, heard=warm.set)
            try:
                # After a crash it is known by this what it was, and where its transcript is.
                await asyncio.shield(begun)
                if not leads:
                    await warm.wait()
                return await self._worked(child, order, report)
            except asyncio.CancelledError:
                report.stopped(STOPPED)
                raise
            finally:
                report.failed(BROKEN)  # unless something else was told
                warm.set()
                context.report_provenance(child.origin)
                self._turn.steps.end(order.id, report.spent)
                child.release()

    async def merged(self, results: Sequence[ToolResult]) -> list[ToolResult]:
        """The results of a step; those of several tasks are brought together behind the last one of them."""
        deps, chat_totals = self._deps, self._turn.view_changes.chat_totals
        ports = merging.MergePorts(
            deps.models,
            lambda reply: chat_totals.asked(reply.usage, reply.cost_usd),
            deps.redact,
            deps.clock,
            deps.log,
        )
        return await merging.added(results, self._results, self._allowance, ports)

    # ------------------------------------------------------------ one task

    async def _worked(self, child: Child, order: Order, report: Report) -> str:
        """Carry a task out. Raises `errors.ToolError` where it has failed."""
        limit = ""
        try:
            async with self._slots:
                report.started()
                words = await report.within(child.work(), self._running)
        except LimitReached as error:
            words, limit = child.words, error.words
        except errors.ShipmateError as error:
            report.failed(error.for_model, error.person)
            self._results[order.call_id] = self._result(child, order, report, error.for_model, "failed")
            raise errors.ToolError(
                f"The task failed: {error.for_model}\n{wording.footer(order.id, report.totals, kept=report.kept)}"
            ) from error
        report.ended(f"It was {limit}." if limit else "")
        words = self._deps.redact(words)
        shown = wording.stopped(limit, words) if limit else wording.summary(words)
        status: Status = "cut" if limit else "silent" if shown == wording.NO_SUMMARY else "whole"
        self._results[order.call_id] = self._result(child, order, report, shown, status)
        return f"{shown}\n\n{wording.footer(order.id, report.totals, kept=report.kept)}"

    @staticmethod
    def _result(child: Child, order: Order, report: Report, words: str, status: Status) -> Result:
        spent = limits.tokens(report.totals.usage)
        return Result(
            order.call_id,
            order.label,
            order.prompt,
            words,
            status,
            tuple(child.tools_used),
            child.errors,
            spent,
        )

    def _cache(self, order: Order) -> tuple[asyncio.Event, bool]:
        """Return the event after which a task may begin, and True if this task sets it for others: forks of one step begin
        after the first of them has brought what they share into the provider's cache.
        """
        step = len(self._turn.view)
        if order.mode == "fork" and step in self._warm:
            return self._warm[step], False
        warm = asyncio.Event()
        if order.mode == "fork":
            self._warm[step] = warm
        return warm, True

    # ------------------------------------------------------------ what it begins with

    def _fresh(self, order: Order) -> Start:
        request = TurnRequest(order.request_id, order.chat_key, prompt=order.prompt)
        first = prompt.user_message(request, int(self._deps.clock.now() * 1000), fresh_nonce(self._deps))
        return Start(
            wording.system(self._deps.root), self._deps.declared(allowed(self._deps.registry)), (), first
        )

    def _forked(self, order: Order) -> Start:
        """All that the turn has sent, its last answer, the same words for every result, and then what is asked."""
        turn = self._turn
        shown = turn.in_sight()
        prefix = (*shown, wording.placeholders(blocks.tool_calls(shown[-1]["content"])))
        first, tools = wording.directive(order.prompt), self._turn.view_changes.tools
        return Start(self._system, tools, prefix, first)
