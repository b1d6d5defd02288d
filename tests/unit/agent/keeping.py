"""A model that answers turns as the script does, and forks as a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from bot.contracts.model import ModelReply, ModelRequest, Usage
from bot.core.estimate import Estimator
from bot.core.memory import SessionMemory
from bot.telemetry import context
from bot.testing.model import reply, text
from tests.unit.agent.conftest import Bench

SUMMARY = (
    "<analysis>hm</analysis><summary>## What happened\n- 我们谈了船\n## Facts\n- the ship is called 海\n\
## Decisions\n(none)\n## Preferences\n(none)\n## Open tasks\n- paint it\n</summary>"
)
MEMORY = SessionMemory(facts=("the ship is called 海",), open_tasks=("paint it",))


class Answers:
    """Turns are echoed; forks get what `memory` and `summary` say, or fail with it."""

    def __init__(self, bench: Bench) -> None:
        self.memory: Any = reply(text(MEMORY.markdown))
        self.summary: Any = reply(text(SUMMARY))
        self.reads = False
        self.persons: list[tuple[str, str | None]] = []
        """Purpose of each call, and who caused it."""
        self.hold: dict[str, asyncio.Event] = {}
        self.begun: dict[str, asyncio.Event] = {"memory": asyncio.Event(), "compaction": asyncio.Event()}
        self.bench = bench
        self._turns = bench.model.stream
        bench.model.stream = self.stream  # type: ignore[method-assign]

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.persons.append((request.purpose, context.person()))
        if request.purpose == "turn":
            async for event in self._turns(request):
                if isinstance(event, ModelReply) and self.reads:
                    read = Estimator().request(request)
                    yield replace(event, usage=Usage(cache_read_tokens=read))
                else:
                    yield event
            return
        self.bench.model.requests.append(request)
        self.begun[request.purpose].set()
        if request.purpose in self.hold:
            await self.hold[request.purpose].wait()
        answer = self.memory if request.purpose == "memory" else self.summary
        if isinstance(answer, Exception):
            raise answer
        yield answer

    def forks(self, purpose: str) -> int:
        return sum(request.purpose == purpose for request in self.bench.model.requests)
