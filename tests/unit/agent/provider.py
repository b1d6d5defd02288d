"""A model with the provider's cache, its rules for requests and its bond between thinking and conversation."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest, Usage
from bot.contracts.tools import Effect
from bot.llm.client import body_of
from bot.testing import anthropic_cache as cache
from bot.testing import anthropic_rules as rules
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import reply, text, tool_use

MODEL = "claude-sonnet-5-5"
EPOCHS = frozenset({"compaction", "masking", "injection"})


@dataclass
class Call:
    """One request as the provider saw it."""

    body: Json
    read: int
    """Tokens that came from the cache."""
    prompt: int
    extends: bool
    """Whether the request before it is its beginning, byte for byte."""
    declared: bool
    """Whether an epoch began since then."""
    cold: bool


class Provider:
    """`contracts.model.Model` that answers with `script` and refuses what the provider would refuse."""

    def __init__(self, clock: FakeClock, log: MemoryLog, script: Callable[[Json], ModelReply]) -> None:
        self.calls: list[Call] = []
        self.script = script
        self._clock = clock
        self._log = log
        self._cache = cache.PromptCache(clock, lambda _: 256)
        self._binding = cache.Binding()
        self._leave = rules.Leave(types={"thinking"})
        self._before: list[str] = []
        self._asked = float("-inf")
        self._told = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        body = json.loads(json.dumps(body_of(request), ensure_ascii=False))
        rules.check(body, self._leave)
        cache.check_breakpoints(body)
        self._binding.check(body)
        usage, keep = self._cache.look(body, cache.count_characters)
        parts = self._cache.parts
        digests = [part.digest for part in parts]
        told = [entry for entry in self._log.entries if entry.kind in EPOCHS]
        self.calls.append(
            Call(
                body,
                usage["cache_read_input_tokens"],
                parts[-1].end,
                digests[: len(self._before)] == self._before,
                len(told) > self._told,
                self._clock.now() - self._asked >= cache.LIFETIMES["5m"],
            )
        )
        self._before, self._asked, self._told = digests, self._clock.now(), len(told)
        keep()
        answer = self.script(body)
        content = [dict(block) for block in answer.content]
        self._binding.sign(body, content)
        yield ModelReply(
            content,
            answer.stop_reason,
            Usage(
                usage["input_tokens"],
                1,
                usage["cache_read_input_tokens"],
                usage["cache_creation_input_tokens"],
            ),
            model=request.model,
        )

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class Nothing(BaseModel):
    lines: int = 1


class Look:
    """A tool whose results age."""

    name = "look"
    description = "Look at something."
    input = Nothing
    effects: ClassVar[frozenset[Effect]] = frozenset({"read"})
    timeout_seconds = 5.0
    ages = True

    async def run(self, args: Nothing) -> str:
        return "\n".join(f"{number}: 見た the thing, in all its detail" for number in range(args.lines))


def thinking() -> Json:
    return {"type": "thinking", "thinking": "hm", "signature": ""}


def wanderer(rng: random.Random, *, longest: int = 30, think: bool = True) -> Callable[[Json], ModelReply]:
    """A script of random steps, some of them long; it comes to an end after a few."""
    steps = itertools.count()

    def answer(_: Json) -> ModelReply:
        mind = [thinking()] if think and rng.random() < 0.7 else []
        step = next(steps)
        roll = rng.random()
        if roll < 0.35 and step % 7:
            calls = [
                tool_use("look", lines=rng.choice([1, 3, 40]))
                for _ in range(rng.choice([1, 2, 4, 9, longest]))
            ]
            return reply(*mind, text("I look. 👀"), *calls)
        if roll < 0.45:
            return reply(*mind, tool_use("chat_load_history", limit=rng.choice([1, 5, 20])))
        if roll < 0.5:
            return reply(*mind, text("The answer is long, and so "), stop_reason="max_tokens")
        if roll < 0.75:
            return reply(*mind, tool_use("chat_send", text=f"返事 {step}"))
        return reply(
            *mind, *(text(f"part {part} of the answer") for part in range(rng.choice([1, 1, 3, 18])))
        )

    return answer
