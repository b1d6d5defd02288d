"""Records the requests of a task line by line beside its transcript, so that their exact bytes can be rebuilt
(`bot.agent.subagents.rebuilding`).

Each line has what has changed since the one before it: `kept` messages of the task stay, `said` follow, and `loaded` are
older ones that appear. So it makes no difference why a message is shown in other words from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot import errors
from bot.agent import request_log
from bot.agent.deps import AgentDeps
from bot.agent.request_log import NO_PREFIX
from bot.agent.subagents.loading import Loading
from bot.agent.subagents.report import Order
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply, ModelRequest
from bot.history.tasks import HEAD


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of a task's requests: `prefix` is shared with the conversation (() where nothing is), `first` its own.

    `after` is the line of the transcript up to which the prefix can be made again; its last message stands in no line.
    """

    system: Sequence[Json]
    tools: Sequence[Json]
    prefix: tuple[Message, ...]
    first: Message
    after: str | None = None


class Record:
    """The lines of one task. A disk that refuses one ends them: the task goes on, and what was asked before is known."""

    def __init__(self, order: Order, start: Start, deps: AgentDeps) -> None:
        self._order = order
        self._start = start
        self._deps = deps
        self._before = NO_PREFIX
        self._known: list[Message] = []
        self._loads = 0
        self._calls = 0
        self._begun = False
        self._over = deps.artifacts is None

    async def has(self, own: Sequence[Message], loading: Loading) -> None:
        """These are its messages now, and its transcript is on disk."""
        if self._over:
            return
        head = {} if self._begun else await self._head()
        if changes := self._changes(own, loading):
            await self._write(head | changes)

    async def _head(self) -> Json:
        self._begun = True
        start, deps, order = self._start, self._deps, self._order
        self._before = deps.framing.frame(start.system, start.tools)
        # What stands before a fork is its chat's and on file with that; all other tasks have the same.
        own: Mapping[str, Any] = {} if start.prefix else self._before.own
        try:
            await deps.transcript.keep({**self._before.shared, **own})
        except errors.StorageError as error:
            self._refused(error)
        told: Json = {"id": order.id, "callId": order.call_id, "mode": order.mode, "label": order.label}
        if start.prefix:
            told |= {"after": start.after, "placed": start.prefix[-1]}
        return {"v": 1, "ts": int(deps.clock.now() * 1000), HEAD: told}

    async def asks(
        self,
        request: ModelRequest,
        own: Sequence[Message],
        loading: Loading,
        *,
        tail: Sequence[Message],
        paused: bool,
    ) -> None:
        """The model is about to be asked: what it is asked is on file before."""
        # Where the beginning could not be written, nothing is: half of it would look like the whole.
        self._over |= not self._begun
        if self._over:
            return
        self._calls += 1
        step = f"{self._order.id}:{self._calls}"
        told = request_log.record(request, step, self._before, tail=tail, paused=paused)
        await self._write(self._changes(own, loading) | {request_log.KEY: told})

    async def answered(self, reply: ModelReply) -> None:
        """It has answered; what that comes to in messages is told by `has`."""
        told = {"stopReason": reply.stop_reason, "cut": sorted(reply.cut)} | request_log.spent(reply)
        await self._write({request_log.ANSWERED: told})

    def _changes(self, own: Sequence[Message], loading: Loading) -> Json:
        kept, known = 0, self._known
        while kept < min(len(known), len(own)) and known[kept] == own[kept]:
            kept += 1
        loaded = loading.records[self._loads :]
        changed = kept < len(known) or kept < len(own)
        self._known, self._loads = list(own), len(loading.records)
        return ({"kept": kept, "said": list(own[kept:])} if changed else {}) | (
            {"loaded": loaded} if loaded else {}
        )

    async def _write(self, line: Json) -> None:
        artifacts = self._deps.artifacts
        if self._over or artifacts is None:
            return
        try:
            await artifacts.note(self._order.id, self._order.chat_key, [line])
        except errors.StorageError as error:
            self._over = True
            self._refused(error)

    def _refused(self, error: errors.StorageError) -> None:
        self._deps.log.write(
            "storage", "what a task asks the model is not kept", level="error", cause=str(error)
        )
