"""Reports running tool calls to the watch that shows people long work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.contracts.base import Json
from bot.contracts.tools import Effect, ToolWatch
from bot.tools import context
from bot.tools.dispatch import CallWrapper
from bot.tools.registry import Registry

_UNWATCHED: frozenset[Effect] = frozenset({"message", "delegate"})


@dataclass(frozen=True, slots=True)
class CallWatcher:
    """A `CallWrapper` around another one. A call counts from when it runs, not while it waits for an approval. Calls
    inside a task are reported with the task.
    """

    inner: CallWrapper
    registry: Registry
    watch: ToolWatch

    async def __call__(self, call: Json, run: Callable[[], Awaitable[Json]]) -> Json:
        async def watched() -> Json:
            turn, failed = context.current(), True
            self.watch.began(turn.request_id, call["id"], call["name"])
            try:
                result = await run()
                failed = bool(result.get("is_error"))
                return result
            finally:
                self.watch.ended(turn.request_id, call["id"], failed=failed)

        tool = self.registry.get(call["name"])
        alone = tool is None or not tool.effects.isdisjoint(_UNWATCHED) or context.current().tasks is None
        return await self.inner(call, run if alone else watched)
