"""Keeps the history of one chat small: writes its memory beside the turns, and compacts.

A compaction takes the memory where that knows what is to go, else it asks a fork for a summary. It happens between
turns, but where the running turn would no longer fit. What fails costs nothing but the attempt: the history stays, and
what is too large in the end is halved (`bot.agent.recovery`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot import errors
from bot.agent import forks, reattach, view_changes
from bot.agent.deps import AgentDeps
from bot.agent.forks import Prefix
from bot.agent.incoming import fresh_nonce
from bot.agent.recollection import Recollection
from bot.agent.view_changes import Reason, ViewChange, ViewChanges
from bot.context import blocks, compaction, estimate, memory
from bot.context.memory import MemoryInvalid, SessionMemory
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.model import Usage
from bot.history.memories import SavedMemory
from bot.telemetry import context
from bot.telemetry.context import turn_scope

WAIT_SECONDS = 15.0
"""Seconds that a compaction waits for the memory that is being written, and a turn for a compaction."""
IDLE_AFTER = view_changes.COLD_AFTER - 30.0
IDLE_UNTIL = view_changes.COLD_AFTER - 5.0
"""When a quiet chat is compacted, in seconds from its last request: while the provider still has it in its cache."""
LONGEST_SECONDS = 90.0
"""Seconds that a person waits for the compaction that they asked for."""
ENOUGH = 0.5
"""Of what should go the memory must know this part: else a summary is worth its price."""
_FAILED = (errors.ShipmateError, MemoryInvalid)


class Upkeep:
    """The upkeep of one chat. `system` is what stood before the messages of its newest request; after a restart nobody
    knows it before the next turn, and `stand_in` is what a fork says in its place.
    """

    def __init__(self, chat_key: ChatKey, declared: ViewChanges, deps: AgentDeps) -> None:
        self.system: Sequence[Json] = ()
        self.stand_in: Sequence[Json] = ()
        self.breaker = compaction.Breaker(deps.clock)
        self._chat_key = chat_key
        self._view_changes = declared
        self._store = declared.store
        self._deps = deps
        self._request_id: str | None = None
        self._known: SessionMemory | None = None
        self._covers: str | None = None
        self._since: str | None = None
        self._before: tuple[SessionMemory, str] | None = None
        self._reads = False
        self._asked = 0
        self._lines = Recollection(chat_key, deps)
        self._extracting: asyncio.Task[None] | None = None
        self._compacting: asyncio.Task[Json] | None = None

    @property
    def busy(self) -> bool:
        return self._extracting is not None or self._compacting is not None

    async def load(self) -> None:
        """Take up the memory that is on file. One that cannot be read is as good as none."""
        try:
            self._remember(await self._lines.load())
        except _FAILED as error:
            self._write("the memory cannot be read", error)

    def _remember(self, kept: SavedMemory | None) -> None:
        self._known = memory.read(kept.markdown) if kept is not None else None
        self._covers = self._since = kept.covers if kept is not None else None

    async def _look_again(self) -> None:
        """Take up what an operator has made of the memory meanwhile."""
        changed, kept = await self._lines.changed()
        if changed:
            self._known = self._covers = self._since = self._before = None
            try:
                self._remember(kept)
            except MemoryInvalid as error:
                self._write("the memory cannot be read", error)

    async def forget(self) -> None:
        """A new conversation begins: what was remembered of the old one goes. Raises `errors.StorageError`."""
        await self.stop()
        await self._lines.forget()
        self._known = self._covers = self._since = self._before = None
        self._asked = 0

    async def take_back(self, turns: Mapping[str, frozenset[str]], *, redacted: bool = False) -> None:
        """Messages of these turns are removed (their ids): so is every line of the memory that may tell of them. `redacted`:
        the view shows them no longer. Raises `errors.StorageError`.
        """
        await self.stop()
        await self._look_again()
        self._before = None
        lost, left = self._lines.without(turns)
        if lost and left is not None:
            await self._keep(left, None)
        elif lost:
            self._known = self._covers = self._since = None
            await self._lines.forget()
        if redacted:
            self._lines.carried_out(one for ids in turns.values() for one in ids)

    @property
    def markdown(self) -> str:
        """The memory as it is now; "" where there is none."""
        return self._known.markdown if self._known is not None else ""

    async def undo(self, gone: Collection[str]) -> None:
        """These are taken back: a memory that knows of them gives way to the one before, or to none, and is written
        anew without them once enough is new. Raises `errors.StorageError`.
        """
        if self._since in gone:
            self._since = self._covers
        if self._covers not in gone:
            return
        before, self._before = self._before, None
        if before is not None and before[1] not in gone:
            await self._keep(*before)
            return
        self._known = self._covers = self._since = None
        await self._lines.forget()

    async def stop(self) -> None:
        """Give up what is going on; nothing is lost by it."""
        for task in (self._extracting, self._compacting):
            if task is not None:
                await _given_up(task)

    # ------------------------------------------------------------ the moments at which something may be due

    def answered(self, usage: Usage) -> None:
        """The model has answered: what it says it has read."""
        self._reads = self._reads or usage.cache_read_tokens > 0
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        self._asked = prompt + usage.output_tokens

    async def before_turn(self, request_id: str) -> None:
        """A turn is about to begin: a compaction that is going on ends first, or is given up."""
        self._request_id = request_id
        # What the last turn loaded has gone with it.
        self._asked = 0
        if self._compacting is not None and not await self._ends(self._compacting):
            self._write("a compaction took too long and was given up")
            # Else every turn would begin another, and the next one wait for it.
            self.breaker.failed()
            await _given_up(self._compacting)

    async def before_asking(self, current: Sequence[Message]) -> None:
        """The running turn asks the model next: where that may not fit, the history before it is compacted now."""
        deps = self._deps
        hard = deps.budget().hard
        if hard is None or not deps.compaction.enabled or not self._store.turns or self.breaker.open:
            return
        if max(self._asked, self._view_changes.tokens()) <= hard:
            return
        # What the running turn leaves of the room, less a half of that for what is still to come.
        left = hard - self._view_changes.tokens() + self._tokens(self._store.view())
        dropped = self._border(min(deps.compaction.keep_tokens, max(0, left // 2)))
        if self._tokens(self._messages(dropped)) >= compaction.WORTH:
            await self._compact("size", dropped, current=current)

    def turn_ended(self) -> None:
        """A turn has ended and been answered: what is due begins beside whatever comes next."""
        deps = self._deps
        if not deps.compaction.enabled or self._compacting is not None:
            return
        if self._view_changes.tokens() > deps.budget().limit and self._begin_compacting("size"):
            return
        if self._extracting is not None:
            return
        new = list(compaction.since(self._store.turns, self._since))
        calls = sum(len(blocks.tool_uses(message)) for message in new)
        if deps.memories is not None and compaction.wants_extraction(self._tokens(new), calls):
            self._extracting = asyncio.create_task(self._scoped(self._extract))
            self._extracting.add_done_callback(self._extracted)

    def look(self) -> None:
        """Compact a chat that has been quiet for so long that the provider is about to forget it, while reading it once
        more is cheap: its next turn then begins with little.
        """
        policy, asked = self._deps.compaction, self._view_changes.asked_at
        if (
            asked is None
            or self._compacting is not None
            or self._view_changes.turn is not None
            or not self._reads
        ):
            return
        quiet = self._deps.clock.monotonic() - asked
        due = policy.enabled and policy.idle and IDLE_AFTER <= quiet < IDLE_UNTIL
        if due and self._view_changes.tokens() > policy.idle_above:
            self._begin_compacting("idle")

    def cut(self, over: Sequence[str]) -> ViewChange:
        """Return the change that drops messages over the cap, with the memory in their place if it covers them. Then it
        may as well be more at once, and the next cut is farther off.
        """
        if self._known is None or not compaction.covered(self._store.turns, over, self._covers):
            return view_changes.dropped(over)
        keep = min(compaction.CUT_KEEPS, self._deps.compaction.keep_tokens)
        more = compaction.covered(self._store.turns, self._border(keep), self._covers)
        return self._change(more if len(more) > len(over) else over, self._known.markdown, "memory")

    async def compact(self, focus: str) -> Json:
        """Compact because a person asks for it; with a `focus`, by a summary that keeps it above all.

        `how` is "memory", "summary", "provider" (which wrote it), "nothing" (there was nothing to gain) or "failed".
        """
        if self._compacting is not None and not await self._ends(self._compacting):
            await _given_up(self._compacting)
        most = self._tokens(self._store.messages()) // 4
        dropped = self._border(min(self._deps.compaction.keep_tokens, most))
        if not dropped:
            return {"how": "nothing"}
        task = self._beside("compact", dropped, focus=focus)
        if await self._ends(task, LONGEST_SECONDS) and not task.cancelled():
            return task.result()
        self._write("a compaction took too long and was given up")
        await _given_up(task)
        return {"how": "failed"}

    # ------------------------------------------------------------ compaction

    def _begin_compacting(self, reason: Reason) -> bool:
        """Compact beside, where there is enough to gain and it has not failed again and again."""
        keep = self._deps.compaction.keep_tokens
        dropped = self._border(min(compaction.CUT_KEEPS, keep) if reason == "idle" else keep)
        gain = self._tokens(self._messages(dropped))
        if self.breaker.open or gain < compaction.WORTH or not self.system:
            return False
        self._beside(reason, dropped)
        return True

    def _beside(self, reason: Reason, dropped: Sequence[str], *, focus: str = "") -> asyncio.Task[Json]:
        task: asyncio.Task[Json] = asyncio.create_task(
            self._scoped(lambda: self._compact(reason, dropped, focus=focus))
        )
        self._compacting = task
        task.add_done_callback(self._compacted)
        return task

    async def _compact(
        self, reason: Reason, dropped: Sequence[str], *, focus: str = "", current: Sequence[Message] = ()
    ) -> Json:
        """Let these go, and something shorter stand for them. What fails is told to the operator and changes nothing."""
        if self._extracting is not None and not await self._ends(self._extracting):
            # It would put what it knows in the place of a memory that knows more.
            await _given_up(self._extracting)
        before = self._view_changes.tokens()
        try:
            await self._look_again()
            change = None if focus else self._from_memory(dropped)
            if change is None:
                change = await self._from_summary(dropped, focus, current)
        except _FAILED as error:
            opened = self.breaker.failed()
            self._write("a compaction failed" + (" again: none for ten minutes" if opened else ""), error)
            return {"how": "failed"}
        self.breaker.succeeded()
        if not set(change.data["dropped"]) <= set(self._uuids()):
            # Something else was quicker.
            return {"how": "nothing"}
        self._asked = 0
        self._view_changes.apply(reason, change)
        await self._view_changes.ledger.flush()
        return {
            "how": change.data["how"],
            "messages": len(change.data["dropped"]),
            "tokensBefore": before,
            "tokensAfter": self._view_changes.tokens(),
        }

    def _from_memory(self, dropped: Sequence[str]) -> ViewChange | None:
        """The change in which the memory stands for what it knows; None where that is too little of it."""
        known = compaction.covered(self._store.turns, dropped, self._covers)
        if self._known is None or not known:
            return None
        part = self._tokens(self._messages(known))
        if part < ENOUGH * self._tokens(self._messages(dropped)):
            return None
        return self._change(known, self._known.markdown, "memory")

    async def _from_summary(
        self, dropped: Sequence[str], focus: str, current: Sequence[Message]
    ) -> ViewChange:
        """The change in which a summary stands for it, which is the memory from now on."""
        newest = self._newest()
        self._note_asked(current)
        summary = await forks.condense(self._prefix(current), self._known, focus, self._deps)
        change = self._change(dropped, summary.words, "summary", summary.block)
        try:
            await self._keep(memory.read(summary.words), newest)
        except _FAILED as error:
            self._write("a summary could not be kept as the memory", error)
        return change

    def _change(self, dropped: Sequence[str], words: str, how: str, block: Json | None = None) -> ViewChange:
        before = [self._store.head] if self._store.head is not None else []
        kept = self._messages(set(self._uuids()) - set(dropped))
        gone = reattach.DroppedMessages([*before, *self._messages(dropped)], kept)
        origin = self._lines.origin(self._store.view())
        tools = reattach.definitions(gone, self._deps, reattach.TOOLS * reattach.room(self._deps))
        gone = replace(gone, declared=frozenset(str(tool["name"]) for tool in tools))
        said = reattach.instructions(gone, self._deps, reattach.SAID * reattach.room(self._deps))
        nonce, attached = fresh_nonce(self._deps), reattach.attached(gone, self._deps)
        head = memory.head(words, *attached, nonce=nonce, origin=origin, block=block, tools=tools, said=said)
        change = view_changes.compacted(dropped, head)
        return ViewChange(change.line, change.data | {"how": "provider" if block else how})

    def _border(self, keep: int) -> list[str]:
        return compaction.border(self._store.turns, size=self._tokens, keep=keep)

    # ------------------------------------------------------------ memory

    async def _extract(self) -> None:
        """Write the memory anew, beside the turns. What fails is tried again when as much is new once more."""
        newest = self._newest()
        self._since = newest
        prefix = Prefix(self.system, self._store.view(), tally=self._view_changes.tally)
        self._note_asked(())
        try:
            await self._look_again()
            self._since = newest
            await self._keep(await forks.remember(prefix, self._known, self._deps), newest)
        except _FAILED as error:
            self._write("the memory could not be written", error)
        self._view_changes.note_totals()

    async def _keep(self, known: SessionMemory, covers: str | None) -> None:
        """Remember this from now on, and put it on file. Raises `errors.StorageError`; it is remembered all the same."""
        if self._known is not None and self._covers is not None:
            self._before = (self._known, self._covers)
        self._known, self._covers, self._since = known, covers, covers
        markdown = known.markdown
        tokens = round(estimate.text_tokens(markdown))
        self._deps.log.write("memory", "the memory of the chat is written", tokens=tokens, covers=covers)
        await self._lines.save(markdown, covers, tokens, self._store)

    # ------------------------------------------------------------ inside

    def _prefix(self, current: Sequence[Message]) -> Prefix:
        if self.system:
            return Prefix(self.system, self._store.view(), current, self._view_changes.tally)
        # What was thought, or summed up, behind another system prompt would be refused.
        return forks.in_words(Prefix(self.stand_in, self._store.view(), current, self._view_changes.tally))

    def _note_asked(self, current: Sequence[Message]) -> None:
        """What a fork reads stays in the provider's cache for as long again as after a turn's own request."""
        if self.system and not current:
            self._view_changes.asked_at = self._deps.clock.monotonic()

    def _newest(self) -> str | None:
        return self._store.turns[-1].entries[-1].uuid if self._store.turns else None

    def _uuids(self) -> list[str]:
        return [entry.uuid for turn in self._store.turns for entry in turn.entries]

    def _messages(self, uuids: Iterable[str]) -> list[Message]:
        wanted = set(uuids)
        return [e.message for turn in self._store.turns for e in turn.entries if e.uuid in wanted]

    def _tokens(self, messages: Sequence[Message]) -> int:
        return self._deps.estimator.messages(self._deps.model_name, messages)

    async def _scoped(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Work beside the turns belongs to the turn or command that caused it; where time did, to the last turn."""
        request_id = context.current().request_id or self._request_id
        with turn_scope(chat_key=self._chat_key, request_id=request_id):
            return await work()

    async def _ends(self, task: asyncio.Task[Any], seconds: float = WAIT_SECONDS) -> bool:
        """True if a task ends within what a compaction, a turn or a person waits for it."""
        patience = asyncio.create_task(self._deps.clock.sleep(seconds))
        try:
            await asyncio.wait([task, patience], return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        return task.done()

    def _extracted(self, task: asyncio.Task[None]) -> None:
        self._extracting = None
        self._report(task)

    def _compacted(self, task: asyncio.Task[Json]) -> None:
        if self._compacting is task:
            self._compacting = None
        self._report(task)

    def _report(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._write("the upkeep of a chat failed", error)

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


async def _given_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
