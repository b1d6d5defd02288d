"""Compacts histories: writes session memories between turns, and replaces dropped messages by a memory or a
summary.

A compaction uses the session memory if the memory covers the dropped messages, else a summary that a fork
writes. Memories and summaries are written between turns, unless the running turn would not fit into the
context window. A failure changes nothing; a history that stays too large is halved (see `bot.core.fit`). No
compaction is resumed after a restart, since the end of the next turn starts the same work.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot import errors, tags, text
from bot.contracts.base import Message
from bot.contracts.environment import Clock, Ids, Log, OperatorNotices, ends_within
from bot.contracts.identity import ChatKey
from bot.contracts.provenance import NOBODYS, Provenance, unpacked
from bot.core import compaction, events, forks, memory
from bot.core.chat import Chat
from bot.core.compaction import CompactResult
from bot.core.fit import COLD_AFTER, Fit
from bot.core.found_tools import PutBack
from bot.core.memory import MemoryInvalid, SessionMemory
from bot.storage.memories import Memories, SavedMemory
from bot.tools.permissions import taint
from bot.words import sentence

WAIT_SECONDS = 15.0
"""Max seconds that a compaction waits for the memory being written, and that a turn waits for a compaction."""
ENOUGH = 0.5
"""Min share of the dropped messages that the session memory must cover; below that share a summary is written."""
IDLE_AFTER = COLD_AFTER - 30.0
IDLE_UNTIL = COLD_AFTER - 5.0
"""Limit in seconds of quiet after which a chat is no longer compacted: from `IDLE_AFTER` until then the
prefix is still cached, and the next turn starts small.
"""
LOOK_SECONDS = 10.0
"""Interval in seconds of the search for quiet chats; shorter than the time between `IDLE_AFTER` and `IDLE_UNTIL`."""
MOST_CHATS = 500
"""Max chats whose last request is kept in memory."""
FAILED = (errors.ShipmateError, MemoryInvalid)


PutsBack = Callable[[Chat, Sequence[Message], Sequence[Message], float], Awaitable[PutBack]]
"""Function that returns the working state to restore after messages were dropped, within a number of tokens."""


@dataclass(slots=True)
class _Work:
    """Compaction work of one chat. `since` is the number of the newest message when the last memory was begun."""

    breaker: compaction.Breaker
    fit: Fit | None = None
    """Builder of the requests of the chat's newest turn."""
    compacting: asyncio.Task[CompactResult] | None = None
    writing: asyncio.Task[None] | None = None
    since: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Summaries:
    """Compacts the histories of all chats. `memories` is None if the session memory is off."""

    append: Callable[[Chat, events.EventData], None]
    memories: Memories | None
    put_back: PutsBack
    operators: OperatorNotices
    clock: Clock
    ids: Ids
    log: Log
    _work: OrderedDict[ChatKey, _Work] = field(default_factory=OrderedDict)

    async def stop(self) -> None:
        """Cancel all compactions and memory updates; no data is lost."""
        for work in self._work.values():
            for task in (work.compacting, work.writing):
                await _give_up(task)

    # ------------------------------------------------------------ when work may be due

    async def before_turn(self, fit: Fit) -> None:
        """Prepare a turn: finish a running compaction, and cut the messages to at most twice the message cap."""
        chat = fit.chat
        work = self._of(chat)
        work.fit = fit
        if work.compacting is not None and not await ends_within(WAIT_SECONDS, work.compacting, self.clock):
            self._write(chat, "a compaction took too long and was given up")
            # Without this, every turn would start another compaction, and the next turn would wait for it.
            work.breaker.failed()
            await _give_up(work.compacting)
        remembers = fit.limits.compaction.enabled and self.memories is not None
        growth = compaction.GROWTH if remembers else 1
        if len(chat.context.view()) <= fit.limits.max_messages * growth:
            return
        over = chat.context.over_cap()
        if remembers and not self._knows(chat, over):
            await self._written(work)
            if self._covers(chat) != _newest(chat):
                self._begin_memory(fit)
                await self._written(work)
        if remembers and not self._knows(chat, over):
            words = sentence("operators.forgotten", chat=chat.key, count=len(over))
            self.operators.tell("what chats forget", words)
        await self._cut(fit, over)

    async def before_asking(self, fit: Fit) -> None:
        """Prepare a request of the running turn: compact the earlier history if the request may not fit."""
        chat = fit.chat
        hard = fit.budget().hard
        if (
            hard is None
            or not fit.limits.compaction.enabled
            or not chat.context.turns
            or fit.tokens() <= hard
        ):
            return
        # Tokens left beside the running turn. Half of them stay free for messages that the turn still adds.
        left = hard - fit.tokens() + fit.measure(chat.context.view())
        dropped = self._border(fit, min(_keep(fit), max(0, left // 2)))
        if not self._of(chat).breaker.open and fit.measure(_messages(chat, dropped)) >= compaction.WORTH:
            await self._compact(fit, "size", dropped, current=chat.context.current())

    def turn_ended(self, chat: Chat) -> None:
        """Start the compaction or memory update that is due after a turn, in the background."""
        work, over = self._of(chat), chat.context.over_cap()
        fit, file = work.fit, self.memories
        if fit is not None and fit.limits.compaction.enabled:
            if work.compacting is not None or (fit.tokens() > fit.budget().limit and self._begin(fit)):
                return
        else:
            file = None
        if fit is None or file is None:
            if over:
                self.append(chat, events.Cut(tuple(over), chat.context.head, "message_cap"))
        elif over and work.writing is None and self._knows(chat, over):
            work.compacting = self._task(chat, self._compact(fit, "message_cap", over))
        elif work.writing is None and self._enough_is_new(fit, over_cap=bool(over)):
            self._begin_memory(fit)

    async def look(self) -> None:
        """Compact chats that stayed quiet until shortly before the provider's cache expires."""
        now = self.clock.now()
        for work in [*self._work.values()]:
            fit = work.fit
            if fit is None or work.compacting is not None or fit.chat.turn is not None:
                continue
            policy, context = fit.limits.compaction, fit.context
            quiet = context.asked_at is not None and IDLE_AFTER <= now - context.asked_at < IDLE_UNTIL
            due = quiet and context.cached and policy.enabled and policy.idle
            if due and fit.tokens() > policy.idle_above:
                self._begin(fit, "idle")

    def _begin(self, fit: Fit, reason: str = "size") -> bool:
        """Start a background compaction if it saves enough and has not failed repeatedly. Returns True if it
        was started.
        """
        chat = fit.chat
        keep = min(compaction.IDLE_KEEPS, _keep(fit)) if reason == "idle" else _keep(fit)
        work, dropped = self._of(chat), self._border(fit, keep)
        if work.breaker.open or fit.measure(_messages(chat, dropped)) < compaction.WORTH:
            return False
        work.compacting = self._task(chat, self._compact(fit, reason, dropped))
        return True

    # ------------------------------------------------------------ compaction

    async def compact(self, fit: Fit, focus: str) -> CompactResult:
        """Compact at a person's request. With a `focus`, use a summary that preserves the focus."""
        chat = fit.chat
        dropped = self._border(fit, min(_keep(fit), fit.measure(chat.context.view()) // 4))
        return (
            await self._compact(fit, "compact", dropped, focus=focus) if dropped else CompactResult("nothing")
        )

    async def _compact(
        self,
        fit: Fit,
        reason: str,
        dropped: Sequence[int],
        *,
        focus: str = "",
        current: Sequence[Message] = (),
    ) -> CompactResult:
        """Replace messages by a memory or a summary. A failure is reported to operators and changes nothing."""
        chat = fit.chat
        work = self._of(chat)
        await self._written(work)
        try:
            await self._look_again(chat)
            known = [] if focus else self._known(chat, dropped)
            if known and fit.measure(_messages(chat, known)) >= ENOUGH * fit.measure(
                _messages(chat, dropped)
            ):
                remembered, how = chat.context.memory, compaction.BY_MEMORY
                words = remembered.markdown if remembered is not None else ""
                change = await self._change(fit, reason, known, words)
            else:
                change, how = await self._from_summary(fit, reason, dropped, focus, current)
        except FAILED as error:
            self._failed(chat, work, error)
            return CompactResult("failed")
        work.breaker.succeeded()
        if not {*change.dropped} <= {*compaction.names(_named(chat))}:
            return CompactResult("nothing")  # another change has already dropped these messages
        before = fit.measure(chat.context.view())
        fit.apply(change)
        return CompactResult(how, len(change.dropped), before, fit.measure(chat.context.view()))

    def _failed(self, chat: Chat, work: _Work, error: Exception) -> None:
        opened = work.breaker.failed()
        self._write(chat, "a compaction failed" + (" again: none for ten minutes" if opened else ""), error)
        if opened and not isinstance(error, errors.BudgetSpent):
            cause = f"{type(error).__name__}: {error}"
            words = sentence("operators.compaction", chat=chat.key, times=compaction.FAILURES, cause=cause)
            self.operators.tell("the compaction of chats", words)

    async def _cut(self, fit: Fit, over: Sequence[int]) -> None:
        """Drop the messages over the message cap, and replace them by the session memory if the memory covers them."""
        chat = fit.chat
        remembered, change = chat.context.memory, events.Cut(tuple(over), chat.context.head, "message_cap")
        if remembered is not None and self._knows(chat, over):
            change = await self._change(fit, "message_cap", over, remembered.markdown)
        fit.apply(change)

    async def _from_summary(
        self,
        fit: Fit,
        reason: str,
        dropped: Sequence[int],
        focus: str,
        current: Sequence[Message],
    ) -> tuple[events.Cut, compaction.Maker]:
        """Return the event that replaces the dropped messages by a summary, and who wrote the summary. The
        summary becomes the session memory.
        """
        chat = fit.chat
        newest = _newest(chat)
        prefix = _prefix(fit, current)
        summary = await forks.condense(prefix, self._memory(chat), focus, fit)
        change = await self._change(fit, reason, dropped, summary.words, summary.block)
        try:
            await self._keep(chat, memory.read(summary.words), newest, prefix.messages)
        except FAILED as error:
            self._write(chat, "a summary could not be kept as the memory", error)
        return change, "provider" if summary.block else "summary"

    async def _change(
        self, fit: Fit, reason: str, dropped: Sequence[int], words: str, block: Any = None
    ) -> events.Cut:
        chat = fit.chat
        context = chat.context
        before = [context.head] if context.head is not None else []
        kept = _messages(chat, {*compaction.names(_named(chat))} - {*dropped})
        left = _room(fit) - fit.measure(kept) - fit.models.estimator.text(fit.models.name, words)
        again = await self.put_back(chat, [*before, *_messages(chat, dropped)], kept, max(0.0, left))
        origin = self._origin(chat, context.view())
        nonce = tags.nonce(self.ids.ulid())
        head = memory.head(words, nonce=nonce, origin=origin, block=block, put_back=again)
        return events.Cut(tuple(dropped), head, reason)

    def _border(self, fit: Fit, keep: float) -> list[int]:
        chat = fit.chat
        return compaction.border(_named(chat), size=fit.measure, keep=keep)

    # ------------------------------------------------------------ session memory

    def _enough_is_new(self, fit: Fit, *, over_cap: bool) -> bool:
        chat = fit.chat
        new = list(compaction.since(_named(chat), self._of(chat).since or self._covers(chat)))
        calls = sum(block.get("type") == "tool_use" for one in new for block in one["content"])
        due = over_cap and compaction.EXTRACT_SHARE * len(new) >= fit.limits.max_messages
        return due or compaction.wants_extraction(fit.measure(new), calls)

    def _begin_memory(self, fit: Fit) -> None:
        chat = fit.chat
        work = self._of(chat)
        work.since = _newest(chat)
        work.writing = self._task(chat, self._extract(fit, work))

    async def _extract(self, fit: Fit, work: _Work) -> None:
        """Update the session memory. After a failure, the next attempt waits until as many new messages have
        arrived again.
        """
        chat = fit.chat
        newest = _newest(chat)
        try:
            await self._look_again(chat)
            prefix = _prefix(fit)
            known = await forks.remember(prefix, self._memory(chat), fit)
            await self._keep(chat, known, newest, prefix.messages)
            work.failures = 0
        except FAILED as error:
            self._write(chat, "the memory could not be written", error)
            work.failures += 1
            if work.failures >= compaction.FAILURES and not isinstance(error, errors.BudgetSpent):
                cause = f"{type(error).__name__}: {error}"
                words = sentence("operators.chat_memory", chat=chat.key, times=work.failures, cause=cause)
                self.operators.tell("the memory of chats", words)

    async def _keep(
        self, chat: Chat, known: SessionMemory, covers: int | None, seen: Iterable[Message]
    ) -> None:
        """Store this session memory. Raises `errors.StorageError` if the file cannot be written; the event
        is appended anyway.
        """
        origin = self._origin(chat, seen).packed()
        self.append(chat, events.Remembered(known.markdown, covers, origin))
        self.log.write("memory", "the memory of the chat is written", tokens=known.tokens, covers=str(covers))
        if self.memories is not None:
            saved = SavedMemory(
                known.markdown,
                None if covers is None else str(covers),
                int(self.clock.now() * 1000),
                origin=unpacked(origin),
            )
            await self.memories.save(chat.key, saved)

    async def _look_again(self, chat: Chat) -> None:
        """Import the changes that an operator has made to the memory file."""
        before = chat.context.memory
        if self.memories is None or before is None:
            return
        kept = await self.memories.load(chat.key)
        edited = kept.markdown if kept is not None and kept.markdown != text.clean(before.markdown) else None
        if edited is None:
            return
        try:
            memory.read(edited)
        except MemoryInvalid as error:
            self._write(chat, "the memory cannot be read", error)
        else:
            self.append(chat, events.Remembered(edited, None, before.origin))

    def _memory(self, chat: Chat) -> SessionMemory | None:
        remembered = chat.context.memory
        return memory.read(remembered.markdown) if remembered is not None else None

    def _covers(self, chat: Chat) -> int | None:
        return chat.context.memory.covers if chat.context.memory is not None else None

    def _known(self, chat: Chat, dropped: Sequence[int]) -> list[int]:
        return compaction.covered(_named(chat), dropped, self._covers(chat))

    def _knows(self, chat: Chat, dropped: Sequence[int]) -> bool:
        return len(self._known(chat, dropped)) == len(dropped)

    def _origin(self, chat: Chat, messages: Iterable[Message]) -> Provenance:
        """Return the sources whose text a summary of these messages and the memory may contain."""
        before = chat.context.memory
        origin = unpacked(before.origin) if before is not None else NOBODYS
        return origin | taint.seen(taint.faded(messages))

    # ------------------------------------------------------------ helpers

    def _of(self, chat: Chat) -> _Work:
        work = self._work.setdefault(chat.key, _Work(compaction.Breaker(self.clock)))
        self._work.move_to_end(chat.key)
        oldest = next(iter(self._work.values()))
        if len(self._work) > MOST_CHATS and oldest.compacting is None is oldest.writing:
            self._work.popitem(last=False)
        return work

    async def _written(self, work: _Work) -> None:
        """Wait for the memory that is being written. A slow write is cancelled, since it must not replace a
        newer memory.
        """
        if work.writing is not None and not await ends_within(WAIT_SECONDS, work.writing, self.clock):
            await _give_up(work.writing)

    def _task(self, chat: Chat, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)

        def over(ended: asyncio.Task[Any]) -> None:
            mine = self._of(chat)
            mine.compacting = None if mine.compacting is ended else mine.compacting
            mine.writing = None if mine.writing is ended else mine.writing
            if not ended.cancelled() and (error := ended.exception()) is not None:
                self._write(chat, "a compaction failed", error)

        task.add_done_callback(over)
        return task

    def _write(self, chat: Chat, what: str, error: BaseException | None = None) -> None:
        cause = f"{type(error).__name__}: {error}" if error is not None else None
        self.log.write("memory", what, level="warn", chat_key=chat.key, cause=cause)


async def _give_up(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _named(chat: Chat) -> list[list[tuple[int, Message]]]:
    return [turn.named for turn in chat.context.turns]


def _newest(chat: Chat) -> int | None:
    return chat.context.turns[-1].entries[-1].seq if chat.context.turns else None


def _messages(chat: Chat, names: Iterable[int]) -> list[Message]:
    wanted = {*names}
    return [message for turn in _named(chat) for name, message in turn if name in wanted]


def _prefix(fit: Fit, current: Sequence[Message] = ()) -> forks.Prefix:
    """Return the prefix of the chat's next request, without untrusted text."""
    chat = fit.chat
    shown = [*chat.context.view()]
    history, now = taint.faded(shown), taint.faded(current)
    prefix = forks.Prefix(fit.system, history, now)
    # The provider would reject thinking and provider summaries that were made for another prompt.
    return prefix if (history, now) == (shown, [*current]) else forks.in_words(prefix)


def _room(fit: Fit) -> float:
    """Return the tokens that may remain after a compaction, including restored state: half of the soft limit."""
    budget = fit.budget()
    if budget.hard is None:
        return budget.soft // 2
    frame = fit.tokens() - fit.measure(fit.context.view())
    return min(budget.soft, max(0, budget.hard - frame)) // 2


def _keep(fit: Fit) -> float:
    """Return the min tokens of the newest messages that a compaction keeps unchanged."""
    return min(fit.limits.compaction.keep_tokens, _room(fit) // compaction.SPAN)
