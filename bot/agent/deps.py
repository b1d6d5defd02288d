"""`AgentDeps`: the ports, settings and services that every turn uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bot.agent.subagents.limits import TaskLimits
from bot.contracts.approvals import Approvals, Unattended
from bot.contracts.archive import Archive
from bot.contracts.artifacts import Artifacts
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Ids, Log, NoOperators, OperatorNotices, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.journal import Steps
from bot.contracts.manner import Effort, Manner, SentManner
from bot.contracts.memory_files import MemoryFiles
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.contracts.tasks import NullTaskEvents, TaskEvents
from bot.core import blocks
from bot.core.assembly import LEAST_BUDGET, MOST_BUDGET, SHARE, Frozen, Prompts
from bot.core.budget import SOFT_TOKENS, Budget
from bot.core.compaction import Policy
from bot.core.estimate import Estimator
from bot.core.memory import in_plain_words
from bot.history.memory.memories import Memories
from bot.history.retention import Retention
from bot.history.transcript.requests import RequestLog
from bot.history.transcript.store import Transcript
from bot.llm.prices import PriceTable
from bot.llm.windows import ContextWindows
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry
from bot.vetting import Vetting
from bot.words import sentence

TOOLS = 0.5
"""The part of a window that definitions of tools may take."""


@dataclass(slots=True)
class ModelDeps:
    """The model, under the names by which a chat asks it, and what is known of each name."""

    model: Model
    default_model: str
    """The model that answers where no other one was chosen."""
    windows: ContextWindows
    """Context windows and output limits of models, in tokens."""
    fast_model: str = ""
    """The model that brings results together; "": the one that answers."""
    estimator: Estimator = field(default_factory=Estimator)
    """Tokens as the models count them."""
    prices: PriceTable = field(default_factory=PriceTable)
    manner: Manner = field(default_factory=Manner)
    """Effort and thinking of all that asks a model."""
    purposes: Mapping[str, Manner] = field(default_factory=dict)
    """What is another one for a purpose."""
    chosen: str | None = None
    """The model that an operator chose for the chat; None where ship.json says it."""
    chosen_effort: Effort | None = None
    """The same of the effort."""
    purpose: str = "turn"
    """What the turn that runs is for: `overheard` where nobody has spoken to the bot."""

    @property
    def name(self) -> str:
        """The model that answers."""
        return self.of(self.purpose).model or self.chosen or self.default_model

    def of(self, purpose: str) -> Manner:
        """Return the effort, thinking and model for a purpose."""
        own = self.purposes.get(purpose, Manner())
        effort = own.effort or self.chosen_effort or self.manner.effort
        return Manner(effort, own.thinking or self.manner.thinking, own.model)

    def sent(self, purpose: str | None = None) -> SentManner:
        """Effort and thinking as they are sent for a purpose; None is that of the turn."""
        manner = self.of(purpose or self.purpose)
        return manner.sent(partial(self.windows.takes, manner.model or self.name))

    def fitted(self, request: ModelRequest, purpose: str | None = None) -> ModelRequest:
        """The request with the model, the effort and the thinking of its purpose. Another model than the chat's gets nothing that
        only that one reads.
        """
        sent, model = self.sent(purpose), self.of(purpose or self.purpose).model or self.name
        if model != request.model:
            most = self.windows.max_output(model) or request.max_tokens
            messages = blocks.without_thinking(map(in_plain_words, request.messages))
            request = replace(
                request, model=model, messages=messages, max_tokens=min(request.max_tokens, most)
            )
        return replace(request, effort=sent.effort, thinking=sent.thinking)

    def learn(self, request: ModelRequest, reply: ModelReply) -> None:
        """Learn from an answer how its model counts, and that so much does fit."""
        if reply.note:
            return  # of another model
        usage = reply.usage
        self.estimator.observe(request, usage)
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        self.windows.fitted(request.model, prompt)


@dataclass(frozen=True, slots=True)
class HistoryDeps:
    """The stores in which the agent keeps what was said and done."""

    archive: Archive
    transcript: Transcript
    requests: RequestLog
    """Has what the model is asked (`bot.agent.recording`)."""
    steps: Steps
    artifacts: Artifacts
    """Has the transcripts of tasks."""
    retention: Retention
    """Days for which chats are kept."""
    memories: Memories | None = None
    """Session memories by chat; None if memory is off."""
    notes: MemoryFiles | None = None
    """The files of the `memory` tool, which a conversation begins with; None if it does not."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes at which a chat's view changes, and the limits of its tasks."""

    max_messages: int = 60
    max_injected: int = 120
    soft_tokens: int = SOFT_TOKENS
    mask_threshold: int = 8_000
    """Tokens above which old tool results are masked."""
    keep_observations: int = 4
    """So many of the newest tool results are not."""
    compaction: Policy = field(default_factory=Policy)
    tasks: TaskLimits = field(default_factory=TaskLimits)


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """The agent's parts, put together in `bot.composition`. `rules` are the output rules of each channel."""

    models: ModelDeps
    history: HistoryDeps
    registry: Registry
    dispatcher: Dispatcher
    prompts: Prompts
    root: Path
    clock: Clock
    ids: Ids
    log: Log
    vetting: Vetting
    """Decides which instruction files hold."""
    limits: Limits = field(default_factory=Limits)
    redact: Redact = str
    settled: Redact = str
    """Of words that were cut off, those that cannot be the beginning of a secret."""
    rules: Mapping[str, str] = field(default_factory=dict)
    task_events: TaskEvents = field(default_factory=NullTaskEvents)
    approvals: Approvals = field(default_factory=Unattended)
    operators: OperatorNotices = field(default_factory=NoOperators)

    def of_chat(self) -> AgentDeps:
        """The same for one chat, for which a model can be chosen."""
        return replace(self, models=replace(self.models, chosen=None))

    def declared(self, registry: Registry | None = None) -> tuple[Json, ...]:
        """The definitions of tools that requests have: all, or in a small window as much as half of it holds."""
        forms = (registry or self.registry).forms
        window = self.models.windows.window(self.models.name)
        if window is None:
            return forms[0]
        fitting = (
            one for one in forms if self.models.estimator.frame(self.models.name, (), one) <= window * TOOLS
        )
        return next(fitting, forms[-1])

    def budget(self) -> Budget:
        """The limits of requests to the model that answers."""
        name, windows = self.models.name, self.models.windows
        return Budget(
            windows.window(name),
            windows.max_tokens(name, self.models.sent().room),
            self.limits.soft_tokens,
            windows.max_output(name),
        )

    async def freeze(self, chat_key: ChatKey, channel: str | None) -> Frozen:
        """The prompt of a chat for one epoch, within its part of the window."""
        tools = self.models.estimator.frame(self.models.name, (), self.declared())
        room = self.budget().share(SHARE, MOST_BUDGET) - tools
        frozen = await self.prompts.freeze(
            chat_key,
            channel,
            self.models.name,
            budget=max(LEAST_BUDGET, room),
            size=lambda words: self.models.estimator.text(self.models.name, words),
        )
        if frozen.cut:
            told = sentence("operators.instructions", names=", ".join(frozen.cut))
            self.operators.tell(f"instructions {frozen.cut}", told, every=86_400.0)
        return frozen
