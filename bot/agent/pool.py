"""`AgentPool`: the agents of all conversations; idle ones are put away and come back from disk."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bot import errors
from bot.agent.deps import AgentDeps
from bot.agent.runtime import AgentRuntime
from bot.agent.sessions import Sessions
from bot.contracts.agent import (
    ChatStats,
    CompactResult,
    LastTurn,
    ModelInfo,
    Reply,
    SessionChange,
    SessionInfo,
    TurnOutcome,
    TurnRequest,
)
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.contracts.manner import Effort
from bot.contracts.tools import ToolCall
from bot.contracts.transcript import TranscriptLine
from bot.core import quotes
from bot.features.claims.checked import CheckedReply
from bot.features.claims.performed_actions import (
    PerformedAction,
    PerformedActions,
    action_of,
    recorded_actions,
)
from bot.identity_cache import MessageFact, forget_messages
from bot.sizes import size_of

BUDGET = 256 * 1024 * 1024
OVERHEAD = 16 * 1024
"""Bytes of a runtime beside the messages in its store."""
SHORT_IDLE = 60.0
"""Seconds after which a conversation counts as idle while memory is short."""
MESSAGE_BYTES = MessageFact[Message, int](size_of)


class AgentPool:
    """`contracts.agent.Agent`: a runtime for each chatKey, made on demand. Together they stay within `budget` bytes, as
    far as the idle ones reach: those used least recently go first, and their next turn fills them from disk.
    """

    def __init__(self, deps: AgentDeps, *, budget: int = BUDGET) -> None:
        self._deps = deps
        self._budget = budget
        self.runtimes: OrderedDict[ChatKey, AgentRuntime] = OrderedDict()
        self.weights: dict[ChatKey, int] = {}
        self._weighed: dict[ChatKey, tuple[Message, ...]] = {}
        self.weight = 0
        self._lent: Counter[ChatKey] = Counter()
        self._stale: set[ChatKey] = set()
        """Conversations in memory that were made with other deps."""

    def __len__(self) -> int:
        """Number of conversations in memory."""
        return len(self.runtimes)

    def holds(self, chat_key: ChatKey) -> bool:
        """True if a conversation is in memory. For any thread."""
        return chat_key in self.runtimes

    async def use(self, deps: AgentDeps) -> None:
        """Let turns that begin from now on have these: conversations come back from disk with them once they are idle."""
        self._deps = deps
        self._stale = set(self.runtimes)
        for key in list(self._stale):
            await self._renew(key)

    async def _renew(self, key: ChatKey) -> None:
        """Put away a conversation that was made with other deps, unless a turn runs in it."""
        if key in self._stale and key not in self._lent:
            runtime = self.runtimes[key]
            await runtime.stop_background()
            await runtime.flush()
            if key in self._stale and self._may_go(key, self.runtimes[key]):
                self._forget(key)

    @property
    def deps(self) -> AgentDeps:
        """The collaborators that turns get which begin now."""
        return self._deps

    async def run(self, request: TurnRequest) -> TurnOutcome:
        try:
            with self._lend(request.chat_key) as runtime, recorded_actions() as done:
                if request.reply is not None:
                    request = replace(request, reply=self._checked(request, request.reply, done))
                return await runtime.run(request)
        finally:
            await self._renew(request.chat_key)

    def _checked(self, request: TurnRequest, reply: Reply, done: PerformedActions) -> Reply:
        """The way back to the chat, behind a look at what is claimed on it."""
        deps = self._deps

        def person() -> str:
            inbounds = (request.inbound, *request.also)
            return request.prompt or "\n".join(one.text for one in inbounds if one is not None)

        async def recorded() -> list[PerformedAction]:
            try:
                steps = await deps.history.steps.steps(request.request_id)
            except errors.StorageError:
                return []
            return [
                action_of(
                    ToolCall(step.id, step.name),
                    deps.registry,
                    failed=bool((step.result or {}).get("is_error")),
                )
                for step in steps
                if step.kind == "tool" and step.ended_at is not None
            ]

        return CheckedReply(
            reply, done, person=person, recorded=recorded, registry=deps.registry, log=deps.log
        )

    async def cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        with self._lend(chat_key) as runtime:
            return await runtime.cut_off()

    async def stop(self, chat_key: ChatKey) -> bool:
        runtime = self.runtimes.get(chat_key)
        return runtime.stop() if runtime is not None else False

    async def reset(self, chat_key: ChatKey) -> int:
        with self._lend(chat_key) as runtime:
            return await runtime.reset()

    async def compact(self, chat_key: ChatKey, focus: str = "") -> CompactResult:
        with self._lend(chat_key) as runtime:
            return await runtime.compact(focus)

    async def stats(self, chat_key: ChatKey) -> ChatStats:
        with self._lend(chat_key) as runtime:
            return await runtime.stats()

    async def history(self, chat_key: ChatKey) -> str:
        with self._lend(chat_key) as runtime:
            return await runtime.history()

    async def undo(self, chat_key: ChatKey) -> str | None:
        with self._lend(chat_key) as runtime:
            return await runtime.undo()

    async def quoting(self, chat_key: ChatKey, turns: Sequence[str], message_id: str) -> list[str]:
        told: set[str | None] = set()

        def quotes_it(line: TranscriptLine) -> bool:
            told.add(line.request_id)
            return line.message is not None and message_id in quotes.ids(line.message)

        if (runtime := self.runtimes.get(chat_key)) is not None:
            await runtime.flush()
        lines = await self._deps.history.transcript.telling(chat_key, turns, quotes_it)
        found = {line.request_id for line in lines if quotes_it(line)}
        return [turn for turn in turns if turn in found or turn not in told]

    async def forget(self, chat_key: ChatKey) -> None:
        with self._lend(chat_key) as runtime:
            await runtime.forget()

    async def sessions(self, chat_key: ChatKey) -> list[SessionInfo]:
        with self._lend(chat_key) as runtime:
            return await Sessions(runtime, self._deps).listed()

    async def resume(self, chat_key: ChatKey, session: str) -> SessionChange:
        with self._lend(chat_key) as runtime:
            change = await Sessions(runtime, self._deps).resume(session)
        return self._renewed(chat_key, change)

    async def fork(self, chat_key: ChatKey, *, request_id: str | None = None, back: int = 0) -> SessionChange:
        with self._lend(chat_key) as runtime:
            change = await Sessions(runtime, self._deps).fork(request_id, back)
        return self._renewed(chat_key, change)

    def _renewed(self, chat_key: ChatKey, change: SessionChange) -> SessionChange:
        """Forget the runtime if another session has become the current one: the next turn fills a new one from it."""
        if change.outcome == "done" and chat_key in self.runtimes:
            self._forget(chat_key)
        return change

    async def restart_model_call(self, chat_key: ChatKey) -> bool:
        runtime = self.runtimes.get(chat_key)
        return runtime is not None and runtime.restart_model_call()

    async def last_turn(self, chat_key: ChatKey) -> LastTurn | None:
        with self._lend(chat_key) as runtime:
            return await runtime.last_turn()

    async def describe(self, chat_key: ChatKey) -> ModelInfo:
        with self._lend(chat_key) as runtime:
            return await runtime.describe()

    async def choose_model(self, chat_key: ChatKey, model: str | None, request_id: str) -> ModelInfo:
        with self._lend(chat_key) as runtime:
            return await runtime.choose(model, request_id)

    async def choose_effort(self, chat_key: ChatKey, effort: Effort | None, request_id: str) -> ModelInfo:
        with self._lend(chat_key) as runtime:
            return await runtime.choose_effort(effort, request_id)

    async def tend(self) -> None:
        """Compact what has been quiet for so long that it is about to leave the provider's cache."""
        for runtime in list(self.runtimes.values()):
            if not runtime.at_work:
                runtime.compactor.look()

    async def close(self) -> None:
        """Give up what goes on beside the turns, then write what the disk refused."""
        for runtime in list(self.runtimes.values()):
            await runtime.stop_background()
        await self.flush()

    async def flush(self) -> None:
        """Try again to write what the disk refused in any chat."""
        for runtime in [one for one in self.runtimes.values() if one.has_unwritten_lines]:
            await runtime.flush()

    def evict(self, idle_seconds: float) -> int:
        """Forget runtimes that have been idle; returns how many went."""
        limit = self._deps.clock.monotonic() - idle_seconds
        idle = [key for key, one in self.runtimes.items() if one.last_used < limit and self._may_go(key, one)]
        for key in idle:
            self._forget(key)
        return len(idle)

    def shrink(self) -> None:
        """Memory is short: conversations that have been quiet for a minute go, and half of what is left, with what is
        remembered of messages.
        """
        self.evict(SHORT_IDLE)
        self._fit(self.weight // 2)
        forget_messages()

    @contextmanager
    def _lend(self, chat_key: ChatKey) -> Iterator[AgentRuntime]:
        """A runtime that stays as long as it is used: put away meanwhile, a second one would be made beside it."""
        runtime = self.runtime(chat_key)
        self._lent[chat_key] += 1
        try:
            yield runtime
        finally:
            self._lent[chat_key] -= 1
            if not self._lent[chat_key]:
                del self._lent[chat_key]
            if self.runtimes.get(chat_key) is runtime:  # not where another session took its place
                self._weigh(chat_key, runtime)
            self._fit(self._budget)

    def runtime(self, chat_key: ChatKey) -> AgentRuntime:
        """The runtime of a chat: the one in memory, else a new one, whose store is filled by its first use."""
        if chat_key in self._stale and self._may_go(chat_key, self.runtimes[chat_key]):
            self._forget(chat_key)
        if chat_key not in self.runtimes:
            self.runtimes[chat_key] = AgentRuntime(chat_key, self._deps)
        self.runtimes.move_to_end(chat_key)
        return self.runtimes[chat_key]

    def _weigh(self, chat_key: ChatKey, runtime: AgentRuntime) -> None:
        shown = runtime.store.view()
        if self._weighed.get(chat_key) is shown:
            return  # looked at, and not changed: the same in this moment as it was
        self._weighed[chat_key] = shown
        weight = OVERHEAD + sum(MESSAGE_BYTES.each(runtime.store.messages()))
        self.weight += weight - self.weights.get(chat_key, 0)
        self.weights[chat_key] = weight

    def _fit(self, most: int) -> None:
        if self.weight <= most:
            return
        for key, runtime in list(self.runtimes.items()):
            if self._may_go(key, runtime):
                self._forget(key)
                if self.weight <= most:
                    return

    def _may_go(self, key: ChatKey, runtime: AgentRuntime) -> bool:
        return not (runtime.busy or runtime.has_unwritten_lines or key in self._lent)

    def _forget(self, key: ChatKey) -> None:
        del self.runtimes[key]
        self._stale.discard(key)
        self._weighed.pop(key, None)
        self.weight -= self.weights.pop(key, 0)
