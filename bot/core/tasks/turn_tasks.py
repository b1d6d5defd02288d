"""The subagent tasks of one turn. Because each task has its own chat, a killed process loses only running model and
tool calls. The turn's tool call then continues the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bot import errors, text
from bot.contracts.inbound import Inbound
from bot.contracts.model import ModelRequest
from bot.contracts.provenance import ANYBODYS, NOBODYS
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, events
from bot.core.agent import Manner
from bot.core.chat import Chat, Turn, chat_of_task
from bot.core.chats import Fact
from bot.core.tasks import limits
from bot.core.tasks.limits import Allowance
from bot.core.tasks.worker import PROMPTS, TaskPorts, TaskResult, Worker
from bot.llm.wrapper import reply_of
from bot.telemetry.context import task_scope
from bot.tools import context
from bot.tools.context import TaskMode

TASK = "task"
"""Name of the tool that starts a task."""
LABEL = 60
"""Max characters of a task's label (its short name for people)."""
CONTENT = 3_000
"""Max characters of each task and of each result in the request for a synthesis."""


class TurnTasks:
    """Implements `tools.context.Tasks` for one turn."""

    def __init__(self, chat: Chat, ports: TaskPorts) -> None:
        self._chat = chat
        self._ports = ports
        self._allowance = Allowance(ports.agent.tasks)
        self._slots = asyncio.Semaphore(ports.agent.tasks.max_concurrent)
        self._warm: dict[int, asyncio.Event] = {}
        """Flags by step of the turn. A step's first fork sets its flag when the provider has cached the shared prefix."""
        self._results: dict[str, TaskResult] = {}

    def name(self, call: ToolCall) -> str:
        """Return the id of the task that this call starts or continues; "" if the call starts no task."""
        return (self._given.get(call.id) or self._ports.agent.ids.ulid()) if call.name == TASK else ""

    def has(self, call: str) -> bool:
        """Return True if this call started a task that has not reported yet."""
        return call in self._given

    def over(self, calls: Iterable[str]) -> Iterator[Fact]:
        """Yield the events that end the tasks started by these calls."""
        for task in [self._given[call] for call in calls if call in self._given]:
            if self._ports.chats.loaded(key := chat_of_task(self._chat.key, task)) is not None:
                yield Fact(key, events.TurnEnded("answered"), task)

    @property
    def _given(self) -> dict[str, str]:
        return self._chat.turn.tasks if self._chat.turn is not None else {}

    async def run(self, words: str, description: str, mode: TaskMode) -> str:
        """Run a task and return its report (see `tools.context.Tasks.run`)."""
        turn, around, ports, agent = self._chat.turn, context.current(), self._ports, self._ports.agent
        if turn is None:
            raise errors.TurnStopped
        call, name = context.call_id(), self._given[context.call_id()]
        chat = await ports.chats.get(chat_of_task(self._chat.key, name))
        begun = chat.turn is not None
        log = await ports.event_log.read(chat.key) if begun else []
        before = limits.so_far(log, ports.parent.models.prices)
        self._allowance.spend(before.tokens, before.charged_usd)
        label, words = agent.redact(text.preview(description.strip() or words, LABEL)), agent.redact(words)
        ordered = events.Ordered(_inbound(turn, name, words), label, mode)
        started = events.TurnStarted((name,), ports.boot)
        facts = [started] if begun else [ordered, started]
        ports.chats.append(*(Fact(chat.key, one, name) for one in facts))
        step = len(self._chat.context.current())
        waits_for = self._warm.get(step) if mode == "fork" else None
        first_token = asyncio.Event()
        if mode == "fork":
            self._warm.setdefault(step, first_token)
        with task_scope(name):
            worker = Worker(
                chat,
                call,
                ordered,
                around=around,
                parent=self._chat,
                allowance=self._allowance,
                first_token=first_token,
                before=before,
                ports=ports,
            )
            try:
                if waits_for is not None:
                    await waits_for.wait()
                result = self._results[call] = await worker.run(self._slots)
            except asyncio.CancelledError:
                worker.close("stopped", "It was stopped.")
                raise
            finally:
                worker.close(
                    "failed", "Something went wrong in it."
                )  # ignored if the task's end was already reported
                first_token.set()
                context.report_provenance(worker.origin)
        if result.status == "failed":
            raise errors.ToolError(f"The task failed: {result.content}\n{result.footer}")
        return f"{result.content}\n\n{result.footer}"

    async def merged(self, results: Sequence[ToolResult]) -> list[ToolResult]:
        """Return the results of one step's calls. If several tasks have results, the fast model compares them, and its
        synthesis is added to the last result.
        """
        found = [self._results[one.call_id] for one in results if one.call_id in self._results]
        self._results.clear()
        if sum(one.status in {"whole", "cut"} for one in found) < 2:
            return list(results)
        try:
            words = await self._synthesis(found)
        except errors.ShipmateError as error:
            self._ports.agent.log.write(
                "synthesis",
                "several results could not be brought together; they stand side by side",
                level="warn",
                results=len(found),
                cause=f"{type(error).__name__}: {error}",
            )
            labels = [f"{number}. {one.label}" for number, one in enumerate(found, 1)]
            words = "\n".join(["Nobody has compared these results: read each of them above.", *labels])
        words = f"# All {len(found)} tasks together\n\n{words}\n\nCoverage: {coverage(found)}"
        names, whose = {one.call_id for one in found}, NOBODYS
        for one in results:
            if one.call_id in names:
                whose |= ANYBODYS if one.origin is None else one.origin
        last = found[-1].call_id
        return [
            replace(one, content=f"{one.content}\n\n{words}", origin=whose) if one.call_id == last else one
            for one in results
        ]

    async def _synthesis(self, results: Sequence[TaskResult]) -> str:
        """Return the fast model's synthesis of the results. Raises `errors.ModelError` and `LimitReached`."""
        models, budget = self._ports.parent.models, min(400 + 120 * len(results), 2_000)
        model = models.fast_model or models.name
        sent = Manner("low", "off").sent(partial(models.windows.takes, model))
        shown = [
            f"## Result {number}: {one.label}\n"
            f"Task: {text.shorten_middle(one.prompt, CONTENT)}\n"
            f"Tools used: {', '.join(dict.fromkeys(one.tools_used)) or 'none'}. Failed calls: {one.failed_calls}. "
            f"Tokens: {one.tokens:,}.\n\n"
            f"{text.shorten_middle(one.content, CONTENT)}"
            for number, one in enumerate(results, 1)
        ]
        asked = [f"{len(results)} investigations.", *shown, f"Coverage: {coverage(results)}"]
        request = ModelRequest(
            model=model,
            max_tokens=min(budget + sent.room, models.windows.max_tokens(model, sent.room)),
            system=({"type": "text", "text": PROMPTS["synthesis"].format(budget=budget)},),
            messages=({"role": "user", "content": [{"type": "text", "text": "\n\n".join(asked)}]},),
            purpose="synthesis",
            effort=sent.effort,
            thinking=sent.thinking,
        )
        size, most = models.estimator.request(request), request.max_tokens
        with self._allowance.reserved(size + most, limits.at_most(models.prices, model, size, most)):
            reply = await reply_of(models.model.stream(request))
        charged = models.prices.at_most(model, reply.usage, reply.cost_usd)
        self._allowance.spend(limits.tokens(reply.usage), charged)
        models.learn(request, reply)
        words = self._ports.agent.redact(blocks.plain_text(reply.content)).strip()
        if not words or reply.stop_reason == "refusal":
            raise errors.StreamBroken("the fast model said nothing of the results")
        return words


def coverage(results: Sequence[TaskResult]) -> str:
    """Return a sentence that tells how many tasks completed and how the others ended."""
    whole = sum(one.status == "whole" for one in results)
    said = f"{whole} of {len(results)} tasks came to their end"
    short = {"cut": "stopped at a limit", "silent": "without a summary", "failed": "failed"}
    for status, words in short.items():
        numbers = [str(at) for at, one in enumerate(results, 1) if one.status == status]
        if numbers:
            said += f"; {words}: {', '.join(numbers)}"
    return said + "."


def _inbound(turn: Turn, name: str, words: str) -> Inbound:
    """Return the task's instructions as an incoming message in the name of the turn's person."""
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
