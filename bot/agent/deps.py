"""`AgentDeps`: the ports, settings and services that every turn uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.contracts.approvals import Approvals, Unattended
from bot.contracts.archive import Archive
from bot.contracts.artifacts import Artifacts
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Ids, Log, NoOperators, OperatorNotices, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.journal import Steps
from bot.contracts.memory_files import MemoryFiles
from bot.contracts.tasks import NullTaskEvents, TaskEvents
from bot.core.assembly import LEAST_BUDGET, MOST_BUDGET, SHARE, Frozen, Prompts
from bot.core.budget import Budget
from bot.core.models import ContextLimits, ModelDeps
from bot.core.notes.memories import Memories
from bot.core.tasks.limits import TaskLimits
from bot.history.retention import Retention
from bot.history.transcript.requests import RequestLog
from bot.history.transcript.store import Transcript
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry
from bot.vetting import Vetting
from bot.words import sentence


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
class Limits(ContextLimits):
    """The same, with the limits of a chat's tasks."""

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
        return self.models.declared((registry or self.registry).forms)

    def budget(self) -> Budget:
        """The limits of requests to the model that answers."""
        return self.models.budget(self.limits.soft_tokens)

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
            system_role=self.models.windows.takes_system(self.models.name),
        )
        if frozen.cut:
            told = sentence("operators.instructions", names=", ".join(frozen.cut))
            self.operators.tell(f"instructions {frozen.cut}", told, every=86_400.0)
        return frozen
