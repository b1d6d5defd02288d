"""The loop of a turn: call the model, run the tools that it calls, and repeat until the answer is sent. The next step
depends only on the turn's messages. So running the loop again continues an interrupted turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot import errors, tags, text
from bot.contracts.environment import off_loop
from bot.contracts.messages import NOBODYS, ArchiveLine, Inbound
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import attachments, events, view
from bot.core.chat import Phase
from bot.core.chats import Chats, Fact
from bot.core.context import INTERRUPTED, LENGTH, RunningTurn
from bot.core.event_log import EventLog
from bot.core.fit import Fit, Frame, Withdrawn
from bot.core.reply import ChatReply, PartialReply
from bot.llm import blocks
from bot.tags import SEND, SILENT
from bot.telemetry import redaction
from bot.telemetry.log import current, running_scope
from bot.tools.builtin.chat_send import promises_more
from bot.tools.context import Injection, Reply, ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher
from bot.tools.permissions import taint
from bot.words import say

if TYPE_CHECKING:
    from bot.core.tasks import TurnTasks

MOST_STEPS = 50  # Max model calls of a turn, unless another limit is set
MOST_UNFINISHED = 3  # Max consecutive cut-off or paused answers after which the model is called again
STOPPED = "(stopped)"
"""Marker in the history that tells the model that this answer was cut off because somebody stopped the turn."""
MOST_TOKENS = 30_000  # Max estimated tokens of older messages that one turn loads
LONGEST_LINE = 20_000  # Max characters of a loaded archive line. The middle of a longer line is left out.


class Refused(Withdrawn):
    """The model refused to answer. The turn leaves the history, as the provider recommends."""

    @property
    def person(self) -> str:
        return f"{self.values['words']}\n\n{say('turn.declined')}".strip()


@dataclass(eq=False, kw_only=True)
class Loop:
    """Runs one turn of a chat, or one subagent task. A tool call with side effects runs only after its start is on disk."""

    turn: str
    fit: Fit
    chats: Chats
    event_log: EventLog
    model: Model
    frame: Callable[[], Awaitable[Frame]]
    tell: Callable[[Inbound], Awaitable[events.Told | None]]
    """Function that returns a person's message in the form that the model sees; None if the message is empty."""
    before_turn: Callable[[Fit], Awaitable[None]] | None = None
    before_asking: Callable[[Fit], Awaitable[None]]
    """Function that shrinks the model's context before a request, if needed."""
    reply: ChatReply | None = None
    """Sends the turn's messages; None in a subagent task, whose last text is returned as a report."""
    wrapped: Reply | None = None  # `reply`, wrapped by features
    dispatcher: Dispatcher
    context: Callable[[], ToolExecutionContext]
    """Function that returns the context that the turn's tools receive, without `touched`."""
    tasks: TurnTasks | None = None
    most_steps: int = MOST_STEPS
    _call: asyncio.Task[ModelReply] | None = field(init=False, default=None)
    _heard: PartialReply = field(init=False, default_factory=PartialReply)
    _touched: list[Path] = field(init=False, default_factory=list)
    """Project paths that the last step's tools used."""

    def __post_init__(self) -> None:
        self.chat, self.agent = self.fit.chat, self.fit.agent

    async def run(self) -> str:
        """Run steps until nothing is left to do. Return a sentence for the person if no answer was sent; else ""."""
        if self.before_turn is not None:
            await self.before_turn(self.fit)
        self.fit.begin(await self.frame())
        for step in range(1, self.most_steps + 1):
            with running_scope(replace(current(), step=step)):
                await self._take_up()
                running = self.chat.context.running
                if running is None or not running.entries:
                    return "" if self.chat.turn is None else attachments.unread(self.chat.turn.unread)
                if self._said() or (self._answered(running) and _only_sent(running)):
                    return ""
                if calls := running.open_calls:
                    await self._act(calls, running.entries[-1].cut)
                elif not self._goes_on(running):
                    return await self._say_the_rest(running)
                elif not running.speaks and running.unfinished >= MOST_UNFINISHED:
                    return say("turn.too_many_cuts")
                else:
                    await self._ask(running)
        return say("turn.too_many_steps", count=self.most_steps)

    # ------------------------------------------------------------ one step

    async def _take_up(self) -> None:
        """Add the person's new messages. After the model's final answer, add them only if at least one of them is an edit."""
        running = self.chat.context.running
        about_to_speak = running is not None and running.speaks and not running.open_calls
        more = self.chat.joinable()
        if more and (not about_to_speak or any(one.kind == "edit" for one in more)):
            self.fit.append(events.Joined(tuple(one.request_id for one in more)))
        for inbound in self.chat.untold:
            if (told := await self.tell(inbound)) is not None:
                self.fit.append(told)

    async def _act(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run tool calls. A lone `chat_send` ends the turn, unless it announces another message or the person has written."""
        (call, *others) = calls
        alone = not others and call.name == SEND and call.id not in cut and not promises_more(call.input)
        told, turn = self.chat.context.sources(), self.chat.turn
        added = turn is not None and any(one.request_id not in told for one in turn.left)
        if self.reply is not None:
            self.reply.ending = call.id if alone and not added else None
        await self._run_tools(calls, cut)
        context, touched, self._touched = self.chat.context, self._touched, []
        if (running := context.running) is not None and not running.speaks and not self._said():
            results, seen = (
                running.entries[-1].message,
                [*self.fit.prefix, *context.view(), *context.current()],
            )
            for message in await view.after_results(results, touched, self.agent, seen):
                self.fit.append(events.Told(message))

    def _goes_on(self, running: RunningTurn) -> bool:
        """Return True if the model must be called again, because it has not read the newest message or its answer is unfinished."""
        last = running.last
        if last is None:
            return True
        if last.stop_reason == "refusal":
            raise Refused("refusal", "declined", words=running.words)
        answered, again = self._answered(running), running.unfinished
        if answered or not 1 <= again <= MOST_UNFINISHED:
            return False
        if running.speaks:
            return last.stop_reason in {"max_tokens", "pause_turn"}
        # After an empty answer, ask once more if a longer answer may come, or if the person waits after tool results.
        if last.stop_reason in LENGTH:
            return again == 1 and self.fit.more_room()
        newest = itertools.takewhile(lambda one: one.message["role"] == "user", reversed(running.entries))
        results = any(one.message["content"][0].get("type") == "tool_result" for one in newest)
        return again == 1 and results and not (self._spoke() and _only_sent(running))

    async def _say_the_rest(self, running: RunningTurn) -> str:
        """Send the final text, unless a tool has sent the answer. Return a sentence to send instead; "" if no sentence is needed."""
        words, cut = running.words, running.last is not None and running.last.stop_reason in LENGTH
        quiet = self.chat.turn is not None and all(one.overheard for one in self.chat.turn.left)
        if silent := words.startswith(SILENT):
            words = ""
        if self._answered(running) or (not words and quiet and (silent or not cut)):
            return ""
        if not words:
            notice = "too_many_cuts" if cut else "nothing_to_say"
            return "" if self._spoke() and _only_sent(running) else say(f"turn.{notice}")
        await self._say(running, f"{words}\n\n{say('turn.truncated')}" if cut else words)
        return ""

    async def _say(self, running: RunningTurn, words: str) -> None:
        name = str(running.entries[-1].seq)
        if self.reply is None or self.wrapped is None:
            return
        self.reply.ending = name
        with contextlib.suppress(errors.DeliveryFailed):  # already logged by the outbox
            await self.wrapped.send(words, name)

    # ------------------------------------------------------------ tool calls

    async def _run_tools(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run these calls. Calls in `cut` arrived incompletely. Calls that a dead process began get an error result."""
        turn, tasks = self.chat.turn, self.tasks
        if turn is None:
            return
        cut_off = turn.tools.keys() - turn.tasks.keys()
        begun = [call for call in calls if call.id in cut_off and turn.tools[call.id] != self.agent.boot]
        for call in begun:
            self.finished(call, ToolResult(call.id, INTERRUPTED, failed=True, origin=NOBODYS))
        left = [
            # The files of a message that was already queued may no longer exist, so repeat the call without them.
            replace(call, input={**call.input, "attachments": []})
            if self.reply is not None and self.reply.queued(call.id)
            else call
            for call in calls
            if call not in begun
        ]
        with tool_scope(replace(self.context(), touched=self._touched.append)):
            results = await self.dispatcher.run(left, cut, self)
        if tasks is not None:
            results = await tasks.merged(results)
        ended = {one.call_id: one.block for one in results if one.call_id in self._open()}
        facts = [
            *(tasks.over(ended) if tasks is not None else ()),
            *(Fact(self.chat.key, events.ToolEnded(name, block), self.turn) for name, block in ended.items()),
        ]
        if facts:
            self.chats.append(*facts)

    async def started(self, call: ToolCall) -> None:
        """Record on disk that a call starts. If this raises `errors.StorageError`, the call must not run."""
        task = self.tasks.name(call) if self.tasks is not None else ""
        self.fit.append(events.ToolStarted(call.id, call.name, self.agent.boot, task))
        await self.event_log.committed(patient=False)

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        """Record the result of a call. The result of a task is recorded later, with the other results of the step."""
        if call.id in self._open() and (self.tasks is None or call.id not in self.tasks.given):
            self.fit.append(events.ToolEnded(call.id, result.block))

    def _open(self) -> set[str]:
        running = self.chat.context.running
        return {call.id for call in running.open_calls} if running is not None else set()

    # ------------------------------------------------------------ what the person has received

    def _said(self) -> bool:
        """Return True if the message that ends the turn is queued or delivered."""
        return self.chat.turn is not None and self.chat.turn.phase is Phase.ENDING

    def _spoke(self) -> bool:
        """Return True if any message of this turn is queued or delivered."""
        turn = self.chat.turn
        return turn is not None and any(end is None or end.state != "failed" for end in turn.rows.values())

    def _answered(self, running: RunningTurn) -> bool:
        """Return True if a `chat_send` call answered the person's newest message and announced no further message."""
        for entry in reversed(running.entries):
            if entry.sources:
                return False
            for call in reversed(blocks.tool_calls(entry.message["content"])):
                if call.name == SEND and self.reply is not None and self.reply.said(call.id):
                    return not promises_more(call.input)
        return False

    # ------------------------------------------------------------ calling the model

    def ask_anew(self, call: str) -> None:
        """Cancel this model call, because the person added a message or an edit. The loop then calls the model again."""
        running = self.chat.context.running
        going_on = running is not None and running.last is not None and running.speaks
        if not going_on and self._call and self.chat.turn is not None and self.chat.turn.call == call:
            self._call.cancel()

    async def _ask(self, running: RunningTurn) -> None:
        await self.before_asking(self.fit)
        while True:
            request = self.fit.request()
            self.fit.append(events.Asked(self.agent.ids.ulid(), self.agent.boot, request.model))
            try:
                reply = await self._listen(request)
            except errors.ModelError as error:
                unfit = isinstance(error, errors.RequestInvalid | errors.ContextOverflow)
                if not unfit and running.speaks and running.tail and running.words:
                    # The continuation of an answer failed. Send the part that has arrived.
                    told, cause = (
                        "the rest of the answer could not be had",
                        f"{type(error).__name__}: {error}",
                    )
                    self.agent.log.write("continue", told, level="warn", cause=cause)
                    await self._say(running, f"{running.words}\n\n{say('turn.broken_off')}")
                    if self._said():
                        return
                self.fit.refused(request, error)
                continue
            if reply is not None:
                self.fit.models.learn(request, reply)
                await self._take(running, reply)
            return

    async def _listen(self, request: ModelRequest) -> ModelReply | None:
        """Return the model's answer; None if `ask_anew` cancelled the call."""
        self._call = asked = asyncio.ensure_future(self._answer(request))
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:
            await self._stopped()
            raise
        finally:
            self._call = None
            asked.cancel()
        if asked.cancelled():
            self._show_no_more()
            return None
        return asked.result()

    async def _answer(self, request: ModelRequest) -> ModelReply:
        turn, speaks = self.chat.turn, False
        asked = turn is None or not all(one.overheard for one in turn.left)
        heard = self._heard = PartialReply(plain=asked)
        async for piece in self.model.stream(request):
            heard.take(piece)
            if self.reply is not None and heard.speaks and not speaks:
                speaks = True
                self.reply.preview(heard.shown)
            if isinstance(piece, ModelReply):
                self._show_no_more()  # the final message replaces the preview
                return piece
        raise errors.StreamBroken("the model's stream ended without a reply")

    def _show_no_more(self) -> None:
        if self.reply is not None and self._heard.speaks:
            self.reply.preview(str)

    async def _stopped(self) -> None:
        """Store what the model had written when the turn was stopped. Show it unless the turn has sent a message."""
        turn, agent = self.chat.turn, self.agent
        if self.reply is None or turn is None or turn.call is None or turn.phase is not Phase.STOPPING:
            return
        words = agent.redact(agent.redact.settled(self._heard.words())).strip() if turn.left else ""
        if not words:
            self._show_no_more()
            return
        kept = [{"type": "text", "text": f"{words}\n\n{STOPPED}"}]
        spoke = self._spoke()
        self.fit.append(
            events.Answered(
                turn.call, kept, "stopped", origin=taint.stamp_of(kept, self.chat.context.shown())
            )
        )
        if not spoke:
            await self.reply.leave(f"{text.with_code_closed(words)}\n\n{say('turn.stopped')}", "stopped")

    async def _take(self, running: RunningTurn, reply: ModelReply) -> None:
        """Append the model's answer with secrets redacted. A continuation is merged with the answer that it continues."""
        turn, usage, tail = self.chat.turn, reply.usage, running.tail
        if turn is None or turn.call is None:
            return
        call, content, continues = turn.call, list(reply.content), 0
        if tail:
            content = [block for block in content if block.get("type") not in blocks.THINKING]
        content = blocks.sayable(content, paused=reply.stop_reason == "pause_turn" and not tail)
        if tail and running.speaks and running.last is not None:
            begun = running.entries[-1].message["content"]
            content, continues = blocks.joined(begun, content), running.last.continues + 1
        if reply.stop_reason == "refusal" and not content and (reply.detail or {}).get("explanation"):
            content = [{"type": "text", "text": str((reply.detail or {})["explanation"])}]
        said = content
        content = await off_loop(
            sum(map(len, text.strings(said))),
            redaction.LONG,
            lambda: blocks.redacted(said, lambda words: self.agent.redact(text.clean(words))),
        )
        used = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        self.fit.append(
            events.Answered(
                call,
                content,
                reply.stop_reason,
                reply.model,
                tuple(sorted(reply.cut)),
                continues,
                usage=dict(zip(("input", "output", "cacheRead", "cacheWrite"), used, strict=True)),
                cost_usd=reply.cost_usd,
                unshown=tuple(sorted(reply.unshown)),
                blind=reply.blind,
                note=reply.note,
                origin=taint.stamp_of(content, self.chat.context.shown()),
            )
        )


def _only_sent(running: RunningTurn) -> bool:
    """Return True if the last step made only successful `chat_send` calls."""
    if len(running.entries) < 2 or running.speaks:
        return False
    asked, given = (one.message["content"] for one in running.entries[-2:])
    calls = blocks.tool_calls(asked)
    return bool(calls) and all(
        call.name == SEND and not result.get("is_error") for call, result in zip(calls, given, strict=False)
    )


@dataclass(eq=False)
class OlderMessages:
    """Implements `tools.context.Injection` for one turn, or for a subagent `task` that the turn started. `seen` is the turn's
    own `Injection` if the task begins with the turn's messages.
    """

    turn: str
    fit: Fit
    _: KW_ONLY
    task: str = ""
    seen: Injection | None = None

    def room(self) -> int:
        """Return the number of messages that the turn may still load; 0 at the token limit."""
        running = self.fit.chat.context.running
        if running is None or blocks.tokens(self.fit.chat.context.older()) >= MOST_TOKENS:
            return 0
        return self.fit.agent.settings.context.max_injected_messages - running.injected

    def in_view(self, line: ArchiveLine) -> bool:
        # ULIDs sort by time. A message accepted after the turn's first message is not an older message.
        context, turn = self.fit.chat.context, self.fit.chat.turn
        if line.request_id >= self.turn or line.request_id in context.sources() - {""}:
            return True
        if self.seen is not None and self.seen.in_view(line):
            return True
        if context.running is not None and _key(line) in context.running.lines:
            return True
        # Some platforms number messages from 1 in each chat, so a message id is unique only within its chat.
        asked = {one.message_id for one in turn.members} - {None} if turn is not None else set()
        return line.chat_key == self.fit.chat.key and line.role == "user" and line.message_id in asked

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """Load the newest of these archive lines that fit, at least one. Raises `errors.TurnStopped`."""
        running = self.fit.chat.context.running
        if running is None or running.id != (self.task or self.turn):
            raise errors.TurnStopped
        taken, names = list[ArchiveLine](), list[str]()
        left = MOST_TOKENS - blocks.tokens(self.fit.chat.context.older())
        for line in reversed(lines[max(0, len(lines) - self.room()) :]):
            short = line.model_copy(update={"text": text.shorten_middle(line.text, LONGEST_LINE)})
            left -= blocks.text_tokens(short.text) + 2 * blocks.BLOCK_TOKENS
            if left < 0 and taken:
                break
            taken.insert(0, short)
            names.insert(0, _key(line))
        messages = view.loaded_messages(taken, tags.nonce(self.fit.agent.ids.ulid()))
        self.fit.append(events.Injected(tuple(messages), tuple(line.ts for line in taken), tuple(names)))
        return taken


def _key(line: ArchiveLine) -> str:
    """Return a key for an archive line, made of chat, time, role and message id (or text, if there is no id)."""
    key = (str(line.chat_key), line.ts, line.role, line.message_id or line.text)
    return hashlib.sha256(repr(key).encode()).hexdigest()[:24]
