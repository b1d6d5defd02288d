"""Logs requests for operators: one line for each request, one for its answer or failure."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bot import errors, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta, Usage
from bot.identity_cache import IdentityCache, MessageFact
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context

MESSAGE_PREVIEW = 4_000
"""Characters of one message."""
TOTAL_PREVIEW = 12_000
"""Characters of all messages of one line, the newest first."""
WORTH_SHOWING = 40
_CONVERSATIONS = 1_000
"""Of which is known what their last request had."""


class LoggedModel(ModelWrapper):
    """A model whose calls are logged, each attempt by itself; `callId` links a request and its response. The line of a request
    shows the messages that the one before it in the same conversation did not have; the payload, where it is asked for, is whole.
    """

    def __init__(
        self, model: Model, *, log: Log, ids: Ids, clock: Clock, messages: bool, payload: bool = False
    ) -> None:
        super().__init__(model)
        self._log = log
        self._ids = ids
        self._clock = clock
        self._messages = messages
        self._payload = messages and payload
        # The definitions are the same object in call after call.
        self._tool_size = IdentityCache[Sequence[Json], int](_size)
        # Of the last request of each conversation, its messages by what they say.
        self._sent: OrderedDict[tuple[object, ...], list[int]] = OrderedDict()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        call = self._ids.ulid()
        started = self._clock.monotonic()
        self._request(call, request)
        told = False
        try:
            async with aclosing(self._model.stream(request)) as answer:
                async for item in answer:
                    if isinstance(item, ModelReply):
                        self._reply(call, request, item)
                        told = True
                    yield item
        except errors.ModelError as error:
            self._failure(call, request, error, self._since(started))
            told = True
            raise
        finally:
            if not told:
                self._given_up(call, request, self._since(started))

    def _since(self, started: float) -> float:
        return (self._clock.monotonic() - started) * 1000

    def _request(self, call: str, request: ModelRequest) -> None:
        details: dict[str, Any] = {
            "call_id": call,
            "model": request.model,
            "purpose": request.purpose,
            "max_tokens": request.max_tokens,
            "message_count": len(request.messages),
            "tool_count": len(request.tools),
            "characters": self._tool_size(request.tools)
            + _size(request.system)
            + sum(_SIZES.each(request.messages)),
        }
        if self._messages:
            details["messages"] = previews(request.messages, self._shared_messages(request))
        if self._payload:
            details["payload"] = {
                "model": request.model,
                "max_tokens": request.max_tokens,
                "effort": request.effort,
                "thinking": request.thinking,
                "system": list(request.system),
                "tools": list(request.tools),
                "messages": list(request.messages),
            }
        self._log.write("llm_request", f"Asking {request.model}.", **details)

    def _shared_messages(self, request: ModelRequest) -> int:
        """The number of messages with which the last request of this conversation began too."""
        running = context.current()
        of = (running.chat_key, running.task, request.purpose)
        before, now = self._sent.pop(of, []), _MARKS.each(request.messages)
        self._sent[of] = now
        if len(self._sent) > _CONVERSATIONS:
            self._sent.popitem(last=False)
        same = 0
        for one, other in zip(before, now, strict=False):
            if one != other:
                break
            same += 1
        return same

    def _reply(self, call: str, request: ModelRequest, reply: ModelReply) -> None:
        details: dict[str, Any] = {
            "call_id": call,
            "model": reply.model,
            "purpose": request.purpose,
            "person": context.person(),
            "stop_reason": reply.stop_reason,
            "usage": usage_object(reply.usage),
            "cost_usd": reply.cost_usd,
            "latency_ms": reply.latency_ms,
            "first_token_ms": reply.first_token_ms,
            "provider_request_id": reply.provider_request_id,
            "tool_calls": [block.get("name") for block in reply.content if block.get("type") == "tool_use"],
        }
        if reply.cut:
            details["cut"] = sorted(reply.cut)
        if self._messages:
            details["messages"] = previews([{"role": "assistant", "content": reply.content}])
            if reply.detail is not None:
                details["stop_details"] = reply.detail
        if self._payload:
            details["payload"] = {"content": reply.content}
        self._log.write(
            "llm_response",
            f"{reply.model} answered ({reply.stop_reason}).",
            duration=reply.latency_ms,
            **details,
        )

    def _failure(self, call: str, request: ModelRequest, error: errors.ModelError, elapsed: float) -> None:
        self._log.write(
            "llm_response",
            f"The model failed: {type(error).__name__}.",
            level="error",
            duration=elapsed,
            call_id=call,
            model=request.model,
            purpose=request.purpose,
            person=context.person(),
            error=type(error).__name__,
            cause=str(error),
            status=error.status,
            stop_reason=error.stop_reason,
            usage=error.usage,
            cost_usd=error.cost_usd,
            provider_request_id=error.request_id,
            latency_ms=round(elapsed),
            retry_after=getattr(error, "retry_after", None),
        )

    def _given_up(self, call: str, request: ModelRequest, elapsed: float) -> None:
        self._log.write(
            "llm_response",
            "The model's answer was not waited for.",
            level="warn",
            duration=elapsed,
            call_id=call,
            model=request.model,
            purpose=request.purpose,
            person=context.person(),
            error="Stopped",
            latency_ms=round(elapsed),
        )


def usage_of(told: Mapping[str, int]) -> Usage:
    """The usage that `usage_object` has told."""
    return Usage(told["inputTokens"], told["outputTokens"], told["cacheReadTokens"], told["cacheWriteTokens"])


def usage_object(usage: Usage) -> Json:
    """Usage in the names of the log."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
    }


