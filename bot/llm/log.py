"""Logs each request to the model and the answer or failure that follows."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bot import errors, text
from bot.contracts.base import Json, Level, Message
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta, Usage
from bot.identity_cache import MessageFact
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context

MESSAGE_PREVIEW = 4_000
"""Max characters that are logged of one message."""
TOTAL_PREVIEW = 12_000
"""Max characters that are logged of all messages in one log line. The newest messages are logged first."""
MIN_PREVIEW = 40
"""Min characters that must be left in `TOTAL_PREVIEW` for another message to be logged."""
_CONVERSATIONS = 1_000
"""Max conversations whose last request is remembered."""


class LoggedModel(ModelWrapper):
    """A model whose calls are logged. Each attempt has its own log lines; `callId` connects a request with
    its response.

    The log line of a request has only the messages that the conversation's previous request did not have.
    With `payload` the whole request is logged.
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
        # Hashes of the messages of each conversation's last request.
        self._sent: OrderedDict[tuple[object, ...], list[int]] = OrderedDict()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        call = self._ids.ulid()
        started = self._clock.monotonic()
        self._request(call, request)
        logged = False
        try:
            async with aclosing(self._model.stream(request)) as answer:
                async for item in answer:
                    if isinstance(item, ModelReply):
                        self._reply(call, request, item)
                        logged = True
                    yield item
        except errors.ModelError as error:
            logged = True
            self._no_reply(
                call,
                request,
                f"The model failed: {type(error).__name__}.",
                "error",
                started,
                error=type(error).__name__,
                cause=str(error),
                status=error.status,
                stop_reason=error.stop_reason,
                usage=error.usage,
                cost_usd=error.cost_usd,
                provider_request_id=error.request_id,
                retry_after=getattr(error, "retry_after", None),
            )
            raise
        finally:
            if not logged:
                self._no_reply(call, request, "The call was cancelled.", "warn", started, error="Stopped")

    def _request(self, call: str, request: ModelRequest) -> None:
        details: dict[str, Any] = {
            "call_id": call,
            "model": request.model,
            "purpose": request.purpose,
            "max_tokens": request.max_tokens,
            "message_count": len(request.messages),
            "tool_count": len(request.tools),
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
        """Return how many leading messages the request shares with the conversation's last request."""
        running = context.current()
        conversation = (running.chat_key, running.task, request.purpose)
        before, now = self._sent.pop(conversation, []), _HASHES.each(request.messages)
        self._sent[conversation] = now
        if len(self._sent) > _CONVERSATIONS:
            self._sent.popitem(last=False)
        changed = (at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new)
        return next(changed, min(len(before), len(now)))

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
        words = f"{reply.model} answered ({reply.stop_reason})."
        self._log.write("llm_response", words, duration=reply.latency_ms, **details)

    def _no_reply(
        self, call: str, request: ModelRequest, words: str, level: Level, started: float, **details: Any
    ) -> None:
        elapsed = (self._clock.monotonic() - started) * 1000
        self._log.write(
            "llm_response",
            words,
            level=level,
            duration=elapsed,
            call_id=call,
            model=request.model,
            purpose=request.purpose,
            person=context.person(),
            latency_ms=round(elapsed),
            **details,
        )


def usage_of(logged: Mapping[str, int]) -> Usage:
    """Return the `Usage` of a logged object; the inverse of `usage_object`."""
    return Usage(
        logged["inputTokens"], logged["outputTokens"], logged["cacheReadTokens"], logged["cacheWriteTokens"]
    )


def usage_object(usage: Usage) -> Json:
    """Return a `Usage` as an object with the log's field names."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
    }


def spent(reply: ModelReply) -> Json:
    """Return the tokens of an answer, and the cost in US dollars if the price is known."""
    return {"usage": usage_object(reply.usage), "costUsd": reply.cost_usd}


def previews(messages: Sequence[Message], known: int = 0) -> list[Json]:
    """Return the newest messages after the first `known` as shortened texts, in order."""
    shown: list[Json] = []
    left = TOTAL_PREVIEW
    for at in range(len(messages) - 1, known - 1, -1):
        if left < MIN_PREVIEW:
            break
        words, limit = _words(messages[at].get("content")), min(MESSAGE_PREVIEW, left)
        if len(words) > limit:
            words = text.head(words, limit - 1) + "…"
        left -= len(words)
        shown.append({"at": at, "role": messages[at].get("role"), "text": words})
    return shown[::-1]


def _words(content: Any) -> str:
    """Return the beginning of a message's content as text. The text has one character more than is logged,
    to show that it was cut.
    """
    if isinstance(content, str):
        return content[: MESSAGE_PREVIEW + 1]
    parts: list[str] = []
    left = MESSAGE_PREVIEW + 1
    for block in content if isinstance(content, list | tuple) else ():
        parts.append(_block_words(block)[:left])
        left -= len(parts[-1])
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


def _hash(value: Any) -> int:
    """Return a hash of a JSON value. Equal values have equal hashes within this process."""
    if isinstance(value, dict):
        return hash(tuple(map(_hash, value.values())))
    return hash(tuple(map(_hash, value))) if isinstance(value, list | tuple) else hash(value)


_HASHES = MessageFact[Message, int](_hash)
