"""The loop: ask the model, run the tools that it calls, and again, until its words are said.

The next step follows from the messages of the running turn alone. So a turn that was cut off goes on by running this loop again: there is
nothing to recover.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot import errors, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.inbound import Inbound
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.contracts.tools import ToolCall
from bot.core import blocks, events, view
from bot.core.chat import Chat, Phase
from bot.core.chats import Chats, Fact
from bot.core.context import ContextEntry
from bot.core.partial_reply import PartialReply
from bot.core.reply import ChatReply
from bot.core.tool_calls import ToolCalls
from bot.tools.builtin.chat_send import promises_more
from bot.words import say

SEND = "chat_send"
STOPPED = "(stopped)"
"""Marks for the model what a stop cut off."""
MOST_STEPS = 50
"""Limit of model calls in one turn."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a request before its messages: model, system prompt and tools."""

    model: str
    max_tokens: int
    system: Sequence[Json]
    tools: Sequence[Json]


@dataclass(frozen=True, slots=True)
class LoopPorts:
    """Collaborators of a loop: a turn, a task, a fork and a replay differ in these."""

    model: Model
    frame: Callable[[], Awaitable[Frame]]
    tell: Callable[[Inbound], Awaitable[Message]]
    """A person's message as the model gets it."""
    calls: ToolCalls
    reply: ChatReply
    redact: Redact
    settled: Redact
    """The part of words that go on which cannot become a secret."""
    new_id: Callable[[], str]
    boot: str


class Loop:
    """Runs one turn of a chat."""

    def __init__(self, chat: Chat, turn: str, chats: Chats, ports: LoopPorts) -> None:
        self._chat = chat
        self._turn = turn
        self._chats = chats
        self._ports = ports
        self._call: asyncio.Task[ModelReply] | None = None
        self._heard = PartialReply()

    async def run(self) -> str:
        """Run until nothing is left to do; a sentence for the person where that is no answer, else "". Raises `errors.ShipmateError`."""
        frame = await self._ports.frame()
        for _ in range(MOST_STEPS):
            running = self._chat.context.running
            if (
                running is None or not running.answered
            ):  # an answer is said before what came meanwhile is taken up
                await self._take_up()
            running = self._chat.context.running
            if running is None or not running.entries:
                return ""
            last = running.entries[-1]
            if calls := running.open_calls:
                await self._act(calls, last.cut)
            elif self._said():
                return ""
            elif running.answered:
                return await self._say_the_rest(last)
            else:
                await self._ask(frame)
        return say("turn.too_many_steps", count=MOST_STEPS)

    async def _act(self, calls: Sequence[ToolCall], cut: frozenset[str]) -> None:
        """Run what the model called. A message alone ends the turn, unless it says that another follows."""
        (call, *others) = calls
        alone = not others and call.name == SEND and call.id not in cut and not promises_more(call.input)
        self._ports.reply.end_with(call.id if alone else None)
        await self._ports.calls.run(calls, cut)

    async def _say_the_rest(self, last: ContextEntry) -> str:
        """Say the last words as they are, unless a tool has said what there is to say; "" or a sentence in their place."""
        words = blocks.plain_text(last.message["content"]).strip()
        if not words:
            return "" if self._spoke() else say("turn.nothing_to_say")
        name = str(last.seq)
        self._ports.reply.end_with(name)
        with contextlib.suppress(errors.DeliveryFailed):  # it is in the log already
            await self._ports.reply.send(words, name)
        return ""

    def _spoke(self) -> bool:
        """True where a message of this turn is in the chat, or on its way."""
        turn = self._chat.turn
        return turn is not None and any(end is None or end.state != "failed" for end in turn.rows.values())

    def ask_anew(self, call: str) -> None:
        """Give up this call of the model: its person has added something to the question."""
        if self._call is not None and self._chat.turn is not None and self._chat.turn.call == call:
            self._call.cancel()

    def _said(self) -> bool:
        """True where a message that ends the turn is queued, or in the chat."""
        turn = self._chat.turn
        return turn is not None and turn.answered

    async def _take_up(self) -> None:
        """Make what its person has added a part of the turn, and tell the model what it has not been told."""
        if more := self._chat.joinable():
            self._append(events.Joined(tuple(one.request_id for one in more)))
        for inbound in self._chat.untold:
            message = await self._ports.tell(inbound)
            self._append(events.Told(message, (inbound.request_id,)))

    async def _ask(self, frame: Frame) -> None:
        context = self._chat.context
        request = view.render(
            model=frame.model,
            max_tokens=frame.max_tokens,
            system=frame.system,
            tools=frame.tools,
            history=context.view(),
            injected=context.older(),
            current=context.current(),
        )
        call = self._ports.new_id()
        self._append(events.Asked(call, self._ports.boot, request.model))
        self._call = asyncio.ensure_future(self._answer(request))
        try:
            await asyncio.wait([self._call])
        except asyncio.CancelledError:
            self._stopped(call)
            raise
        finally:
            asked, self._call = self._call, None
            asked.cancel()
        if asked.cancelled():
            self._show_no_more()
            return  # the question is put anew
        reply = asked.result()
        usage = reply.usage
        self._append(
            events.Answered(
                call,
                blocks.sayable(reply.content),
                reply.stop_reason,
                reply.model,
                tuple(sorted(reply.cut)),
                usage={
                    "input": usage.input_tokens,
                    "output": usage.output_tokens,
                    "cacheRead": usage.cache_read_tokens,
                    "cacheWrite": usage.cache_write_tokens,
                },
                cost_usd=reply.cost_usd,
            )
        )

    async def _answer(self, request: ModelRequest) -> ModelReply:
        turn, speaks = self._chat.turn, False
        asked = turn is None or not all(one.overheard for one in turn.left)
        heard = self._heard = PartialReply(plain=asked)
        async for piece in self._ports.model.stream(request):
            heard.take(piece)
            if heard.speaks and not speaks:
                speaks = True
                self._ports.reply.preview(heard.shown)
            if isinstance(piece, ModelReply):
                self._show_no_more()  # its message comes in the place of what was shown of it
                return piece
        raise errors.StreamBroken("the model's stream ended without a reply")

    def _show_no_more(self) -> None:
        if self._heard.speaks:
            self._ports.reply.preview(str)

    def _stopped(self, call: str) -> None:
        """Keep what the model had said when its turn was stopped, with a mark; a turn that has said nothing yet says it."""
        turn = self._chat.turn
        if turn is None or turn.phase is not Phase.STOPPING:
            return
        ports = self._ports
        words = ports.redact(ports.settled(self._heard.words())).strip() if turn.left else ""
        if not words:
            self._show_no_more()
            return
        kept = {"type": "text", "text": f"{words}\n\n{STOPPED}"}
        spoke = self._spoke()
        self._append(events.Answered(call, [kept], "stopped"))
        if not spoke:
            ports.reply.leave(f"{text.with_code_closed(words)}\n\n{say('turn.stopped')}", "stopped")

    def _append(self, data: events.EventData) -> None:
        self._chats.append(Fact(self._chat.key, data, self._turn))
