"""The view: what is sent of what is kept.

Same store, same turn, same epoch: byte-identical request. It changes by appending only, but at the start of an
epoch (`bot.agent.epochs`). Where the breakpoints for the provider's cache stand: `bot.context.breakpoints`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot import errors
from bot.context import blocks, breakpoints
from bot.contracts import Json, Message, ModelRequest

MAX_BREAKPOINTS = breakpoints.MOST


def render(
    *,
    model: str,
    max_tokens: int,
    system: Sequence[Json],
    tools: Sequence[Json],
    history: Sequence[Message],
    injected: Sequence[Message],
    current: Sequence[Message],
) -> ModelRequest:
    """One request: history, injected older turns, then the current turn. Raises `errors.RequestInvalid`."""
    messages = [*history, *injected, *current]
    shown_system, shown = breakpoints.placed(system, messages, len(history))
    request = ModelRequest(
        model=model, max_tokens=max_tokens, system=shown_system, tools=tuple(tools), messages=shown
    )
    validate(request)
    return request


def validate(request: ModelRequest) -> None:
    """Refuse what the provider would refuse. Raises `errors.RequestInvalid` that names the place.

    The rules are those of the Messages API: first message by the user, only user and assistant, no empty content
    or text, every tool_use answered in the next message and every tool_result asked for in the one before,
    results before other blocks, ids unique, at most four breakpoints.
    """
    if not request.messages or request.messages[0]["role"] != "user":
        raise errors.RequestInvalid("messages.0: the first message must be the user's")
    open_calls: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(request.messages):
        _check_content(at, message)
        if message["role"] == "assistant":
            _require_answered(at, open_calls)
            open_calls = [call["id"] for call in blocks.tool_uses(message)]
            if len(set(open_calls)) < len(open_calls) or seen & set(open_calls):
                raise errors.RequestInvalid(f"messages.{at}: a tool_use id stands twice")
            seen |= set(open_calls)
        else:
            open_calls = _check_results(at, message, open_calls)
    _require_answered(len(request.messages), open_calls)
    marks = sum(
        "cache_control" in block
        for source in (request.tools, request.system, *(m["content"] for m in request.messages))
        for block in source
    )
    if marks > MAX_BREAKPOINTS:
        raise errors.RequestInvalid(f"{marks} cache breakpoints, at most {MAX_BREAKPOINTS} are allowed")


def _check_content(at: int, message: Message) -> None:
    if message["role"] not in {"user", "assistant"}:
        raise errors.RequestInvalid(f"messages.{at}: unknown role")
    if not message["content"]:
        raise errors.RequestInvalid(f"messages.{at}: no content")
    for number, block in enumerate(message["content"]):
        if block.get("type") == "text" and not block["text"].strip():
            raise errors.RequestInvalid(f"messages.{at}.content.{number}: empty text")


def _check_results(at: int, message: Message, open_calls: list[str]) -> list[str]:
    """Check the results of a user message against the calls before it; returns the calls still open."""
    results = [b["tool_use_id"] for b in message["content"] if b.get("type") == "tool_result"]
    if set(results) - set(open_calls) or len(results) > len(set(results)):
        raise errors.RequestInvalid(f"messages.{at}: a tool_result without its tool_use")
    if results and any(b.get("type") != "tool_result" for b in message["content"][: len(results)]):
        raise errors.RequestInvalid(f"messages.{at}: tool results must come first")
    _require_answered(at, [call for call in open_calls if call not in results])
    return []


def _require_answered(at: int, open_calls: list[str]) -> None:
    if open_calls:
        raise errors.RequestInvalid(f"messages.{at}: {len(open_calls)} tool_use without tool_result")
