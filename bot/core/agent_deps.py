"""`AgentDeps`: the ports, settings and services that every turn uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.contracts.approvals import Approvals, Unattended
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Ids, Log, OperatorNotices, Redact
from bot.contracts.identity import ChatKey
from bot.core.archive_files import ChatStore
from bot.core.assembly import LEAST_BUDGET, MOST_BUDGET, SHARE, Frozen, Prompts
from bot.core.models import Budget, ContextLimits, ModelDeps
from bot.core.tasks.limits import TaskEvent, TaskLimits
from bot.storage.artifacts import ArtifactStore
from bot.storage.memories import Memories
from bot.storage.notes import NoteStore
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry
from bot.vetting import Vetting
from bot.words import sentence


@dataclass(frozen=True, slots=True)
class Limits(ContextLimits):
    """Context limits of a turn, together with the limits of a chat's subagent tasks."""

    tasks: TaskLimits = field(default_factory=TaskLimits)


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """Ports, settings and services of the agent, built in `bot.composition`. `rules` maps a channel to its
    output rules.
    """

    models: ModelDeps
    archive: ChatStore
    artifacts: ArtifactStore
    """Artifact store, which holds the transcripts of subagent tasks too."""
    registry: Registry
    dispatcher: Dispatcher
    prompts: Prompts
    root: Path
    clock: Clock
    ids: Ids
    log: Log
    operators: OperatorNotices
    vetting: Vetting
    """Check that decides which instruction files the prompt may use."""
    memories: Memories | None = None
    """Session memories by chat; None if the session memory is off."""
    notes: NoteStore | None = None
    """Files of the `memory` tool that begin a conversation's prompt; None if there is no `memory` tool."""
    limits: Limits = field(default_factory=Limits)
    redact: Redact = str
    settled: Redact = str
    """Function that returns the part of an unfinished text that cannot be the beginning of a secret."""
    rules: Mapping[str, str] = field(default_factory=dict)
    task_events: Callable[[TaskEvent], object] = lambda _: None
    """Callback that receives the events of subagent tasks."""
    approvals: Approvals = field(default_factory=Unattended)

    def declared(self, registry: Registry | None = None) -> tuple[Json, ...]:
        """Return the tool definitions of a request: all of them, or in a small context window those that fit
        into half of the window.
        """
        return self.models.declared((registry or self.registry).forms)

    def budget(self) -> Budget:
        """Return the token limits of the model that answers."""
        return self.models.budget(self.limits.soft_tokens)

    async def freeze(self, chat_key: ChatKey, channel: str | None) -> Frozen:
        """Build the prompt of a chat for one epoch, that is until the prompt changes, within the prompt's
        share of the context window.
        """
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
