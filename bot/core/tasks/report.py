"""Reports a task's progress to the chat and the operator, and renders the task's transcript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.environment import Clock, Log, Redact, ends_within
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply
from bot.contracts.provenance import Provenance
from bot.core import blocks
from bot.core.tasks import limits
from bot.core.tasks.limits import LimitReached, TaskLimits, TaskTotals
from bot.llm.wrapper import usage_object
from bot.storage.artifacts import ArtifactStore
from bot.words import say

TaskEventKind = Literal["queued", "started", "model", "tool", "ended", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened to one task. The first event of a task is `queued`; exactly one of `ended`,
    `failed` or `stopped` is the last. Between them are `started`, and one `model` or `tool` event for
    each finished call.
    """

    kind: TaskEventKind
    task_id: str
    """ULID of the task; the id of the task's transcript as well."""
    request_id: str
    at: float
    """Time of the event in epoch seconds."""
    label: str
    """Short name of the task for people, with secrets redacted."""
    totals: TaskTotals = field(default_factory=TaskTotals)
    most_calls: int = 0
    """Max model calls of the task, that is the limit for `totals.model_calls`."""
    tool: str = ""
    """Name of the tool, for a `tool` event."""
    seconds: float = 0.0
    """Duration of the call in seconds, for a `model` or `tool` event."""
    error: str = ""
    """Plain sentence for people: for a `tool` event that failed, a `failed` event, or an `ended` event of a
    task that reached a limit; else "".
    """


@dataclass(frozen=True, slots=True)
class Order:
    """Order of a task. `id` is a ULID, `call_id` the id of the tool call. `label` and `prompt` contain no secrets."""

    id: str
    call_id: str
    chat_key: ChatKey
    request_id: str
    label: str
    prompt: str
    mode: str


