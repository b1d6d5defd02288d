"""`RecordedModel`: a model that records each of its requests, be it of a turn, a task, a memory, a summary or a synthesis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from bot.context import blocks
from bot.contracts.base import Json
from bot.contracts.environment import Ids, Redact
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.history.transcript.requests import RequestLog, SentRequest
from bot.identity_cache import IdentityCache
from bot.llm import body
from bot.llm.log import spent
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context

_PROMPTS = 32
"""Texts of prompts of which it is remembered what they are without our secrets."""


class RecordedModel(ModelWrapper):
    """Records what is asked within the scope of a chat, under the turn and the task that the log names too. One record
    a request: what is asked again by `model` itself, after a failure that passes, is the same bytes.
    """

    def __init__(self, model: Model, requests: RequestLog, *, ids: Ids, redact: Redact) -> None:
        super().__init__(model)
        self._requests = requests
        self._ids = ids
        self._redact = redact
        # Looked at once, not at every request: they are the larger part of most.
        self._prompt = lru_cache(_PROMPTS)(redact)
        self._tools = IdentityCache[Sequence[Json], list[Json]](lambda tools: blocks.redacted(tools, redact))

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        running = context.current()
        if running.chat_key is None:
            asked = None
        else:
            asked = SentRequest(
                self._ids.ulid(),
                running.chat_key,
                running.request_id,
                running.task,
                request.purpose,
                request.model,
                partial(self._bodies, request),
            )
            self._requests.record(asked)
        async with aclosing(self._model.stream(request)) as answer:
            async for item in answer:
                if asked is not None and isinstance(item, ModelReply):
                    facts = {"stopReason": item.stop_reason} | spent(item)
                    self._requests.record_answer(asked, facts, partial(self._said, item))
                yield item

    def _bodies(self, request: ModelRequest) -> tuple[bytes, bytes]:
        """The body as it is sent, and as it is kept. Messages are without our secrets already."""
        sent = body.wire(request)
        system = blocks.redacted(request.system, self._prompt)
        tools = self._tools(request.tools)
        if system == list(request.system) and tools == list(request.tools):
            return sent, sent
        return sent, body.wire(replace(request, system=system, tools=tools))

    def _said(self, reply: ModelReply) -> list[Json]:
        """Return the answer without its thinking, which stands in the next request where it counts."""
        said = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        return blocks.redacted(said, self._redact)
