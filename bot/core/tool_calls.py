"""Runs a turn's tool calls. The start of a call with effects is on disk before the call runs; each result is
appended at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.contracts.provenance import NOBODYS
from bot.contracts.tools import Effect, ToolCall, ToolResult
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.context import INTERRUPTED
from bot.core.event_log import EventLog
from bot.tools.builtin.chat_send import without_files
from bot.tools.context import Injection, NoOlderTurns, Reply, ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher

if TYPE_CHECKING:
    from bot.core.tasks.turn_tasks import TurnTasks

MESSAGE = frozenset[Effect]({"message"})
"""Effects of tools whose action is itself an event: the message is queued and is sent once, however often
the tool is called.
"""


class ToolCalls:
    """Runs the tool calls of one turn, and implements `tools.dispatch.Recorder` for their results."""

    def __init__(
        self,
        chat: Chat,
        turn: str,
        chats: Chats,
        event_log: EventLog,
        dispatcher: Dispatcher,
        *,
        reply: Reply | None,
        queued: Callable[[str], bool],
        boot: str,
        undeclared: Callable[[], Sequence[Json]] = tuple,
        injection: Injection | None = None,
        tasks: TurnTasks | None = None,
    ) -> None:
        self._chat = chat
        self._turn = turn
        self._chats = chats
        self._event_log = event_log
        self._dispatcher = dispatcher
        self._reply = reply
        self._queued = queued
        self._boot = boot
        self._undeclared = undeclared
        self._injection = injection or NoOlderTurns()
        self._tasks = tasks
        self._touched: list[Path] = []

    def take_touched(self) -> list[Path]:
        """Return the project paths that tools have touched since the last call."""
        touched, self._touched = self._touched, []
        return touched

    async def run(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run these calls; the calls in `cut` did not arrive completely. A call that had begun when its
        process died is reported as interrupted.
        """
        turn = self._chat.turn
        if turn is None:
            return
        cut_off = turn.tools.keys() - turn.tasks.keys()
        begun = [call for call in calls if call.id in cut_off and turn.tools[call.id] != self._boot]
        for call in begun:
            self.finished(call, ToolResult(call.id, INTERRUPTED, failed=True, origin=NOBODYS))
        left = [
            # Files of a message that was queued before may be gone by now.
            replace(call, input=without_files(call.input)) if self._queued(call.id) else call
            for call in calls
            if call not in begun
        ]
        with tool_scope(self._context(turn.first, [one.user_id for one in turn.members])):
            results = await self._dispatcher.run(left, cut, self)
        if self._tasks is not None:
            results = await self._tasks.merged(results)
        ended = {one.call_id: one.block for one in results if one.call_id in self._open()}
        over = self._tasks.over(ended) if self._tasks is not None else ()
        self._append(*(events.ToolEnded(name, block) for name, block in ended.items()), over=over)

    async def started(self, call: ToolCall, *, wait: bool) -> None:
        """Record the start of a call with effects. Raises `errors.StorageError` if the start cannot be
        written; then the call must not run.
        """
        if wait:
            task = self._tasks.name(call) if self._tasks is not None else ""
            self._append(events.ToolStarted(call.id, call.name, self._boot, task))
            await self._event_log.committed(patient=False)

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """Record the result of a tool call, unless the call runs a task. Results of tasks are recorded
        together with the other results of their step.
        """
        if call.id in self._open() and (self._tasks is None or not self._tasks.has(call.id)):
            self._append(events.ToolEnded(call.id, result.block))

    def looked(self, call: ToolCall, result: ToolResult, began_at: float) -> None:
        """Record nothing for a call without effects, since the call runs again after a crash."""

    def _open(self) -> frozenset[str]:
        running = self._chat.context.running
        return frozenset(call.id for call in running.open_calls) if running is not None else frozenset()

    def _append(self, *data: events.EventData, over: Iterable[Fact] = ()) -> None:
        if data:
            self._chats.append(*over, *(Fact(self._chat.key, one, self._turn) for one in data))

    def _context(self, first: Inbound, people: Sequence[str]) -> ToolExecutionContext:
        context = self._chat.context
        return ToolExecutionContext(
            chat_key=self._chat.key,
            request_id=self._turn,
            user_id=first.user_id,
            reply=self._reply,
            injection=self._injection,
            channel=first.channel,
            private=first.chat_type == "direct",
            people=tuple(dict.fromkeys(people)),
            view=lambda: [*context.view(), *context.older(), *context.current()],
            flush=self._event_log.committed,
            touched=self._touched.append,
            undeclared=self._undeclared,
            tasks=self._tasks,
            inbound=first,
        )
