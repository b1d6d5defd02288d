"""Subagent tasks of one turn. Each task has a chat of its own, so a kill of the process loses only the model
and tool calls in flight. The turn's tool call then continues the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from bot import errors
from bot.contracts.inbound import Inbound
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import events
from bot.core.chat import Chat, Turn, chat_of_task
from bot.core.chats import Fact
from bot.core.loop import Refused
from bot.core.tasks import limits, merging, wording
from bot.core.tasks.limits import Allowance, LimitReached
from bot.core.tasks.merging import MergePorts, Result, Status
from bot.core.tasks.report import Order, Report
from bot.core.tasks.worker import TaskPorts, Worker
from bot.telemetry.context import task_scope
from bot.tools import context
from bot.tools.context import TaskMode

TASK = "task"
"""Name of the tool that starts a task."""
BROKEN = "Something went wrong in it."
STOPPED = "It was stopped."
DECLINED = "The language model declined this task."


class TurnTasks:
    """Implements `tools.context.Tasks` for a turn."""

    def __init__(self, chat: Chat, ports: TaskPorts) -> None:
        self._chat = chat
        self._ports = ports
        self._allowance = Allowance(ports.agent.limits.tasks)
        self._slots = asyncio.Semaphore(ports.agent.limits.tasks.side_by_side)
        self._warm: dict[int, asyncio.Event] = {}
        self._results: dict[str, Result] = {}

    def name(self, call: ToolCall) -> str:
        """Return the id of the task that a call starts; "" if the call starts no task."""
        return (self._given.get(call.id) or self._ports.agent.ids.ulid()) if call.name == TASK else ""

    def has(self, call: str) -> bool:
        """Return True if a call started a task that has not reported yet."""
        return call in self._given

    def over(self, calls: Iterable[str]) -> Iterator[Fact]:
        """Yield the events that end the tasks of these calls."""
        for task in [self._given[call] for call in calls if call in self._given]:
            if self._ports.chats.loaded(key := chat_of_task(self._chat.key, task)) is not None:
                yield Fact(key, events.TurnEnded("answered"), task)

    @property
    def _given(self) -> dict[str, str]:
        return self._chat.turn.tasks if self._chat.turn is not None else {}

    async def run(self, words: str, description: str, mode: TaskMode) -> str:
        """Run a task and return its report (see `tools.context.Tasks.run`)."""
        turn, around, ports = self._chat.turn, context.current(), self._ports
        if turn is None:
            raise errors.TurnStopped
        name = self._given[context.call_id()]
        chat = await ports.chats.get(chat_of_task(self._chat.key, name))
        begun = chat.turn is not None
        log = await ports.event_log.read(chat.key) if begun else []
        before = limits.so_far(log, ports.parent.models.prices)
        self._allowance.spend(before)
        label = ports.agent.redact(wording.label(description, words))
        ordered = events.Ordered(_inbound(turn, name, ports.agent.redact(words)), label, mode)
        started = events.TurnStarted((name,), ports.boot)
        facts = [started] if begun else [ordered, started]
        ports.chats.append(*(Fact(chat.key, one, name) for one in facts))
        order = Order(
            name, context.call_id(), around.chat_key, around.request_id, label, ordered.inbound.text, mode
        )
        with task_scope(name):
            report = Report(
                order,
                ports.agent.limits.tasks,
                events=ports.agent.task_events,
                clock=ports.agent.clock,
                log=ports.agent.log,
                before=before,
            )
            warm, leads = self._cache(mode)
            worker = Worker(
                chat,
                order,
                report,
                around=around,
                parent=self._chat,
                allowance=self._allowance,
                heard=warm.set,
                ports=ports,
            )
            try:
                if not leads:
                    await warm.wait()
                return await self._worked(worker, order, report)
            except asyncio.CancelledError:
                report.stopped(STOPPED)
                raise
            finally:
                report.failed(BROKEN)  # ignored if another end was already reported
                warm.set()
                context.report_provenance(worker.origin)

    async def merged(self, results: Sequence[ToolResult]) -> list[ToolResult]:
        """Return the results of a step; if several tasks have results, the merged text is added to the last one."""
        ports = self._ports
        asked = MergePorts(
            ports.parent.models, _uncounted, ports.agent.redact, ports.agent.clock, ports.agent.log
        )
        return await merging.added(results, self._results, self._allowance, asked)

    # ------------------------------------------------------------ one task

    async def _worked(self, worker: Worker, order: Order, report: Report) -> str:
        """Run a task and return its report. Raises `errors.ToolError` if the task failed."""
        limit = ""
        try:
            async with self._slots:
                report.started()
                words = await report.within(worker.work())
        except LimitReached as error:
            words, limit = worker.words, error.words
        except errors.ShipmateError as error:
            cause = DECLINED if isinstance(error, Refused) else error.for_model
            report.failed(cause, error.person)
            await worker.keep()
            self._results[order.call_id] = _result(worker, order, report, cause, "failed")
            raise errors.ToolError(
                f"The task failed: {cause}\n{wording.footer(order.id, report.totals, kept=report.kept)}"
            ) from error
        report.ended(f"It was {limit}." if limit else "")
        await worker.keep()
        words = self._ports.agent.redact(words)
        shown = wording.stopped(limit, words) if limit else wording.summary(words)
        status: Status = "cut" if limit else "silent" if shown == wording.NO_SUMMARY else "whole"
        self._results[order.call_id] = _result(worker, order, report, shown, status)
        return f"{shown}\n\n{wording.footer(order.id, report.totals, kept=report.kept)}"

    def _cache(self, mode: TaskMode) -> tuple[asyncio.Event, bool]:
        """Return the event after which a task may start, and True if this task sets the event. Forks of one
        step start after the first fork has filled the provider's cache.
        """
        step = len(self._chat.context.current())
        if mode == "fork" and step in self._warm:
            return self._warm[step], False
        warm = asyncio.Event()
        if mode == "fork":
            self._warm[step] = warm
        return warm, True


def _inbound(turn: Turn, name: str, words: str) -> Inbound:
    """Return the task's order as an incoming message in the name of the turn's person."""
    first = turn.first
    return Inbound(
        channel=first.channel,
        chat_id=first.chat_id,
        chat_key=first.chat_key,
        chat_type=first.chat_type,
        user_id=first.user_id,
        keys=(),
        ts=first.ts,
        target=first.target,
        text=words,
        request_id=name,
    )


def _result(worker: Worker, order: Order, report: Report, words: str, status: Status) -> Result:
    spent = limits.tokens(report.totals.usage)
    return Result(
        order.call_id, order.label, order.prompt, words, status, worker.tools_used, worker.errors, spent
    )


def _uncounted(_: object) -> None:
    """Do nothing, since the operator's log counts the cost."""