def spent(reply: ModelReply) -> Json:
    """Return the cost of an answer: tokens, and US dollars if the price is known."""
    return {"usage": usage_object(reply.usage), "costUsd": reply.cost_usd}


def previews(messages: Sequence[Message], known: int = 0) -> list[Json]:
    """The newest messages as text, each cut to `MESSAGE_PREVIEW`, all of them to `TOTAL_PREVIEW`, in order; none of the first
    `known`.
    """
    shown: list[Json] = []
    left = TOTAL_PREVIEW
    for at in range(len(messages) - 1, known - 1, -1):
        if left < WORTH_SHOWING:
            break
        words = _cut(_words(messages[at].get("content")), min(MESSAGE_PREVIEW, left))
        left -= len(words)
        shown.append({"at": at, "role": messages[at].get("role"), "text": words})
    return shown[::-1]


def _cut(words: str, limit: int) -> str:
    return words if len(words) <= limit else text.head(words, limit - 1) + "…"


def _words(content: Any) -> str:
    """The content of a message as text; a little more than is shown, whatever its size."""
    if isinstance(content, str):
        return content[: MESSAGE_PREVIEW + 1]
    parts: list[str] = []
    left = MESSAGE_PREVIEW + 1
    for block in content if isinstance(content, list | tuple) else ():
        part = _block_words(block)[:left]
        parts.append(part)
        left -= len(part)
        if left <= 0:
            break
    return "\n".join(parts)


def _block_words(block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "tool_use":
        return f"[tool_use {block.get('name')}] {json.dumps(block.get('input'), ensure_ascii=False)}"
    if kind == "tool_result":
        mark = " error" if block.get("is_error") else ""
        return f"[tool_result{mark}] {_words(block.get('content'))}"
    return f"[{kind}]"


def _mark(value: Any) -> int:
    """The same number for what says the same, in this process."""
    if isinstance(value, dict):
        return hash(tuple(map(_mark, value.values())))
    return hash(tuple(map(_mark, value))) if isinstance(value, list | tuple) else hash(value)


def _size(value: Any) -> int:
    """Characters of all the strings in a request's part; cheaper than writing it as JSON."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0


_SIZES = MessageFact[Message, int](_size)
_MARKS = MessageFact[Message, int](_mark)