class Report:
    """Counts a task's usage and reports each change once. Time spent waiting for people is not counted."""

    def __init__(
        self,
        order: Order,
        most: TaskLimits,
        *,
        events: Callable[[TaskEvent], object],
        clock: Clock,
        log: Log,
        before: TaskTotals | None = None,
    ) -> None:
        """Report the task as queued. `before` are the totals from an earlier process."""
        self._order = order
        self._limits = most
        self._events = events
        self._clock = clock
        self._log = log
        self._totals = before or TaskTotals()
        self._began: float | None = None
        self._waits = 0
        self._waits_since = 0.0
        self._over = False
        self.kept = False
        """True once the transcript of the task is on disk."""
        self._tell("queued")

    @property
    def totals(self) -> TaskTotals:
        return replace(self._totals, seconds=self.seconds)

    @property
    def spent(self) -> Json:
        """Return the task's usage totals."""
        totals = self._totals
        return {
            "usage": usage_object(totals.usage),
            "costUsd": totals.cost_usd,
            "calls": totals.model_calls,
            "unpriced": totals.unpriced,
        }

    @property
    def seconds(self) -> float:
        """Return the seconds that the task has worked, without waits for people."""
        if self._began is None:
            return 0.0
        now = self._waits_since if self._waits else self._clock.monotonic()
        return now - self._began

    async def within(
        self, work: Coroutine[Any, Any, str], running: set[asyncio.Task[str]] | None = None
    ) -> str:
        """Run the task within its time limit. `running` receives the asyncio task. Raises `LimitReached`."""
        task = asyncio.create_task(work)
        running = set() if running is None else running
        running.add(task)
        try:
            while not task.done():
                left = self._limits.seconds - self.seconds
                if left <= 0:
                    raise LimitReached(limits.seconds(self._limits))
                # Waits for a person do not count, so time may be left when the timer ends. Check again then.
                await ends_within(max(left, 1.0), task, self._clock)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            running.discard(task)

    def started(self) -> None:
        self._began = self._clock.monotonic()
        self._log.write("task", "a task begins", mode=self._order.mode, tool_use_id=self._order.call_id)
        self._tell("started")

    def answered(self, reply: ModelReply, charged_usd: float, seconds: float) -> None:
        """Count an answer of the model that counts as `charged_usd` USD."""
        self._totals = limits.added(self._totals, reply, charged_usd)
        self._tell("model", seconds=seconds)

    def called(self, tool: str, seconds: float, *, failed: bool) -> None:
        """Count a finished tool call of the task."""
        self._totals = replace(self._totals, tool_calls=self._totals.tool_calls + 1)
        self._tell("tool", tool=tool, seconds=seconds, error="it failed" if failed else "")

    def waits(self) -> None:
        """Note that the task begins to wait for a person."""
        if not self._waits:
            self._waits_since = self._clock.monotonic()
        self._waits += 1

    def goes_on(self) -> None:
        """Note that the task no longer waits for a person."""
        self._waits -= 1
        if not self._waits and self._began is not None:
            self._began += self._clock.monotonic() - self._waits_since

    async def keep(
        self, messages: Iterable[Message], origin: Provenance, artifacts: ArtifactStore, redact: Redact
    ) -> None:
        """Write the task's transcript. A failing disk does not stop the task."""
        order = self._order
        head = f"Task “{order.label}” ({order.mode}) of the turn {order.request_id}"
        try:
            await artifacts.put(
                redact(rendered(head, messages)),
                chat_key=order.chat_key,
                request_id=order.request_id,
                tool="task",
                tool_use_id=order.call_id,
                artifact_id=order.id,
                origin=origin,
            )
            self.kept = True
        except errors.StorageError as error:
            self.kept = False
            self._log.write("storage", "a task's transcript is not kept", level="error", cause=str(error))

    def ended(self, error: str = "") -> None:
        """Report that the task ended; with `error`, that it ended at a limit."""
        self._close("ended", error, say("progress.limit") if error else "")

    def failed(self, error: str, told: str = "") -> None:
        """Report that the task failed. `told` is the sentence for people; the totals are kept."""
        self._close("failed", error, told)

    def stopped(self, error: str) -> None:
        """Report that the task was stopped."""
        self._close("stopped", error, "")

    def _close(self, kind: TaskEventKind, error: str, told: str) -> None:
        if self._over:
            return
        self._over = True
        totals = self.totals
        self._log.write(
            "task",
            f"the task has {kind}",
            level="warn" if error else "info",
            duration=totals.seconds * 1000,
            tool_use_id=self._order.call_id,
            error=error or None,
            model_calls=totals.model_calls,
            tool_calls=totals.tool_calls,
            usage=usage_object(totals.usage),
            cost_usd=None if totals.unpriced else round(totals.cost_usd, 6),
            artifact=self._order.id,
        )
        self._tell(kind, error=told)

    def _tell(self, kind: TaskEventKind, *, tool: str = "", seconds: float = 0.0, error: str = "") -> None:
        order = self._order
        self._events(
            TaskEvent(
                kind,
                order.id,
                order.request_id,
                self._clock.now(),
                order.label,
                self.totals,
                self._limits.calls,
                tool,
                seconds,
                error,
            )
        )


def rendered(head: str, messages: Iterable[Message]) -> str:
    """Return the text of every message, complete except for thinking."""
    return "\n\n".join([head, *map(_message, messages)])


def _message(message: Message) -> str:
    shown = (_block(block) for block in message["content"] if block.get("type") not in blocks.THINKING)
    return "\n".join([f"== {message['role']}", *shown])


def _block(block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    if kind == "tool_use":
        return f"[call {block['id']}] {block['name']} {json.dumps(block['input'], ensure_ascii=False)}"
    if kind == "tool_result":
        content = block.get("content")
        words = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        failed = ", failed" if block.get("is_error") else ""
        return f"[result of {block['tool_use_id']}{failed}]\n{words}"
    return f"[{kind}]"
