"""Compacts the histories of chats. Between turns, the model updates a chat's session memory. A compaction replaces old
messages by the session memory, or by a new summary if the memory does not cover enough of these messages. If a
compaction fails, the history stays unchanged.

A *fork* is a separate question to the model about a conversation. A fork's request is the chat's next request, byte for byte,
with one message added, so the provider's cache is used. A fork runs no tool, and its question and answer are not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from typing import Any, Literal, TypeVar

from bot import errors, tags, text
from bot.contracts.approvals import Unattended
from bot.contracts.base import Json, Message
from bot.contracts.environment import cancel_all, ends_within, started
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ANYBODYS, NOBODYS, ORIGIN, Provenance, Taint, unpacked
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import events, memory, view
from bot.core.chat import Chat
from bot.core.context import LENGTH, ContextEntry, KeptTurn, api_rounds
from bot.core.fit import COLD_AFTER, AgentDeps, Fit
from bot.core.memory import MemoryInvalid, SessionMemory, TooLong
from bot.core.prompt import assemble
from bot.llm import blocks
from bot.llm.wrapper import reply_of
from bot.telemetry import log as telemetry
from bot.tools import result_limits
from bot.tools.builtin.skills import skills_load
from bot.tools.builtin.tool_search import tool_search
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.permissions import taint
from bot.words import sentence

T = TypeVar("T")
WAIT_SECONDS = 15.0
"""Max seconds for which a compaction waits for a running memory update, and for which a turn waits for a compaction."""
ENOUGH = 0.5
"""Min share of the dropped tokens that the session memory must cover. Otherwise a compaction makes a summary."""
IDLE_AFTER, IDLE_UNTIL = COLD_AFTER - 30.0, COLD_AFTER - 5.0
"""Idle chats are compacted between these numbers of seconds after their last request, while the provider still caches the prefix."""
LOOK_SECONDS = 10.0  # Interval in seconds between two searches for idle chats that should be compacted
MOST_CHATS = 500  # Max chats whose state (`_Work`) is kept in memory
FAILURES, PAUSE_SECONDS = 3, 600.0
"""After three failures in a row, operators are alerted, and the chat is not compacted for 600 seconds."""
IDLE_KEEPS = 2_000
"""Min tokens of the newest messages that a compaction of an idle chat keeps. Keeping few delays the next compaction."""
GROWTH = 2
"""Factor on the message cap (`max_messages`). Above the cap, messages stay until the session memory covers them, but never
more than cap × factor messages.
"""
KEEP_MESSAGES = 5  # Min number of the newest messages that a compaction keeps
SPAN = 2
"""Factor on the tokens to keep. If a whole turn would exceed tokens × factor, only the turn's newest API rounds are kept."""
WORTH = 2_000
"""Min tokens that a compaction must drop. Dropping fewer costs more than it saves, because the provider must cache the new prefix."""
EXTRACT_AFTER, EXTRACT_CALLS, EXTRACT_ALONE = 5_000, 3, 15_000
"""The session memory is updated after 5,000 new tokens with at least 3 tool calls, or after 15,000 new tokens."""
EXTRACT_SHARE = 8
"""Divisor of the message cap. Above the cap, the session memory is updated after cap / divisor new messages."""
FORK_TOKENS, FORK_RETRIES = 8_192, 3
"""Max tokens of a fork's answer (a fork is a request that copies the chat's prefix), and max number of times that a summary's
prompt is shortened after an overflow.
"""
FAILED = (errors.ShipmateError, MemoryInvalid)
What = Literal["compaction", "memory"]
Maker = Literal["memory", "summary"]
"""Source of the text that replaces dropped messages: the session memory, or a new summary by the model."""


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Result of a compaction. `messages` is the number of dropped messages. The token numbers count all messages before and
    after the compaction.
    """

    outcome: Maker | Literal["nothing", "failed"]
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


@dataclass(slots=True)
class _Work:
    """State of the compactions and memory updates of one chat."""

    fit: Fit | None = None
    tasks: dict[What, asyncio.Task[Any]] = field(default_factory=dict)
    since: int | None = None
    """Event number of the message that was the newest when the last memory update began."""
    failures: Counter[What] = field(default_factory=Counter)
    """Numbers of compactions and of memory updates that have failed in a row. The last failure was at `failed_at`."""
    failed_at: float = 0.0

    def running(self, what: What) -> asyncio.Task[Any] | None:
        task = self.tasks.get(what)
        return task if task is not None and not task.done() else None


@dataclass(frozen=True, slots=True)
class Summaries:
    """Compacts the histories of all chats."""

    agent: AgentDeps
    append: Callable[[Chat, events.EventData], None]
    _work: OrderedDict[ChatKey, _Work] = field(default_factory=OrderedDict)

    async def stop(self) -> None:
        """Cancel all compactions and memory updates. No data is lost."""
        await cancel_all(task for work in self._work.values() for task in work.tasks.values())

    # ------------------------------------------------------------ when work may be due

    async def before_turn(self, fit: Fit) -> None:
        """Wait for a running compaction. Then drop the oldest messages if their number exceeds the message cap, or twice the
        cap if compaction is on.
        """
        chat, context, limits = fit.chat, fit.context, fit.limits
        self._of(chat).fit = fit
        await self._ended(chat, "compaction")
        remembers = limits.compaction.enabled
        if len(context.view()) <= limits.max_messages * (GROWTH if remembers else 1):
            return
        over = context.over_cap()
        if remembers and _covered(fit, over) != over:
            await self._ended(chat, "memory")
            if context.memory is None or context.memory.covers != _newest(fit):
                self._begin_memory(fit)
                await self._ended(chat, "memory")
        change = events.Cut(tuple(over), context.head, "message_cap")
        if context.memory is not None and _covered(fit, over) == over:
            change = await self._change(fit, "message_cap", over, context.memory.markdown)
        elif remembers:
            words = sentence("operators.forgotten", chat=chat.key, count=len(over))
            self.agent.alerts.tell("what chats forget", words)
        fit.apply(change)

    async def before_asking(self, fit: Fit) -> None:
        """Compact the messages of earlier turns if the running turn's next request may exceed the context window."""
        hard = fit.budget().hard
        if hard is None or not fit.limits.compaction.enabled or not fit.context.turns or fit.tokens() <= hard:
            return
        # `left` is the number of tokens that the running turn leaves to earlier turns. The turn will add more messages.
        left = hard - fit.tokens() + fit.measure(fit.context.view())
        dropped = _border(fit, min(_keep(fit), max(0, left // 2)))
        if self._pays(fit, dropped):
            await self._compact(fit, "size", dropped, current=fit.context.current())

    def turn_ended(self, chat: Chat) -> None:
        """Start a background task for a compaction or memory update if one is due after a turn."""
        work, over = self._of(chat), chat.context.over_cap()
        fit = work.fit
        if fit is None or not fit.limits.compaction.enabled:
            if over:
                self.append(chat, events.Cut(tuple(over), chat.context.head, "message_cap"))
        elif work.running("compaction") or (
            fit.tokens() > fit.budget().limit and self._begin(fit, "size", _border(fit, _keep(fit)))
        ):
            pass
        elif not work.running("memory"):
            if over and _covered(fit, over) == over:
                self._start(chat, "compaction", self._compact(fit, "message_cap", over))
            elif self._enough_is_new(fit, over_cap=bool(over)):
                self._begin_memory(fit)

    async def look(self) -> None:
        """Compact idle chats shortly before their prefix expires from the provider's cache."""
        now = self.agent.clock.now()
        for work in [*self._work.values()]:
            fit = work.fit
            if fit is None or work.running("compaction") or fit.chat.turn is not None:
                continue
            policy, context = fit.limits.compaction, fit.context
            quiet = context.asked_at is not None and IDLE_AFTER <= now - context.asked_at < IDLE_UNTIL
            due = quiet and context.cached and policy.enabled and policy.idle.enabled
            if due and fit.tokens() > policy.idle.above_tokens:
                self._begin(fit, "idle", _border(fit, min(IDLE_KEEPS, _keep(fit))))

    def _begin(self, fit: Fit, reason: str, dropped: Sequence[int]) -> bool:
        """Start a compaction in the background if `_pays` allows it. Returns True if it was started."""
        if pays := self._pays(fit, dropped):
            self._start(fit.chat, "compaction", self._compact(fit, reason, dropped))
        return pays

    def _pays(self, fit: Fit, dropped: Sequence[int]) -> bool:
        """Return True if the dropped messages have enough tokens, and compactions are not paused after failures."""
        work = self._of(fit.chat)
        lately = self.agent.clock.monotonic() - work.failed_at < PAUSE_SECONDS
        paused = lately and work.failures["compaction"] >= FAILURES
        return not paused and fit.measure(_messages(fit, dropped)) >= WORTH

    # ------------------------------------------------------------ compaction

    async def compact(self, fit: Fit, focus: str) -> CompactResult:
        """Compact a chat for the command `/compact`. If there is a `focus`, always make a summary, which preserves the focus."""
        dropped = _border(fit, min(_keep(fit), fit.measure(fit.context.view()) // 4))
        if not dropped:
            return CompactResult("nothing")
        return await self._compact(fit, "compact", dropped, focus=focus)

    async def _compact(
        self,
        fit: Fit,
        reason: str,
        dropped: Sequence[int],
        *,
        focus: str = "",
        current: Sequence[Message] = (),
    ) -> CompactResult:
        chat, context, work = fit.chat, fit.context, self._of(fit.chat)
        await self._ended(chat, "memory")
        maker: Maker = "memory"
        try:
            await self._import_edits(chat)
            known = [] if focus else _covered(fit, dropped)
            share = ENOUGH * fit.measure(_messages(fit, dropped))
            if known and context.memory is not None and fit.measure(_messages(fit, known)) >= share:
                change = await self._change(fit, reason, known, context.memory.markdown)
            else:
                newest, prefix, before = _newest(fit), _prefix(fit, current), _memory(chat)
                ask, maker = memory.summarizing(before, focus), "summary"
                read = partial(memory.read_summary, known=before)
                words = await _fork(fit, prefix, "compaction", ask, read)
                change = await self._change(fit, reason, dropped, words)
                with contextlib.suppress(*FAILED):
                    # Only a summary that is a valid memory replaces the session memory.
                    await self._keep(chat, memory.read(words), newest, itertools.chain(*prefix))
        except FAILED as error:
            self._failed(chat, "compaction", error)
            return CompactResult("failed")
        work.failures["compaction"] = 0
        if not {*change.dropped} <= {*_numbers(context.turns)}:
            return CompactResult("nothing")  # another change has already dropped these messages
        tokens = fit.measure(context.view())
        fit.apply(change)
        return CompactResult(maker, len(change.dropped), tokens, fit.measure(context.view()))

    async def _change(self, fit: Fit, reason: str, dropped: Sequence[int], words: str) -> events.Cut:
        """Return the event that replaces the dropped messages by the text `words` and the restored working state."""
        context = fit.context
        before = [context.head] if context.head is not None else []
        kept = _messages(fit, {*_numbers(context.turns)} - {*dropped})
        left = _room(fit) - fit.measure(kept) - fit.models.estimator.text(fit.models.name, words)
        origin, nonce = _origin(fit.chat, context.view()), tags.nonce(self.agent.ids.ulid())
        gone = [*before, *_messages(fit, dropped)]
        state, names = await _working_state(fit, gone, kept, max(0.0, left), nonce)
        head = memory.head(words, state, nonce=nonce, origin=origin, names=names)
        return events.Cut(tuple(dropped), head, reason)

    # ------------------------------------------------------------ session memory

    def _enough_is_new(self, fit: Fit, *, over_cap: bool) -> bool:
        remembered = fit.context.memory
        covers = self._of(fit.chat).since or (remembered.covers if remembered is not None else None) or 0
        new = _messages(fit, (one for one in _numbers(fit.context.turns) if one > covers))
        calls = sum(block.get("type") == "tool_use" for one in new for block in one["content"])
        tokens = fit.measure(new)
        return (
            (over_cap and EXTRACT_SHARE * len(new) >= fit.limits.max_messages)
            or tokens >= EXTRACT_ALONE
            or (tokens >= EXTRACT_AFTER and calls >= EXTRACT_CALLS)
        )

    def _begin_memory(self, fit: Fit) -> None:
        work = self._of(fit.chat)
        work.since = _newest(fit)
        self._start(fit.chat, "memory", self._extract(fit, work, work.since))

    async def _extract(self, fit: Fit, work: _Work, newest: int | None) -> None:
        chat = fit.chat
        try:
            await self._import_edits(chat)
            prefix, known = _prefix(fit), _memory(chat)
            ask, read = memory.extraction(known), partial(memory.changed, known)
            made = await _fork(fit, prefix, "memory", ask, read)
            await self._keep(chat, made.capped(), newest, itertools.chain(*prefix))
            work.failures["memory"] = 0
        except FAILED as error:
            self._failed(chat, "memory", error)

    async def _keep(
        self, chat: Chat, known: SessionMemory, covers: int | None, seen: Iterable[Message]
    ) -> None:
        """Append the session memory `known` to the log, then write the memory's file. Raises `errors.StorageError`."""
        origin, words = _origin(chat, seen), known.markdown
        self.append(chat, events.Remembered(words, covers, origin.packed()))
        self.agent.log.write("memory", "the memory of the chat is written", covers=str(covers))
        await self.agent.notes.save_session(chat.key, words)

    async def _import_edits(self, chat: Chat) -> None:
        """Append the memory file's text to the log if an operator has changed the file."""
        before = chat.context.memory
        if before is None:
            return
        kept = await self.agent.notes.load_session(chat.key)
        if kept is None or kept == text.clean(before.markdown):
            return
        try:
            memory.read(kept)
        except MemoryInvalid as error:
            self._warn(chat, "the memory cannot be read", error)
        else:
            self.append(chat, events.Remembered(kept, None, before.origin))

    # ------------------------------------------------------------ helpers

    def _of(self, chat: Chat) -> _Work:
        work = self._work.setdefault(chat.key, _Work())
        self._work.move_to_end(chat.key)
        oldest = next(iter(self._work.values()))
        if len(self._work) > MOST_CHATS and not any(map(oldest.running, oldest.tasks)):
            self._work.popitem(last=False)
        return work

    def _start(self, chat: Chat, what: What, work: Coroutine[Any, Any, Any]) -> None:
        self._of(chat).tasks[what] = started(work, self.agent.log, f"a {what} failed")

    async def _ended(self, chat: Chat, what: What) -> None:
        """Wait for a running task. After `WAIT_SECONDS`, cancel the task, because a late memory must not replace a newer one.
        Count this as a failure. Otherwise each turn would start another slow compaction, for which the next turn waits.
        """
        task = self._of(chat).running(what)
        if task is not None and not await ends_within(WAIT_SECONDS, task, self.agent.clock):
            self._failed(chat, what, TimeoutError(f"no end within {WAIT_SECONDS:g} seconds"))
            await cancel_all([task])

    def _failed(self, chat: Chat, what: What, error: Exception) -> None:
        """Count and log a failure. From the third failure in a row on, alert operators."""
        work = self._of(chat)
        work.failures[what] += 1
        work.failed_at = self.agent.clock.monotonic()
        self._warn(chat, f"the {what} failed", error)
        if work.failures[what] >= FAILURES and not isinstance(error, errors.BudgetSpent):
            key = "operators.compaction" if what == "compaction" else "operators.chat_memory"
            words = sentence(
                key, chat=chat.key, times=work.failures[what], cause=f"{type(error).__name__}: {error}"
            )
            self.agent.alerts.tell(f"the {what} of chats", words)

    def _warn(self, chat: Chat, what: str, error: BaseException) -> None:
        self.agent.log.write(
            "memory", what, level="warn", chat_key=chat.key, cause=f"{type(error).__name__}: {error}"
        )


def _memory(chat: Chat) -> SessionMemory | None:
    remembered = chat.context.memory
    return memory.read(remembered.markdown) if remembered is not None else None


def _origin(chat: Chat, messages: Iterable[Message]) -> Provenance:
    """Return the combined provenance of these messages and the current session memory, from which a summary is made."""
    before = chat.context.memory
    origin = unpacked(before.origin) if before is not None else NOBODYS
    return origin | taint.seen(taint.faded(messages))


# ------------------------------------------------------------ which messages are dropped


def _border(fit: Fit, keep: float) -> list[int]:
    """Return the event numbers of the messages to drop, so that at least `keep` tokens and `KEEP_MESSAGES` messages
    stay. Whole turns are dropped. If the oldest turn to keep is too long, its oldest API rounds are dropped too. That
    turn's last round, which is the answer, and the messages of people stay.
    """

    def tokens_of(entries: Sequence[ContextEntry]) -> float:
        return fit.measure([entry.message for entry in entries])

    turns, tokens, messages = fit.context.turns, 0.0, 0
    for at in reversed(range(len(turns))):
        if tokens >= keep and messages >= KEEP_MESSAGES:
            return _numbers(turns[: at + 1])
        entries = turns[at].entries
        own = tokens_of(entries)
        if tokens + own > SPAN * max(keep, WORTH):
            rounds, kept = api_rounds(entries), 0
            while rounds and (not kept or tokens < keep or messages < KEEP_MESSAGES):
                newest = rounds.pop()
                kept, tokens, messages = kept + 1, tokens + tokens_of(newest), messages + len(newest)
            return [*_numbers(turns[:at]), *(entry.seq for one in rounds for entry in one)]
        tokens, messages = tokens + own, messages + len(entries)
    return []


def _covered(fit: Fit, dropped: Sequence[int]) -> list[int]:
    """Return the part of `dropped` (event numbers) that the session memory covers. A memory covers whole turns."""
    covers = fit.context.memory.covers if fit.context.memory is not None else None
    return [one for one in dropped if one <= (covers or 0)]


def _numbers(turns: Sequence[KeptTurn]) -> list[int]:
    return [entry.seq for turn in turns for entry in turn.entries]


def _newest(fit: Fit) -> int | None:
    return fit.context.turns[-1].entries[-1].seq if fit.context.turns else None


def _messages(fit: Fit, numbers: Iterable[int]) -> list[Message]:
    wanted = {*numbers}
    entries = (entry for turn in fit.context.turns for entry in turn.entries)
    return [entry.message for entry in entries if entry.seq in wanted]


def _room(fit: Fit) -> float:
    """Return the max tokens of the messages after a compaction, including restored state: half of the available tokens."""
    budget = fit.budget()
    if budget.hard is None:
        return budget.soft // 2
    frame = fit.tokens() - fit.measure(fit.context.view())
    return min(budget.soft, max(0, budget.hard - frame)) // 2


def _keep(fit: Fit) -> float:
    """Return the min tokens of the newest messages, which a compaction keeps unchanged."""
    return min(fit.limits.compaction.keep_tokens, _room(fit) // SPAN)


# ------------------------------------------------------------ forks


Prefix = tuple[Sequence[Message], Sequence[Message]]
"""Messages at the start of a fork's request: messages of finished turns, and messages of the running turn."""


def _prefix(fit: Fit, current: Sequence[Message] = ()) -> Prefix:
    """Return the messages that a fork asks about, without untrusted text."""
    shown = fit.context.view()
    history, now = taint.faded(shown), taint.faded(current)
    if (history, now) == ([*shown], [*current]):
        return history, now
    # The provider rejects thinking blocks if the messages before them have changed.
    return blocks.without_thinking(history), blocks.without_thinking(now)


async def _fork(fit: Fit, prefix: Prefix, purpose: str, question: Message, read: Callable[[str], T]) -> T:
    """Return a fork's answer, parsed by `read`. If the answer is too long, ask once more for fewer words. If the prompt of a
    summary is too long, drop its oldest messages. Raises `errors.ModelError` and `MemoryInvalid`.
    """
    asked, retries = question, FORK_RETRIES if purpose == "compaction" else 0
    while True:
        try:
            return read(await _ask(fit, prefix, purpose, asked))
        except TooLong as error:
            if asked is not question:
                raise
            asked = memory.shorter(question)
            fit.log.write("memory", "a fork is asked again for less", level="warn", cause=str(error))
        except errors.ContextOverflow as error:
            if not retries:
                raise
            retries -= 1
            prefix = _shorter(prefix, error, fit), ()


async def _ask(fit: Fit, prefix: Prefix, purpose: str, question: Message) -> str:
    """Return the text of a fork's answer with secrets redacted. Raises `errors.ModelError`, and `TooLong` if it is cut off."""
    history, current = prefix
    models = fit.models
    shared = view.render(
        model=models.name,
        max_tokens=fit.budget().fork(FORK_TOKENS + models.sent(purpose).room),
        system=fit.frame.system,
        tools=fit.tools,
        history=history,
        injected=(),
        current=current,
    )
    # The question follows the last cache breakpoint, since no other request contains it.
    asked = models.fitted(replace(shared, messages=(*shared.messages, question), purpose=purpose), purpose)
    view.validate(asked)
    reply = await reply_of(models.model.stream(asked))
    models.learn(asked, reply)
    if reply.stop_reason in LENGTH:
        raise TooLong(f"cut off after {reply.usage.output_tokens} tokens: {reply.stop_reason}")
    return fit.agent.redact(blocks.plain_text(reply.content))


def _shorter(prefix: Prefix, error: errors.ContextOverflow, fit: Fit) -> list[Message]:
    """Return the prefix without the oldest third of its tokens and without thinking. The rest begins with a person's message. A
    summary at the beginning stays, because nothing else covers the messages that it replaced. Raises `error` if nothing would
    be left.
    """
    fit.models.windows.refused(fit.models.name, error)
    messages = [one for part in prefix for one in part]
    begins = int(fit.context.head is not None)
    gone, most = 0.0, max(1.0, fit.measure(messages) / 3)
    for at, message in enumerate(messages[begins:], begins):
        results = message["content"][0].get("type") == "tool_result"
        if gone >= most and message["role"] == "user" and not results:
            return blocks.without_thinking([*messages[:begins], *messages[at:]])
        gone += fit.measure([message])
    raise error


# ------------------------------------------------------------ restored working state

MOST_TOKENS, SHARE, SOFT_SHARE = 50_000, 0.1, 4
"""The restored state has at most 50,000 tokens, at most a tenth of the context window, and at most a quarter of the soft limit."""
TOOLS, SAID = 0.5, 0.2
"""Max shares of the restored state's tokens: first for tool definitions, then for usage notes of MCP servers."""
READ = "read_file"
_ARTIFACTS, _SKILLS, _TOOLS, _FILES = "artifacts", "skills", "tools", "files"
_MOST: Mapping[str, int] = {_ARTIFACTS: 20, _SKILLS: 20, _TOOLS: 20, _FILES: 3}
"""Max number of restored artifacts, skills, tools and files. The newest ones are restored."""


async def _working_state(
    fit: Fit, dropped: Sequence[Message], kept: Sequence[Message], most: float, nonce: str
) -> tuple[list[Json], dict[str, dict[str, Any]]]:
    """Return the blocks to restore after a summary has replaced the messages `dropped`, which include any earlier summary, and
    the names of what the model used. The blocks have at most `most` tokens, and leave out what the messages `kept` show.
    Skills and files are read again with the permissions of the person who wrote last. That person is not asked for permission.
    """
    deps, model, estimator, budget = fit.agent, fit.models.name, fit.models.estimator, fit.budget()
    most = min(most, budget.share(SHARE, MOST_TOKENS), budget.soft // SOFT_SHARE)
    names, seen = _names(dropped, kept), view.definitions(kept)
    found = {
        name: tool
        for name, tool in view.definitions(dropped).items()
        if name not in seen and deps.registry.get(name) is not None
    }
    tools = _newest_fitting(found, TOOLS * most, lambda tool: estimator.tokens(model, (tool,)))
    names[_TOOLS] = {name: None for name in names[_TOOLS] if name not in tools}
    known, declared = view.server_notes(kept), [*tools, *seen]
    # A server's usage note is left out if none of its tools is restored. The note is shown again when a tool is found.
    notes = {
        server: words
        for server, words in view.server_notes(dropped).items()
        if server not in known and any(one.startswith(f"mcp__{server}__") for one in declared)
    }
    size = partial(estimator.text, model)
    said = _newest_fitting(notes, SAID * most, size)
    left = most - estimator.tokens(model, tools.values()) - sum(map(size, said.values()))
    user_id, channel = (
        (person.user_id, person.channel) if (person := telemetry.current().person) else (None, None)
    )
    reader = ToolExecutionContext(
        fit.chat.key, "", user_id, None, None, channel=channel, approvals=lambda _: Unattended()
    )
    with tool_scope(reader):
        skills = await _read(deps, skills_load.name, {one: {"name": one} for one in names[_SKILLS]})
        files = await _read(deps, READ, names[_FILES])
    pointers = [f"- artifact {name} ({count} lines and more)" for name, count in names[_ARTIFACTS].items()]
    title = f"Large results and files from before, to be read with {result_limits.READER}:"
    again = f"Tools found before; find again with {tool_search.name} what you need"
    sections = {
        _ARTIFACTS: ["\n".join([title, *pointers])] if pointers else [],
        _SKILLS: _texts("The skill {}, loaded before", "Skills loaded before; load", names[_SKILLS], skills),
        _TOOLS: [f"{again}: {', '.join(names[_TOOLS])}"] if names[_TOOLS] else [],
        _FILES: _texts(
            "The file {}, read before, as it is now", "Files read before; read", names[_FILES], files
        ),
    }
    origin = reduce(or_, [one.origin or NOBODYS for one in files.values()], NOBODYS)
    state = [
        memory.restored(words, nonce) | ({ORIGIN: origin.packed()} if name == _FILES else {})
        for name, words in assemble(sections, left, size).items()
    ]
    if said:
        state.append(view.servers_block(said, nonce))
    if tools:
        words = f"Tools found before, which you can call: {', '.join(tools)}"
        about = {ORIGIN: ANYBODYS.packed(), view.TOOLS: list(tools.values())}
        state.append(memory.restored(words, nonce) | about)
    return state, names


def _newest_fitting(found: Mapping[str, T], most: float, size: Callable[[T], float]) -> dict[str, T]:
    """Return the newest entries that have at most `most` tokens together, oldest first. Skip entries that do not fit any more."""
    chosen: dict[str, T] = {}
    for name, value in reversed(list(found.items())):
        if (cost := size(value)) <= most:
            chosen[name] = value
            most -= cost
    return dict(reversed(chosen.items()))


def _texts(title: str, again: str, names: Iterable[str], read: Mapping[str, ToolResult]) -> list[str]:
    """Return versions of a section, longest first. Each version has the newest texts in full, and the names of older texts."""
    newest, forms = list(names)[::-1], list[str]()
    shown = [one for one in newest if one in read]
    for count in range(len(shown), -1, -1):
        texts = [f"{title.format(one)}:\n\n{read[one].content}" for one in shown[:count]]
        if others := [one for one in newest if one not in shown[:count]]:
            texts.append(f"{again} again what you need: {', '.join(others)}")
        forms.append("\n\n".join(texts))
    return forms


async def _read(deps: AgentDeps, tool: str, inputs: Mapping[str, Json]) -> dict[str, ToolResult]:
    """Call a tool for each name, and return the results, keyed by name. Failed and untrusted results are left out."""
    calls = [ToolCall(f"again_{name}", tool, arguments) for name, arguments in inputs.items()]
    results = await deps.dispatcher.run(calls) if calls else []
    return {
        name: result
        for name, result in zip(inputs, results, strict=True)
        if not result.failed and (result.origin or NOBODYS).taint < Taint.FOREIGN
    }


def _names(dropped: Sequence[Message], kept: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """Return the tools, skills, files and artifacts that appear only in `dropped`, keyed by kind and name, newest last."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in _MOST}
    still = {(kind, name) for kind, name, _ in _used(kept)}
    for kind, name, about in _used(dropped):
        found[kind].pop(name, None)  # a later use makes the name newer
        if (kind, name) not in still:
            found[kind][name] = about
    return {kind: dict(list(names.items())[-_MOST[kind] :]) for kind, names in found.items()}


def _used(messages: Sequence[Message]) -> Iterator[tuple[str, str, Any]]:
    calls = {call.id: call for message in messages for call in blocks.tool_calls(message["content"])}
    for message in messages:
        for kind, names in message["content"][0].get(memory.WORKED_WITH, {}).items():
            yield from ((kind, name, about) for name, about in names.items())
        yield from ((_ARTIFACTS, pointer, lines) for pointer, lines in view.pointers(message))
        yield from ((_TOOLS, name, None) for name in view.definitions([message]))
        for block in message["content"]:
            if block.get("type") != "tool_result" or not isinstance(block.get("content"), str):
                continue
            result = ToolResult.of(block)
            foreign = result.origin is not None and result.origin.taint is Taint.FOREIGN
            if result.failed or (foreign and result.omission is None):
                continue  # an untrusted result is not restored; only its artifact is named
            call = calls.get(result.call_id, ToolCall(result.call_id, ""))
            if (left_out := result.omission) is not None:
                yield _ARTIFACTS, left_out.artifact, left_out.lines
            elif call.name == READ and isinstance(path := call.input.get("path"), str):
                # Large results are already listed among the artifacts.
                yield _FILES, path, call.input
            if call.name == skills_load.name and isinstance(name := call.input.get("name"), str):
                yield _SKILLS, name, None
