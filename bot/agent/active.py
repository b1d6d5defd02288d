"""The turn that is running: what it has said and done so far, and the view of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bot import errors, text
from bot.agent import assistant_text, tally, view_changes
from bot.agent.continuing import joined
from bot.agent.deps import AgentDeps
from bot.agent.incoming import fresh_nonce, instructions, said_by_servers, user_message
from bot.agent.partial import Partial
from bot.agent.reply import TrackedReply
from bot.agent.steps import INTERRUPTED, StepLog, known_results, shown, silent_answer
from bot.agent.upkeep import Upkeep
from bot.agent.view_changes import Reason, ViewChange, ViewChanges
from bot.context import blocks, estimate, prompt, replay
from bot.context.replay import TurnStatus
from bot.context.store import Entry, Turn
from bot.contracts.agent import TurnRequest
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import StepRecord
from bot.contracts.model import ModelReply
from bot.llm.log import spent

INJECTED_TOKENS = 30_000
"""Estimated tokens that injected history may take in one run."""
INJECTED_LINE = 20_000
"""Characters of one injected line; a longer one is shortened in the middle."""


class ActiveTurn:
    """One turn from its user message to its end. Every message is written to the transcript as it is added.

    `entries` is the full truth; `view` is what the model is shown of it.
    """

    def __init__(
        self, request: TurnRequest, declared: ViewChanges, upkeep: Upkeep, steps: StepLog, deps: AgentDeps
    ) -> None:
        self.request = request
        self.store = declared.store
        self.upkeep = upkeep
        self.steps = steps
        self.reply = TrackedReply.of(request, declared.ledger)
        self.view: list[Message] = []
        self.touched: list[Path] = []
        """Paths of the project that tools have used since the last step."""
        self.owed = ""
        """Words of a stopped turn that nobody has seen yet; "" if none."""
        self._loaded: list[tuple[int, Message]] = []
        self._entries: list[Entry] = []
        self._sources: tuple[str, ...] = (request.request_id,)
        self.view_changes = declared
        self._ledger = declared.ledger
        self._deps = deps
        self._partial = Partial()
        self._injected_count = 0
        self._injected_keys: set[tuple[int | str, ...]] = set()
        self._began = False
        self._ended = False
        self._cut_off: replay.CutOff | None = None
        self._recorded: Sequence[StepRecord] = ()
        self._late: list[Inbound] = []

    async def begin(self) -> None:
        """Write the user's message, and what else belongs to it from the beginning. It is in the transcript before
        the answer; the model need not wait for it.
        """
        first = await self._user_message(self.request, self.view_changes.tally.wrong)
        rest = [(one, await self._user_message(self._joining(one))) for one in self.request.also]
        self._began = True
        self.view_changes.turn = self
        self._ledger.mark(
            "turn_start", self.request.request_id, {"frame": self.view_changes.frame} | self._ledger.chosen
        )
        self._note(first)
        for inbound, message in rest:
            self._join(inbound, message)

    async def resume(self, cut_off: replay.CutOff, recorded: Sequence[StepRecord]) -> None:
        """Go on with a turn that a crash cut off, as its transcript and its recorded steps tell it."""
        self._began = True
        self.view_changes.turn = self
        self._cut_off = cut_off
        self._recorded = recorded
        self._sources = cut_off.sources
        self._entries = list(cut_off.entries)
        self._see()
        for data in cut_off.loaded:
            self._take_injection(data)
        self._ledger.rewind(self._entries[-1].uuid)
        if self.reply is not None:
            self.reply.resume(self.request.begun, cut_off, recorded)
        self.view_changes.tally.resumed(recorded)
        for step in recorded:
            if step.kind == "model" and step.ended_at is None:
                self.steps.end(step.id, {"error": "interrupted"})
        self._late = [one for one in self.request.also if one.request_id not in self._sources]
        if self.last_reply() is not None:
            return
        if any(entry.message["role"] == "assistant" for entry in self._entries):
            await self.instruct()
            await self.take_more()
        else:
            await self.take_late()

    def last_reply(self) -> ModelReply | None:
        """Return the reply with which a resumed turn ends, else None. A reply without words stands in no message."""
        if self._cut_off is None:
            return None
        if self._entries[-1].message["role"] == "assistant":
            facts = self._cut_off.facts
            content = list(self._entries[-1].message["content"])
            return ModelReply(content, facts.get("stopReason"), cut=frozenset(facts.get("cut", ())))
        last = silent_answer(self._recorded, self._cut_off.on_file)
        return ModelReply([], last.get("stopReason")) if last is not None else None

    def known_results(self, calls: Sequence[Json]) -> dict[str, Json]:
        """The results of calls of a cut-off step that must not run again: they did run, or may have."""
        before = self._cut_off.written if self._cut_off is not None else ()
        fresh = [one for one in self.request.begun if one.id not in before]
        known = known_results(calls, self._recorded, fresh)
        for step in self._recorded:
            if step.ended_at is None and step.id in known:
                self.steps.end(step.id, known[step.id])
        return {name: shown(result) for name, result in known.items()}

    def asks(self, model: str) -> Partial:
        """The model is asked; returns what collects the answer. Raises `errors.TurnStopped`."""
        self._must_run()
        self._partial = Partial()
        self.view_changes.asked_at = self._deps.clock.monotonic()
        self.steps.begin(self._deps.ids.ulid(), "model", model)
        return self._partial

    def add_reply(self, reply: ModelReply, continued: int = 0) -> list[Json]:
        """Append what the model said; returns its tool calls. What has an effect waits until the step is on file.

        A refusal is no part of the conversation. The `continued`-th time it goes on with an answer, the whole of that
        takes the place of what there was.
        """
        self._must_run()
        if reply.stop_reason == "refusal":
            self.steps.answered(reply, None, self._ledger.flush())
            return []
        content = blocks.redacted(reply.content, self._deps.redact)
        # An answer that goes on behind a line of ours is no paused one: that line is not sent back.
        content = blocks.sayable(content, paused=reply.stop_reason == "pause_turn" and not continued)
        facts: Json = (
            {"stopReason": reply.stop_reason, "cut": sorted(reply.cut)} | spent(reply) | self._said()
        )
        uuid: str | None = None
        if continued:
            piece = self._taken_back()
            content = joined(assistant_text.begun(piece.message), content) or piece.message["content"]
            facts |= {"instead": piece.uuid, "continued": continued}
        if content:
            uuid = self._note({"role": "assistant", "content": content}, facts)
        self._partial = Partial()
        self.steps.answered(reply, uuid, self._ledger.flush())
        return [block for block in content if block.get("type") == "tool_use"]

    def continued(self) -> int:
        """Return how often the last answer of a resumed turn was continued."""
        return int(self._cut_off.facts.get("continued", 0)) if self._cut_off is not None else 0

    def unpause(self, facts: Json) -> None:
        """Drop the calls of the provider's own tools from a paused answer, since they get no result; `facts` go with the rest."""
        if (rest := assistant_text.without_pause(self._entries[-1].message)) is not None:
            self._note(rest, {"instead": self._taken_back().uuid} | facts)

    def last_words(self) -> str:
        """The text with which the turn ends: an answer that paused and went on is one answer."""
        return assistant_text.last_words(self._entries)

    def answered(self) -> bool:
        """True if the person has the answer and the last step did nothing but give it."""
        return self.reply is not None and self.reply.settled and assistant_text.only_sent(self._entries)

    def add_results(self, results: Sequence[Json]) -> None:
        """Append the results of all tool calls of the last reply, as one message."""
        self._must_run()
        self._note({"role": "user", "content": list(results)}, self._said())

    async def instruct(self) -> None:
        """Append what the servers of the tools say that the last results have found, and the instructions for what tools
        have touched, where the model does not see them already: those of a history that was cut since come again.
        """
        seen = [*self.store.view(), *self.view]
        said = said_by_servers(self.view[-1], self._deps, seen)
        found = await instructions(self.touched, self._deps, seen) if self.touched else None
        self._must_run()
        for message in filter(None, (said, found)):
            self._note(message)

    async def take_more(self) -> None:
        """Take up what the same person has sent meanwhile: part of this turn, answered with it."""
        if self.request.take_more is not None:
            self._late += self.request.take_more()
        await self.take_late()

    async def take_late(self) -> bool:
        """Take up what belongs to the turn and is not written yet; False where there is nothing."""
        if not self._late:
            return False
        while self._late:
            message = await self._user_message(self._joining(self._late[0]))
            self._join(self._late.pop(0), message)
        return True

    # ------------------------------------------------------------ what tools do (`tools.dispatch.Recorder`)

    async def started(self, call: Json, *, wait: bool) -> None:
        self._must_run()
        begun = self.steps.begin(call["id"], "tool", call["name"])
        if wait and not all(await asyncio.shield(asyncio.gather(begun, self._ledger.flush()))):
            raise errors.StorageError("a tool call cannot be recorded")

    def finished(self, call: Json, result: Json) -> None:
        if self._ended:
            return
        self.steps.end(call["id"], result | self.reply.told() if self.reply is not None else result)

    def looked(self, call: Json, result: Json, began_at: float) -> None:
        self.steps.took_place(call["id"], call["name"], began_at, result)

    # ------------------------------------------------------------ its end, and cuts

    async def end(self, status: TurnStatus, notice: str | None = None, wrong: str | None = None) -> None:
        """Close the turn: tool calls without results get one, and the store takes the turn unless withdrawn.

        One that was stopped before it began leaves nothing behind. Everything is done before the first await, so
        that an end that is interrupted is an end all the same. `notice` is what the person will be told of it:
        after a crash in between they still are. `wrong` says to the model what went wrong.
        """
        if not self._began:
            return
        self._ended = True
        self.steps.failed(status)
        self.unpause({})
        if status == "stopped":
            self._keep_partial()
        elif self._entries and blocks.tool_uses(self._entries[-1].message):
            self._note(blocks.interrupted_results(self._entries[-1].message, INTERRUPTED))
        for inbound in self._late:
            self._join(
                inbound, prompt.user_message(self._joining(inbound), self._now(), fresh_nonce(self._deps))
            )
        self.view_changes.tally.turn(status, wrong)
        facts: Json = {"status": status, "notice": notice} | ({"owed": self.owed} if self.owed else {})
        facts[tally.KEY] = self.view_changes.tally.facts
        if self._loaded and status != "withdrawn":
            self.view_changes.apply("injection", ViewChange("turn_end", facts))
        else:
            self._ledger.mark("turn_end", self.request.request_id, facts)
        self.view_changes.turn = None
        if status != "withdrawn":
            turn = Turn(self.request.request_id, self._sources, tuple(self._entries))
            self.store.commit(turn, strip_thinking=bool(self._injected_count))
            self.view_changes.within_cap(self.upkeep.cut)
        await self._ledger.flush()

    def _keep_partial(self) -> None:
        """Keep what the model had said when it was stopped, with a mark. Where nobody has seen anything of this turn
        it is owed to the person.
        """
        partial = self._deps.redact(self._deps.settled(self._partial.words())).strip()
        begun = self.reply.begun if self.reply is not None else ""
        added, owed = assistant_text.last_of_stopped(self._entries, partial, begun)
        for message in added:
            self._note(message)
        if self.reply is not None and not self.reply.attempted and not self.reply.delivered:
            self.owed = owed

    async def cut(self, dropped: list[str] | Literal["all"], reason: Reason) -> None:
        """Declare an epoch in which the oldest part of the store goes (`"all"`: all of it)."""
        self.view_changes.apply(reason, view_changes.dropped(dropped))
        await self._ledger.flush()

    def changed(self, change: ViewChange) -> None:
        """Carry out what an epoch means for this turn (`bot.agent.view_changes.Running`)."""
        if change.line == "turn_end":
            self._loaded = []
        elif change.line == "injection":
            self._take_injection(change.data)
        self._entries = list(replay.behind(self._entries, change.line, change.data))
        self._see()

    def shown(self) -> list[Message]:
        return [*self.injected, *self.view]

    def _see(self) -> None:
        self.view = [blocks.masked(entry.message, self.store.masked) for entry in self._entries]

    # ------------------------------------------------------------ injection (`tools.context.Injection`)

    @property
    def injected(self) -> list[Message]:
        """The injected older turns, in time order."""
        return [message for _, message in self._loaded]

    def room(self) -> int:
        if estimate.tokens(self.injected) >= INJECTED_TOKENS:
            return 0
        return self._deps.max_injected - self._injected_count

    def in_view(self, line: ArchiveLine) -> bool:
        meta = line.meta or {}
        request_id = str(meta.get("requestId") or "")
        # ULIDs sort by time: what came in after this message is not history yet.
        if request_id >= self.request.request_id or request_id in self._visible():
            return True
        if injected_key(line, self.request.chat_key) in self._injected_keys:
            return True
        # All other names of a line hold in its own chat alone: platforms count messages from 1 in each.
        if line.chat_key != self.request.chat_key:
            return False
        inbound = self.request.inbound
        current = (
            inbound is not None and inbound.message_id is not None and line.message_id == inbound.message_id
        )
        return (current and line.role == "user") or replay.line_key(line) in self._visible()

    def _visible(self) -> set[str]:
        return (self.store.sources() | set(self._sources)) - {""}

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        self._must_run()
        taken: list[ArchiveLine] = []
        budget = INJECTED_TOKENS - estimate.tokens(self.injected)
        for line in reversed(lines[-self.room() :]):
            short = line.model_copy(update={"text": text.shorten_middle(line.text, INJECTED_LINE)})
            budget -= estimate.text_tokens(short.text) + 2 * estimate.BLOCK_TOKENS
            if budget < 0 and taken:
                break
            taken.insert(0, short)
        messages = prompt.loaded_messages(taken, fresh_nonce(self._deps))
        keys = [injected_key(line, self.request.chat_key) for line in lines[len(lines) - len(taken) :]]
        record = {
            "before": self._entries[0].uuid,
            "messages": messages,
            "ts": [line.ts for line in taken],
            "keys": [list(key) for key in keys],
        }
        self.view_changes.apply("injection", view_changes.injected(record))
        await self._ledger.flush()
        return taken

    def _take_injection(self, data: Json) -> None:
        """Carry out a line of an injection: older turns appear, or only the newest of them stay."""
        self._loaded = replay.loaded(self._loaded, data)
        self._injected_count += len(data.get("messages", ()))
        self._injected_keys |= {(int(ts), *rest) for ts, *rest in data.get("keys", ())}

    # ------------------------------------------------------------ inside

    def undeclared(self) -> tuple[Json, ...]:
        """The definitions of tools that this model's window has no room for: `tool_search` finds them."""
        return self._deps.registry.behind(self.view_changes.tools)

    def _must_run(self) -> None:
        """What a stop has left behind, because it took its time, may do nothing more in this turn."""
        if self._ended:
            raise errors.TurnStopped

    def _join(self, inbound: Inbound, message: Message) -> None:
        self._deps.log.write("steer", "a message joined the running turn", joined=inbound.request_id)
        self._sources += (inbound.request_id,)
        self._note(message, {"sources": [inbound.request_id]} | self._said())
        if self.reply is not None:
            self.reply.settled = False

    def _said(self) -> Json:
        return self.reply.noted() if self.reply is not None else {}

    def _joining(self, inbound: Inbound) -> TurnRequest:
        return TurnRequest(inbound.request_id, self.request.chat_key, inbound, files=self.request.files)

    async def _user_message(self, request: TurnRequest, wrong: Sequence[str] = ()) -> Message:
        return await user_message(request, self._deps, [*self.store.view(), *self.view], wrong)

    def _now(self) -> int:
        return int(self._deps.clock.now() * 1000)

    def _taken_back(self) -> Entry:
        """The last message, in whose place another one comes."""
        self.view.pop()
        piece = self._entries.pop()
        self._ledger.rewind(self._entries[-1].uuid)
        return piece

    def _note(self, message: Message, data: Json | None = None) -> str:
        uuid = self._ledger.message(self.request.request_id, message, data)
        self._entries.append(Entry(uuid, message))
        self.view.append(message)
        return uuid


def injected_key(line: ArchiveLine, chat_key: ChatKey) -> tuple[int | str, ...]:
    """Return the identity of a loaded line; for a line of another chat it ends with that chat."""
    other = () if line.chat_key == chat_key else (str(line.chat_key),)
    return line.ts, line.role, line.message_id or line.text, *other
