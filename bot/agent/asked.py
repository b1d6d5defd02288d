"""What is written down of each request to the model, so that the very bytes can be made again: all that no other line of
the transcript tells. What stands before the messages is named by its digests, since it is the same for many requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.context import blocks
from bot.contracts import Json, Message, ModelReply, ModelRequest, Redact
from bot.history import frames
from bot.llm import body
from bot.llm.log import usage_object

KEY = "asked"
"""The place of a request in the data of its line."""
PARTS = "parts"
"""Beside it what only this chat has, the first time that it is used; by digest."""
ANSWERED = "answered"
"""The place of what is known of an answer that left no message."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before the messages, by digest: `shared` with other chats, or the chat's `own`."""

    system: tuple[str, ...] = ()
    tools: str | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)


NOTHING = Frame()


def frame(system: Sequence[Json], tools: Sequence[Json], redact: Redact) -> Frame:
    """The parts of a prompt as they are kept, without our secrets. The last part of the system prompt is the chat's own
    (`bot.context.prompt.system_blocks`).
    """
    names = [frames.digest(block) for block in system]
    clean = dict(zip(names, blocks.redacted(system, redact), strict=True))
    own = {names[-1]: clean.pop(names[-1])} if names else {}
    if not tools:
        return Frame(tuple(names), None, clean, own)
    listed = list(tools)
    name = frames.digest(listed)
    return Frame(tuple(names), name, clean | {name: blocks.redacted(listed, redact)}, own)


def record(
    request: ModelRequest, step_id: str, before: Frame, *, tail: Sequence[Message], paused: bool
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
    """What an answer cost: tokens, and US dollars where the price is known."""
    return {"usage": usage_object(reply.usage), "costUsd": reply.cost_usd}
