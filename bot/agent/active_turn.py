"""The turn that is running: what it has said and done so far, and the view of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot import errors, text
from bot.agent import assistant_text
from bot.agent.compactor import Compactor
from bot.agent.deps import AgentDeps
from bot.agent.reply import TrackedReply
from bot.agent.steps import INTERRUPTED, CallRecord, StepLog, known_results, silent_answer
from bot.agent.user_message import fresh_nonce, instructions, said_by_servers, user_message
from bot.agent.view_changes import ViewChanges
from bot.context.store import RunningTurn
from bot.contracts.agent import TurnRequest
from bot.contracts.archive import ArchiveKey, ArchiveLine
from bot.contracts.base import Json, Message
from bot.contracts.environment import off_loop
from bot.contracts.inbound import Inbound
from bot.contracts.journal import FinalTurnState, StepRecord
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.tools import ToolCall, ToolResult
from bot.contracts.transcript import Boundary, Injection, MessageEvent, TurnEnd
from bot.core import blocks, estimate, prompt
from bot.core.continuation import joined
from bot.core.injection import MOST_TOKENS, fitted
from bot.core.partial_reply import PartialReply
from bot.core.repair import Entry
from bot.llm.log import usage_object
from bot.telemetry import redaction
from bot.tools.builtin.chat_send import promises_more
from bot.tools.permissions import taint


class ActiveTurn:
    """One turn from its user message to its end. What happens in it is told to the transcript and to the store at once."""

    def __init__(
        self,
        request: TurnRequest,
        view_changes: ViewChanges,
        compactor: Compactor,
        steps: StepLog,
        deps: AgentDeps,
    ) -> None:
        self.request = request
        self.store = view_changes.store
        self.compactor = compactor
        self.steps = steps
        self.reply = TrackedReply.of(request, view_changes.ledger)
        self.touched: list[Path] = []
        """Paths of the project that tools have used since the last step."""
        self.resumed = False
        """True of a turn that goes on where a crash cut it off."""
        self.owed = ""
        """Words of a stopped turn that nobody has seen yet; "" if none."""
        self.view_changes = view_changes
        self._ledger = view_changes.ledger
        self._deps = deps
        self._partial = PartialReply()
        self._running: RunningTurn | None = None
        self._ended = False
        self._recorded: Sequence[StepRecord] = ()
        self._late: list[Inbound] = []
        self._call: asyncio.Future[None] | None = None
        self._pending_input = request.pending_input

    async def begin(self, news: Mapping[str, str] = prompt.NO_NEWS) -> None:
        """Write the user's message, and what else belongs to it from the beginning, such as the surroundings that have
        changed (`news`). It is in the transcript before the answer; the model need not wait for it.
        """
        wrong, begins = self.view_changes.chat_totals.wrong, not self.store.view()
        first = await self._user_message(self.request, wrong, news, begins=begins)
        rest = [(one, await self._user_message(self._joining(one))) for one in self.request.also]
        self.view_changes.begin_turn(self.request.request_id)
        self._running = self.store.running
        self._note(first)
        for inbound, said in rest:
            self._join(inbound, said)

    async def resume(self, cut_off: RunningTurn, recorded: Sequence[StepRecord]) -> None:
        """Go on with the store's turn, which a crash cut off, as its transcript and its recorded steps tell it."""
        self.view_changes.resume_turn()
        self._running = cut_off
        self.resumed = True
        self._recorded = recorded
        self._ledger.rewind(self._entries[-1].uuid)
        if self.reply is not None:
            self.reply.resume(self.request.begun, cut_off, recorded)
        self.view_changes.chat_totals.resumed(recorded)
        for step in recorded:
            if step.kind == "model" and step.ended_at is None:
                self.steps.end(step.id, {"error": "interrupted"})
        self._late = [one for one in self.request.also if one.request_id not in cut_off.sources]
        if self.last_reply() is not None:
            return
        if any(entry.message["role"] == "assistant" for entry in self._entries):
            await self.instruct()
            await self.take_more()
        else:
            await self.take_late()

    def last_reply(self) -> ModelReply | None:
        """Return the reply with which a resumed turn ends, else None. A reply without words stands in no message."""
        if not self.resumed or self._running is None:
            return None
        said = self._running.last
        if self._entries[-1].message["role"] == "assistant" and said is not None:
            content = list(self._entries[-1].message["content"])
            return ModelReply(content, said.stop_reason, cut=frozenset(said.cut))
        last = silent_answer(self._recorded, self._running.on_file)
        return ModelReply([], last.get("stopReason")) if last is not None else None

    def answers(self) -> bool:
        """True if a resumed turn has its answer, and has only to say it."""
        last = self.last_reply()
        return last is not None and last.stop_reason in {"end_turn", "stop_sequence"}

    def known_results(self, calls: Sequence[ToolCall]) -> dict[str, ToolResult]:
        """The results of calls of a cut-off step that must not run again: they did run, or may have."""
        before = self._running.written if self._running is not None else ()
        fresh = [one for one in self.request.begun if one.id not in before]
        known = known_results(calls, self._recorded, fresh)
        for step in self._recorded:
            if step.ended_at is None and step.id in known:
                self.steps.end(step.id, known[step.id].record)
        return {name: one.result for name, one in known.items()}

    def asks(self, request: ModelRequest) -> PartialReply:
        """The model is asked this; returns what collects the answer. Raises `errors.TurnStopped`."""
        self._must_run()
        self._partial = PartialReply(plain=not self.request.arrivals.quiet)
        self.view_changes.note_sent(request.messages)
        self.steps.begin(self._deps.ids.ulid(), "model", request.model)
        return self._partial

    async def add_reply(self, reply: ModelReply, continued: int = 0) -> list[ToolCall]:
        """Append what the model said; returns its tool calls. What has an effect waits until the step is on file.

        A refusal is no part of the conversation. The `continued`-th time it goes on with an answer, the whole of that
        takes the place of what there was.
        """
        size = sum(map(len, text.strings(reply.content)))
        content = await off_loop(
            size, redaction.LONG, lambda: blocks.redacted(reply.content, self._deps.redact)
        )
        self._must_run()
        if reply.stop_reason == "refusal":
            self.steps.answered(reply, None, self._ledger.durable)
            return []
        # An answer that goes on behind a line of ours is no paused one: that line is not sent back.
        content = blocks.sayable(content, paused=reply.stop_reason == "pause_turn" and not continued)
        uuid: str | None = None
        piece = self._replaced() if continued else None
        if piece is not None:
            content = joined(assistant_text.begun(piece.message), content) or piece.message["content"]
        if content:
            uuid = self._note(
                MessageEvent(
                    role="assistant",
                    message={"role": "assistant", "content": content},
                    stop_reason=reply.stop_reason,
                    cut=tuple(sorted(reply.cut)),
                    usage=usage_object(reply.usage),
                    cost_usd=reply.cost_usd,
                    written=self._written(),
                    instead=piece.uuid if piece is not None else None,
                    continued=continued,
                )
            )
        self._partial = PartialReply()
        self.steps.answered(reply, uuid, self._ledger.durable)
        return blocks.tool_calls(content)

    def continued(self) -> int:
        """Return how often the last answer of a resumed turn was continued."""
        said = self._running.last if self._running is not None else None
        return said.continued if said is not None else 0

    def unpause(self, stop_reason: str | None = None, continued: int = 0) -> None:
        """Drop the calls of the provider's own tools from a paused answer, since they get no result."""
        if (rest := assistant_text.without_pause(self._entries[-1].message)) is not None:
            instead = self._replaced().uuid
            self._note(
                MessageEvent(
                    role="assistant",
                    message=rest,
                    instead=instead,
                    stop_reason=stop_reason,
                    continued=continued,
                )
            )

    def last_words(self) -> str:
        """The text with which the turn ends: an answer that paused and went on is one answer."""
        return assistant_text.last_words(self._entries)

    def answered(self) -> bool:
        """True if the person has an answer, or will have it, and was promised no more."""
        return self.reply is not None and self.reply.settled and not self._promised(self.reply.call)

    def complete(self) -> bool:
        """True if the person has the answer and the last step did nothing but give it: nothing is left to ask the model."""
        return self.answered() and self._only_sent()

    def owes_answer(self) -> bool:
        """True if the person waits for one: there was none, or more was promised, and work was done since."""
        if self.reply is None or self.answered():
            return False
        return not (self.reply.settled and self._only_sent())

    def _only_sent(self) -> bool:
        return assistant_text.only_sent([entry.message for entry in self._entries[-2:]])

    def _promised(self, call_id: str | None) -> bool:
        calls = (call for entry in self._entries for call in blocks.tool_calls(entry.message["content"]))
        return any(call.id == call_id and promises_more(call.input) for call in calls)

    def add_results(self, results: Sequence[ToolResult]) -> None:
        """Append the results of all tool calls of the last reply, as one message."""
        self._must_run()
        message: Message = {"role": "user", "content": [one.block for one in results]}
        self._note(MessageEvent(role="user", message=message, written=self._written()))

    async def instruct(self) -> None:
        """Append what the servers of the tools say that the last results have found, and the instructions for what tools
        have touched, where the model does not see them already: those of a history that was cut since come again.
        """
        view = self.view
        seen = [*self.store.view(), *view]
        said = said_by_servers(view[-1], self._deps, seen)
        found = await instructions(self.touched, self._deps, seen) if self.touched else None
        self._must_run()
        for message in filter(None, (said, found)):
            self._add(message)

    async def take_more(self) -> None:
        """Take up what the same person has sent meanwhile: part of this turn, answered with it."""
        self._late += self.request.arrivals.take_more()
        await self.take_late()

    def restart_model_call(self) -> None:
        """Give up the model call that runs, if any: its person has added something to the question."""
        self._pending_input = True
        if self._call is not None:
            self._call.cancel()

    async def added(self, *, restartable: bool) -> None:
        """Take up what its person has added, where its model call is `restartable`: it is on file before the model is asked."""
        if self._pending_input and restartable:
            self._pending_input = False
            await self.take_more()
            await self.request.arrivals.joined()

    async def heard(self, listening: Coroutine[Any, Any, None], *, restartable: bool) -> bool:
        """Listen to a model call; False where it was given up (`restartable` says that it may be)."""
        if not restartable:
            await listening
            return True
        call = self._call = asyncio.ensure_future(listening)
        try:
            await asyncio.wait([call])
        finally:
            self._call = None
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
        if call.cancelled():
            self._partial = PartialReply()
            return False
        call.result()
        return True

    async def take_late(self) -> bool:
        """Take up what belongs to the turn and is not written yet; False where there is nothing."""
        if not self._late:
            return False
        while self._late:
            said = await self._user_message(self._joining(self._late[0]))
            self._join(self._late.pop(0), said)
        return True

    # ------------------------------------------------------------ what tools do (`tools.dispatch.Recorder`)

    async def started(self, call: ToolCall, *, wait: bool) -> None:
        self._must_run()
        if wait:
            self.request.arrivals.effect_begins()
        begun = self.steps.begin(call.id, "tool", call.name)
        if wait and not all(await asyncio.shield(asyncio.gather(begun, self._ledger.durable()))):
            raise errors.StorageError("a tool call cannot be recorded")

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        if self._ended:
            return
        told = self.reply.steps() if self.reply is not None else ()
        self.steps.end(call.id, CallRecord(result, told).record)

    def looked(self, call: ToolCall, result: ToolResult, began_at: float) -> None:
        self.steps.took_place(call.id, call.name, began_at, CallRecord(result).record)

    # ------------------------------------------------------------ its end, and cuts

    async def end(self, status: FinalTurnState, notice: str | None = None, wrong: str | None = None) -> None:
        """Close the turn: tool calls without results get one, and the store takes the turn unless withdrawn.

        One that was stopped before it began leaves nothing behind. Everything is done before the first await, so
        that an end that is interrupted is an end all the same. `notice` is what the person will be told of it:
        after a crash in between they still are. `wrong` says to the model what went wrong.
        """
        if self._running is None:
            return
        self._ended = True
        self.steps.failed(status)
        self.unpause()
        owed = ""
        if status == "stopped":
            owed = self._keep_partial()
        elif self._entries and blocks.tool_calls(self._entries[-1].message["content"]):
            self._add(blocks.interrupted_results(self._entries[-1].message, INTERRUPTED))
        for inbound in self._late:
            message = prompt.user_message(self._joining(inbound), self._now(), fresh_nonce(self._deps))
            self._join(inbound, MessageEvent(role="user", message=message))
        self.view_changes.chat_totals.turn(status, wrong)
        ended = TurnEnd(status=status, notice=notice, owed=owed, totals=self.view_changes.chat_totals.facts)
        self.view_changes.end_turn(ended)
        await self._ledger.durable()

    def _keep_partial(self) -> str:
        """Keep what the model had said when it was stopped, with a mark. Where nobody has seen anything of this turn
        it is owed to the person. Returns what is owed where the process dies now: then a message that was begun, but is in
        no outbox yet, is lost.
        """
        partial = self._deps.redact(self._deps.settled(self._partial.words())).strip()
        begun = self.reply.begun if self.reply is not None else ""
        added, owed = assistant_text.last_of_stopped(self._entries, partial, begun)
        for message in added:
            self._add(message)
        if self.reply is None or self.reply.delivered:
            return ""
        if not self.reply.attempted:
            self.owed = owed
        return owed

    async def strip_thinking(self) -> None:
        """Declare an epoch in which all thinking goes."""
        self.view_changes.apply("thinking", Boundary())
        await self._ledger.durable()

    def shown(self) -> list[Message]:
        return [*self.injected, *self.view]

    def in_sight(self) -> list[Message]:
        """All messages that the model is shown."""
        return [*self.store.view(), *self.shown()]

    @property
    def view(self) -> list[Message]:
        """Its own messages, as the model is shown them."""
        return self.store.current()

    @property
    def _entries(self) -> tuple[Entry, ...]:
        return self._running.entries if self._running is not None else ()

    # ------------------------------------------------------------ injection (`tools.context.Injection`)

    @property
    def injected(self) -> list[Message]:
        """The injected older turns, in time order."""
        return self.store.older()

    def room(self) -> int:
        if estimate.tokens(self.injected) >= MOST_TOKENS:
            return 0
        return self._deps.limits.max_injected - (self._running.injected if self._running is not None else 0)

    def in_view(self, line: ArchiveLine) -> bool:
        # ULIDs sort by time: what came in after this message is not history yet.
        if line.request_id >= self.request.request_id or line.request_id in self._visible():
            return True
        key = ArchiveKey.of(line, self.request.chat_key)
        if key in self.store.adopted() or (self._running is not None and key in self._running.keys):
            return True
        # All other names of a line hold in its own chat alone: platforms count messages from 1 in each.
        if line.chat_key != self.request.chat_key:
            return False
        inbound = self.request.inbound
        current = inbound is not None and inbound.said_as is not None and line.message_id == inbound.said_as
        return current and line.role == "user"

    def _visible(self) -> set[str]:
        own = self._running.sources if self._running is not None else ()
        return (self.store.sources() | set(own)) - {""}

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        self._must_run()
        taken = fitted(lines[-self.room() :], self.injected)
        messages = prompt.loaded_messages(taken, fresh_nonce(self._deps))
        keys = [ArchiveKey.of(line, self.request.chat_key) for line in lines[len(lines) - len(taken) :]]
        injection = Injection(
            before=self._entries[0].uuid,
            messages=tuple(messages),
            ts=tuple(line.ts for line in taken),
            keys=tuple(keys),
        )
        self.view_changes.apply("injection", injection)
        await self._ledger.durable()
        return taken

    # ------------------------------------------------------------ inside

    def undeclared(self) -> tuple[Json, ...]:
        """The definitions of tools that this model's window has no room for: `tool_search` finds them."""
        return self._deps.registry.behind(self.view_changes.tools)

    def _must_run(self) -> None:
        """Raise `errors.TurnStopped` if the turn has ended: work that outlived a stop may do nothing more in it."""
        if self._ended:
            raise errors.TurnStopped

    def _join(self, inbound: Inbound, said: MessageEvent) -> None:
        self._deps.log.write("steer", "a message joined the running turn", joined=inbound.request_id)
        self._note(replace(said, sources=(inbound.request_id,), written=self._written()))
        if self.reply is not None:
            self.reply.reopen()

    def _written(self) -> tuple[str, ...]:
        return self.reply.noted() if self.reply is not None else ()

    def _joining(self, inbound: Inbound) -> TurnRequest:
        return TurnRequest(inbound.request_id, self.request.chat_key, inbound, arrivals=self.request.arrivals)

    async def _user_message(
        self,
        request: TurnRequest,
        wrong: Sequence[str] = (),
        news: Mapping[str, str] = prompt.NO_NEWS,
        *,
        begins: bool = False,
    ) -> MessageEvent:
        seen = [*self.store.view(), *self.view]
        return await user_message(request, self._deps, seen, wrong, news, begins=begins)

    def _now(self) -> int:
        return int(self._deps.clock.now() * 1000)

    def _replaced(self) -> Entry:
        """The last message, in whose place another one comes."""
        before, piece = self._entries[-2:]
        self._ledger.rewind(before.uuid)
        return piece

    def _add(self, message: Message) -> None:
        self._note(
            MessageEvent(role="assistant" if message["role"] == "assistant" else "user", message=message)
        )

    def _note(self, said: MessageEvent) -> str:
        if said.role == "assistant":
            said = replace(said, message=taint.stamped(said.message, self.in_sight()))
        return self.view_changes.tell(said)
