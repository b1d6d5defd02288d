"""Keeps the history of one chat small.

A compaction takes the memory where that knows what is to go, else it asks a fork for a summary. It happens between
turns, but where the running turn would no longer fit. What fails costs nothing but the attempt: the history stays, and
what is too large in the end is halved (`bot.agent.overflow`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from bot import errors
from bot.agent import reattach, view_changes
from bot.agent.deps import AgentDeps
from bot.agent.memory_writer import FAILED, MemoryWriter, give_up, prefix_of
from bot.agent.user_message import fresh_nonce
from bot.agent.view_changes import Reason, ViewChanges
from bot.contracts.agent import CompactResult
from bot.contracts.base import Json, Message
from bot.contracts.environment import ends_within
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.model import Usage
from bot.contracts.transcript import Boundary, Maker
from bot.core import compaction, forks, memory
from bot.telemetry import context
from bot.telemetry.context import turn_scope
from bot.words import sentence

WAIT_SECONDS = 15.0
"""Seconds that a compaction waits for the memory that is being written, and a turn for a compaction."""
IDLE_AFTER = view_changes.COLD_AFTER - 30.0
IDLE_UNTIL = view_changes.COLD_AFTER - 5.0
"""A quiet chat is compacted so many seconds after its last request: while the provider still has it in its cache."""
LONGEST_SECONDS = 90.0
"""Seconds that a person waits for the compaction that they asked for."""
ENOUGH = 0.5
"""Of what should go the memory must know this part: else a summary is worth its price."""


class Compactor:
    """Compacts the history of one chat when that is due, or when a person asks for it."""

    def __init__(
        self, chat_key: ChatKey, view_changes: ViewChanges, writer: MemoryWriter, deps: AgentDeps
    ) -> None:
        self.breaker = compaction.Breaker(deps.clock)
        self._chat_key = chat_key
        self._view_changes = view_changes
        self._store = view_changes.store
        self._memory = writer
        self._deps = deps
        self._request_id: str | None = None
        self._person: UserRef | None = None
        self._reads = False
        self._asked = 0
        self._stand_in: Sequence[Json] = ()
        self.compacting: asyncio.Task[CompactResult] | None = None

    @property
    def busy(self) -> bool:
        return self.compacting is not None

    async def stop(self) -> None:
        """Give up what is going on; nothing is lost by it."""
        await give_up(self.compacting)

    # ------------------------------------------------------------ the moments at which something may be due

    def answered(self, usage: Usage) -> None:
        """The model has answered: what it says it has read."""
        self._reads = self._reads or usage.cache_read_tokens > 0
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        self._asked = prompt + usage.output_tokens

    async def before_turn(self, request_id: str) -> None:
        """A turn is about to begin: a compaction that is going on ends first, or is given up."""
        self._request_id, self._person = request_id, context.current().person
        # What the last turn loaded has gone with it.
        self._asked = 0
        if self.compacting is not None and not await ends_within(
            WAIT_SECONDS, self.compacting, self._deps.clock
        ):
            self._write("a compaction took too long and was given up")
            # Else every turn would begin another, and the next one wait for it.
            self.breaker.failed()
            await give_up(self.compacting)
        await self._bound()

    async def before_asking(self, current: Sequence[Message]) -> None:
        """The running turn asks the model next: where that may not fit, the history before it is compacted now."""
        deps = self._deps
        hard = deps.budget().hard
        if hard is None or not deps.limits.compaction.enabled or not self._store.turns or self.breaker.open:
            return
        if max(self._asked, self._view_changes.tokens()) <= hard:
            return
        # What the running turn leaves of the room, less a half of that for what is still to come.
        left = hard - self._view_changes.tokens() + self._tokens(self._store.view())
        dropped = self._border(min(self._keep("size"), max(0, left // 2)))
        if self._tokens(self._messages(dropped)) >= compaction.WORTH:
            await self._compact("size", dropped, current=current)

    def turn_ended(self) -> None:
        """A turn has ended and been answered: what is due begins beside whatever comes next."""
        deps = self._deps
        if not deps.limits.compaction.enabled or self.compacting is not None:
            return
        if self._view_changes.tokens() > deps.budget().limit and self._begin_compacting("size"):
            return
        over = self._store.over_cap()
        if over and not self._memory.busy and self._knows(over):
            self._start("message_cap", over)
        else:
            self._memory.turn_ended(over_cap=bool(over))

    def look(self) -> None:
        """Compact a chat that has been quiet for so long that the provider is about to forget it, while reading it once
        more is cheap: its next turn then begins with little.
        """
        policy, asked = self._deps.limits.compaction, self._view_changes.asked_at
        if asked is None or self.compacting is not None or self._view_changes.live or not self._reads:
            return
        quiet = self._deps.clock.monotonic() - asked
        due = policy.enabled and policy.idle and IDLE_AFTER <= quiet < IDLE_UNTIL
        if due and self._view_changes.tokens() > policy.idle_above:
            self._begin_compacting("idle")

    async def cut(self, reason: Reason, over: Sequence[str]) -> None:
        """Let these go, with the memory in their place if it covers them."""
        known = self._memory.known
        if known is not None and self._knows(over):
            change = await self._change(reason, over, known.markdown, compaction.BY_MEMORY)
        else:
            change = Boundary(dropped=tuple(over))
        self._view_changes.apply(reason, change)

    async def _bound(self) -> None:
        """Limit the view to twice the cap: until then messages over the cap wait for the memory to cover them."""
        deps = self._deps
        remembers = deps.limits.compaction.enabled and deps.history.memories is not None
        most = deps.limits.max_messages * (compaction.GROWTH if remembers else 1)
        if len(self._store.view()) <= most:
            return
        over = self._store.over_cap()
        if remembers and not self._knows(over):
            await self._memory.catch_up(WAIT_SECONDS)
        if remembers and not self._knows(over):
            words = sentence("operators.forgotten", chat=self._chat_key, count=len(over))
            deps.operators.tell("what chats forget", words)
        await self.cut("message_cap", over)
        await self._view_changes.ledger.flush()

    def _knows(self, uuids: Sequence[str]) -> bool:
        """True if the memory knows of all these."""
        return len(compaction.covered(self._named(), uuids, self._memory.covers)) == len(uuids)

    async def compact(self, focus: str, stand_in: Sequence[Json] = ()) -> CompactResult:
        """Compact because a person asks for it; with a `focus`, by a summary that keeps it above all.

        `stand_in` is the system prompt where no request of this process has had one.
        """
        self._stand_in = stand_in
        if self.compacting is not None and not await ends_within(
            WAIT_SECONDS, self.compacting, self._deps.clock
        ):
            await give_up(self.compacting)
        most = self._tokens(self._store.messages()) // 4
        dropped = self._border(min(self._keep("compact"), most))
        if not dropped:
            return CompactResult("nothing")
        task = self._start("compact", dropped, focus=focus)
        if await ends_within(LONGEST_SECONDS, task, self._deps.clock) and not task.cancelled():
            return task.result()
        self._write("a compaction took too long and was given up")
        await give_up(task)
        return CompactResult("failed")

    # ------------------------------------------------------------ compaction

    def _begin_compacting(self, reason: Reason) -> bool:
        """Compact beside, where there is enough to gain and it has not failed again and again."""
        dropped = self._border(self._keep(reason))
        gain = self._tokens(self._messages(dropped))
        if self.breaker.open or gain < compaction.WORTH or not self._view_changes.system:
            return False
        self._start(reason, dropped)
        return True

    def _start(
        self, reason: Reason, dropped: Sequence[str], *, focus: str = ""
    ) -> asyncio.Task[CompactResult]:
        task: asyncio.Task[CompactResult] = asyncio.create_task(
            self._scoped(lambda: self._compact(reason, dropped, focus=focus))
        )
        self.compacting = task
        task.add_done_callback(self._compacted)
        return task

    async def _compact(
        self, reason: Reason, dropped: Sequence[str], *, focus: str = "", current: Sequence[Message] = ()
    ) -> CompactResult:
        """Let these go, and something shorter stand for them. What fails is told to the operator and changes nothing."""
        await self._memory.written(WAIT_SECONDS)
        before = self._tokens(self._store.messages())
        try:
            await self._memory.look_again()
            change = None if focus else await self._from_memory(reason, dropped)
            if change is None:
                change = await self._from_summary(reason, dropped, focus, current)
        except FAILED as error:
            opened = self.breaker.failed()
            self._write("a compaction failed" + (" again: none for ten minutes" if opened else ""), error)
            if opened and not isinstance(error, errors.BudgetSpent):
                self._deps.operators.tell(
                    "the compaction of chats",
                    sentence(
                        "operators.compaction",
                        chat=self._chat_key,
                        times=compaction.FAILURES,
                        cause=f"{type(error).__name__}: {error}",
                    ),
                )
            return CompactResult("failed")
        self.breaker.succeeded()
        if not set(change.dropped) <= set(self._uuids()):
            # Something else was quicker.
            return CompactResult("nothing")
        self._asked = 0
        self._view_changes.apply(reason, change)
        await self._view_changes.ledger.flush()
        return CompactResult(
            change.how or compaction.BY_MEMORY,
            len(change.dropped),
            before,
            self._tokens(self._store.messages()),
        )

    async def _from_memory(self, reason: Reason, dropped: Sequence[str]) -> Boundary | None:
        """The change in which the memory stands for what it knows; None where that is too little of it."""
        written = self._memory.known
        known = compaction.covered(self._named(), dropped, self._memory.covers)
        if written is None or not known:
            return None
        part = self._tokens(self._messages(known))
        if part < ENOUGH * self._tokens(self._messages(dropped)):
            return None
        return await self._change(reason, known, written.markdown, compaction.BY_MEMORY)

    async def _from_summary(
        self, reason: Reason, dropped: Sequence[str], focus: str, current: Sequence[Message]
    ) -> Boundary:
        """The change in which a summary stands for it, which is the memory from now on."""
        newest = self._store.newest
        if not current:
            self._view_changes.note_read()
        prefix = prefix_of(self._view_changes, current, self._stand_in)
        self._memory.lines.saw(prefix.messages)
        summary = await forks.condense(prefix, self._memory.known, focus, self._deps)
        change = await self._change(reason, dropped, summary.words, "summary", summary.block)
        try:
            await self._memory.keep(memory.read(summary.words), newest)
        except FAILED as error:
            self._write("a summary could not be kept as the memory", error)
        return change

    async def _change(
        self, reason: Reason, dropped: Sequence[str], words: str, how: Maker, block: Json | None = None
    ) -> Boundary:
        before = [self._store.head] if self._store.head is not None else []
        kept = self._messages(set(self._uuids()) - set(dropped))
        gone = reattach.DroppedMessages([*before, *self._messages(dropped)], kept)
        origin, estimator = self._memory.lines.origin(self._store.view()), self._deps.models.estimator
        left = self._room() - self._tokens(kept) - estimator.text(self._deps.models.name, words)
        share = reattach.IDLE_SHARE if reason == "idle" else 1
        most = max(0.0, min(reattach.room(self._deps) // share, left))
        person = context.current().person or self._person
        again = await reattach.put_back(gone, self._deps, most, self._chat_key, person)
        nonce = fresh_nonce(self._deps)
        head = memory.head(words, nonce=nonce, origin=origin, block=block, put_back=again)
        return Boundary(dropped=tuple(dropped), head=head, how="provider" if block else how)

    def _room(self) -> int:
        """The tokens that a compaction may leave, with all that it puts back: half of what the history may grow to."""
        budget = self._deps.budget()
        if budget.hard is None:
            return budget.soft // 2
        frame = self._view_changes.tokens() - self._tokens(self._store.view())
        return min(budget.soft, max(0, budget.hard - frame)) // 2

    def _keep(self, reason: Reason) -> int:
        """The tokens that a compaction leaves at the least as they are."""
        keep = min(self._deps.limits.compaction.keep_tokens, self._room() // compaction.SPAN)
        return min(compaction.IDLE_KEEPS, keep) if reason == "idle" else keep

    def _border(self, keep: int) -> list[str]:
        return compaction.border(self._named(), size=self._tokens, keep=keep)

    # ------------------------------------------------------------ inside

    def _named(self) -> list[list[tuple[str, Message]]]:
        return [turn.named for turn in self._store.turns]

    def _uuids(self) -> list[str]:
        return [entry.uuid for turn in self._store.turns for entry in turn.entries]

    def _messages(self, uuids: Iterable[str]) -> list[Message]:
        wanted = set(uuids)
        return [e.message for turn in self._store.turns for e in turn.entries if e.uuid in wanted]

    def _tokens(self, messages: Sequence[Message]) -> int:
        return self._deps.models.estimator.messages(self._deps.models.name, messages)

    async def _scoped(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Work beside the turns belongs to the turn or command that caused it; where time did, to the last turn."""
        running = context.current()
        request_id, person = running.request_id or self._request_id, running.person or self._person
        with turn_scope(chat_key=self._chat_key, request_id=request_id, person=person):
            return await work()

    def _compacted(self, task: asyncio.Task[CompactResult]) -> None:
        if self.compacting is task:
            self.compacting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._write("a compaction failed", error)

    def _write(self, what: str, error: BaseException | None = None) -> None:
        cause = f"{type(error).__name__}: {error}" if error is not None else None
        self._deps.log.write(
            "memory",
            what,
            level="warn",
            chat_key=self._chat_key,
            request_id=self._request_id,
            cause=cause,
        )
