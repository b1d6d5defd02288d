"""Runs a turn's tool calls, and loads the older messages that a call asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot import errors, tags, text
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.environment import Ids
from bot.contracts.inbound import Inbound
from bot.contracts.provenance import NOBODYS
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import estimate, events, prompt
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.context import INTERRUPTED
from bot.core.event_log import EventLog
from bot.tools.builtin.chat_send import without_files
from bot.tools.context import Injection, NoOlderTurns, Reply, ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher

if TYPE_CHECKING:
    from bot.core.tasks.turn_tasks import TurnTasks

MOST_TOKENS = 30_000
"""Max estimated tokens of older messages loaded by one turn."""
LONGEST_LINE = 20_000
"""Max characters of an archive line; a longer line is shortened in the middle."""


@dataclass(eq=False)
class ToolCalls:
    """Runs the tool calls of one turn, and implements `tools.dispatch.Recorder` for their results. The start of
    a call with effects is on disk before the call runs; each result is appended at once.
    """

    chat: Chat
    turn: str
    chats: Chats
    event_log: EventLog
    dispatcher: Dispatcher
    _: KW_ONLY
    reply: Reply | None
    queued: Callable[[str], bool]
    """Function that returns True if the message of this call was queued before."""
    boot: str
    undeclared: Callable[[], Sequence[Json]] = tuple
    injection: Injection = field(default_factory=NoOlderTurns)
    tasks: TurnTasks | None = None
    touched: list[Path] = field(init=False, default_factory=list)
    """Project paths that tools have touched and that nobody has looked up yet."""

    async def run(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run these calls; those in `cut` did not arrive completely. A call that an earlier process had begun is
        reported as interrupted.
        """
        turn = self.chat.turn
        if turn is None:
            return
        cut_off = turn.tools.keys() - turn.tasks.keys()
        begun = [call for call in calls if call.id in cut_off and turn.tools[call.id] != self.boot]
        for call in begun:
            self.finished(call, ToolResult(call.id, INTERRUPTED, failed=True, origin=NOBODYS))
        left = [
            # Files of a message that was queued before may be gone by now.
            replace(call, input=without_files(call.input)) if self.queued(call.id) else call
            for call in calls
            if call not in begun
        ]
        with tool_scope(self._context(turn.first, [one.user_id for one in turn.members])):
            results = await self.dispatcher.run(left, cut, self)
        if self.tasks is not None:
            results = await self.tasks.merged(results)
        ended = {one.call_id: one.block for one in results if one.call_id in self._open()}
        over = self.tasks.over(ended) if self.tasks is not None else ()
        facts = [
            Fact(self.chat.key, events.ToolEnded(name, block), self.turn) for name, block in ended.items()
        ]
        if facts:
            self.chats.append(*over, *facts)

    async def started(self, call: ToolCall, *, wait: bool) -> None:
        """Record the start of a call with effects. Raises `errors.StorageError`; then the call must not run."""
        if wait:
            task = self.tasks.name(call) if self.tasks is not None else ""
            data = events.ToolStarted(call.id, call.name, self.boot, task)
            self.chats.append(Fact(self.chat.key, data, self.turn))
            await self.event_log.committed(patient=False)

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """Record the result of a call. Results of tasks are recorded with the other results of their step."""
        if call.id in self._open() and (self.tasks is None or not self.tasks.has(call.id)):
            self.chats.append(Fact(self.chat.key, events.ToolEnded(call.id, result.block), self.turn))

    def looked(self, call: ToolCall, result: ToolResult, began_at: float) -> None:
        """Record nothing for a call without effects, since the call runs again after a crash."""

    def _open(self) -> set[str]:
        running = self.chat.context.running
        return {call.id for call in running.open_calls} if running is not None else set()

    def _context(self, first: Inbound, people: Sequence[str]) -> ToolExecutionContext:
        return ToolExecutionContext(
            chat_key=self.chat.key,
            request_id=self.turn,
            user_id=first.user_id,
            reply=self.reply,
            injection=self.injection,
            channel=first.channel,
            private=first.chat_type == "direct",
            people=tuple(dict.fromkeys(people)),
            view=self.chat.context.shown,
            flush=self.event_log.committed,
            touched=self.touched.append,
            undeclared=self.undeclared,
            tasks=self.tasks,
            inbound=first,
        )


@dataclass(eq=False)
class OlderMessages:
    """Implements `tools.context.Injection` for one turn, with at most `most` messages. Loaded messages are
    placed before the current message until the turn ends.
    """

    chat: Chat
    turn: str
    most: int
    append: Callable[[events.EventData], None]
    ids: Ids

    def room(self) -> int:
        """Return how many more messages may be loaded; 0 once the token limit is reached."""
        running = self.chat.context.running
        if running is None or estimate.tokens(self.chat.context.older()) >= MOST_TOKENS:
            return 0
        return self.most - running.injected

    def in_view(self, line: ArchiveLine) -> bool:
        # ULIDs sort by time. Messages accepted after the turn's first message are not history yet.
        context, turn = self.chat.context, self.chat.turn
        if line.request_id >= self.turn or line.request_id in context.sources() - {""}:
            return True
        if context.running is not None and _key(line) in context.running.lines:
            return True
        # Platform message ids are unique only within a chat, since platforms number messages from 1 in each chat.
        asked = {one.message_id for one in turn.members} - {None} if turn is not None else set()
        return line.chat_key == self.chat.key and line.role == "user" and line.message_id in asked

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """Load the newest archive lines that fit, at least one. Raises `errors.TurnStopped`."""
        running = self.chat.context.running
        if running is None or running.id != self.turn:
            raise errors.TurnStopped
        taken, names = list[ArchiveLine](), list[str]()
        left = MOST_TOKENS - estimate.tokens(self.chat.context.older())
        for line in reversed(lines[max(0, len(lines) - self.room()) :]):
            short = line.model_copy(update={"text": text.shorten_middle(line.text, LONGEST_LINE)})
            left -= estimate.text_tokens(short.text) + 2 * estimate.BLOCK_TOKENS
            if left < 0 and taken:
                break
            taken.insert(0, short)
            names.insert(0, _key(line))
        messages = prompt.loaded_messages(taken, tags.nonce(self.ids.ulid()))
        self.append(events.Injected(tuple(messages), tuple(line.ts for line in taken), tuple(names)))
        return taken


def _key(line: ArchiveLine) -> str:
    """Return a key for an archive line: the chat with the message id, or the text if there is no id."""
    key = (str(line.chat_key), line.ts, line.role, line.message_id or line.text)
    return hashlib.sha256(repr(key).encode()).hexdigest()[:24]
