"""Records each request to the model in the transcript, so that its exact bytes can be rebuilt. Text that many requests share
(system prompt, tool definitions) is stored once and named by digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.context import blocks
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import ModelReply, ModelRequest
from bot.history import frames
from bot.identity_cache import IdentityCache
from bot.llm import body
from bot.llm.log import usage_object

KEY = "asked"
"""The place of a request in the data of its line."""
PARTS = "parts"
"""Beside it what only this chat has, the first time that it is used; by digest."""
ANSWERED = "answered"
"""The place of what is known of an answer that left no message."""


@dataclass(frozen=True, slots=True)
class RequestPrefix:
    """The part of a request before its messages, by digest: `shared` with other chats, or the chat's `own`."""

    system: tuple[str, ...] = ()
    tools: str | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)


NO_PREFIX = RequestPrefix()


class PrefixBuilder:
    """Makes them, without the secrets that `redact` knows. The definitions of the tools are the same object for every chat,
    and looked at once.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._dumped = IdentityCache[Sequence[Json], str](lambda tools: _dumps(list(tools)))
        self._kept = IdentityCache[Sequence[Json], tuple[str, list[Json]]](self._part)

    def digest(self, system: Sequence[Json], tools: Sequence[Json]) -> str:
        """Digest of a request prefix."""
        dumped = f"[{_dumps(list(system))}, {self._dumped(tools)}]"
        return hashlib.sha256(dumped.encode("utf-8", "replace")).hexdigest()[:16]

    def frame(self, system: Sequence[Json], tools: Sequence[Json]) -> RequestPrefix:
        """The parts of a prompt as they are kept. The last part of the system prompt is the chat's own
        (`bot.context.prompt.system_blocks`).
        """
        names = [frames.digest(block) for block in system]
        clean = dict(zip(names, blocks.redacted(system, self._redact), strict=True))
        own = {names[-1]: clean.pop(names[-1])} if names else {}
        if not tools:
            return RequestPrefix(tuple(names), None, clean, own)
        name, part = self._kept(tools)
        return RequestPrefix(tuple(names), name, clean | {name: part}, own)

    def _part(self, tools: Sequence[Json]) -> tuple[str, list[Json]]:
        listed = list(tools)
        return frames.digest(listed), blocks.redacted(listed, self._redact)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def record(
    request: ModelRequest, step_id: str, before: RequestPrefix, *, tail: Sequence[Message], paused: bool
) -> Json:
    """The record of a request. `tail` is what it has at its end and no other, `paused` see `bot.context.validate`."""
    facts: Json = {
        "step": step_id,
        "sha256": body.digest(request),
        "model": request.model,
        "maxTokens": request.max_tokens,
        "messages": len(request.messages),
        "system": list(before.system),
        "tools": before.tools,
    }
    return facts | ({"tail": list(tail)} if tail else {}) | ({"paused": True} if paused else {})


def spent(reply: ModelReply) -> Json:
    """Return the cost of an answer: tokens, and US dollars if the price is known."""
    return {"usage": usage_object(reply.usage), "costUsd": reply.cost_usd}
