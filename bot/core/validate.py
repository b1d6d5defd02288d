"""Validates requests before they are sent, by the rules of the Messages API and a few rules of our own.

Our rules: Tool results are in a separate message, since text after them teaches models to end without an
answer. The results of calls are in the very next message, although the provider would merge several messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.model import ATTACHED, ModelRequest
from bot.core import blocks, view
from bot.identity_cache import IdentityCache, MessageFact

MAX_MESSAGES = 100_000
MAX_BYTES = 32 * 1024 * 1024
USER_ONLY = frozenset({"tool_result", "image", "document", "search_result", ATTACHED})
ASSISTANT_ONLY = frozenset({"tool_use", "server_tool_use", "mcp_tool_use", *blocks.THINKING})
SERVER_CALLS = blocks.SERVER_CALLS

_ID = re.compile(r"\S+")


def validate(request: ModelRequest, *, paused: bool = False) -> None:
    """Raise `errors.RequestInvalid` with the place of the first broken rule, or `errors.RequestTooLarge`.

    `paused`: the request ends with an answer that the provider paused, and repeats that answer unchanged.
    """
    for problem in problems(request, paused=paused):
        raise errors.RequestInvalid(problem)
    _sized(request)


def problems(request: ModelRequest, *, paused: bool = False) -> Iterator[str]:
    """Yield every broken rule with its place; the size is not checked."""
    messages = request.messages
    if request.max_tokens < 1:
        yield "max_tokens: less than one"
    names = [tool.get("name") for tool in request.tools]
    if len(set(names)) < len(names):
        yield "tools: a name stands twice"
    if len(messages) > MAX_MESSAGES:
        yield f"messages: {len(messages)}, at most {MAX_MESSAGES} are allowed"
    if not messages or messages[0].get("role") != "user":
        yield "messages.0: the first message must be the user's"
    shapes = [
        problem
        for at, sound in enumerate(_SOUND.each(messages))
        if not sound
        for problem in _shape(at, messages[at])
    ]
    yield from shapes
    if not shapes:
        yield from _pairs(messages)
        yield from _server_pairs(messages, paused=paused)
        yield from _ends(messages, paused=paused or request.summarize is not None)
    yield from _breakpoints(request)


# ------------------------------------------------------------ one message


def _shape(at: int, message: Message) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in {"user", "assistant"}:
        yield f"messages.{at}: unknown role"
    if not isinstance(content, list) or not content:
        yield f"messages.{at}: no content"
        return
    for number, block in enumerate(content):
        place = f"messages.{at}.content.{number}"
        problem = block_problem(block, str(role))
        if at + number and isinstance(block, dict) and block.get("type") == "compaction":
            problem = "a summary of the provider's that is not first"
        if problem is not None:
            yield f"{place}: {problem}"
    results = sum(isinstance(block, dict) and block.get("type") == "tool_result" for block in content)
    if 0 < results < len(content):
        yield f"messages.{at}: tool results must come first, in a message of their own"


_SOUND = MessageFact[Message, bool](lambda message: not any(_shape(1, message)))
"""Results cached by object: True if a message is valid, except that rules for the first message are not checked."""


def block_problem(block: Any, role: str) -> str | None:
    """Return the fault of a block in a message of this role; None if the block is valid."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or not kind:
        return "no block"
    strange = USER_ONLY if role == "assistant" else ASSISTANT_ONLY
    if kind in strange or (role == "user" and is_server_result(block)):
        return f"{kind} in a message of the {role}"
    checked = _CHECKS.get(kind)
    return checked(block) if checked is not None else None


def _text(block: Json) -> str | None:
    words = block.get("text")
    return None if isinstance(words, str) and words.strip() else "empty text"


def _call(block: Json) -> str | None:
    # The block's content differs between providers, and it is only sent back to the provider that made it.
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        return "a tool_use without a proper id"
    if not isinstance(block.get("name"), str) or not block["name"]:
        return "a tool_use without a name"
    return None if isinstance(block.get("input"), dict) else "the input of a tool_use is no object"


def _result(block: Json) -> str | None:
    if not isinstance(block.get("tool_use_id"), str):
        return "a tool_result without an id"
    content = block.get("content", "")
    if isinstance(content, list):
        inner = (block_problem(part, "user") for part in content)
        return next((problem for problem in inner if problem is not None), None)
    return None if isinstance(content, str) else "the content of a tool_result is neither text nor blocks"


def _signed(block: Json) -> str | None:
    whole = isinstance(block.get("thinking"), str) and block.get("signature")
    return None if whole else "thinking without its signature"


def _summed(block: Json) -> str | None:
    whole = isinstance(block.get("content"), str) and block["content"].strip()
    return None if whole else "a summary of the provider's without words"


def _hidden(block: Json) -> str | None:
    return None if isinstance(block.get("data"), str) else "redacted thinking without its data"


_CHECKS = {
    "text": _text,
    "tool_use": _call,
    "tool_result": _result,
    "thinking": _signed,
    "redacted_thinking": _hidden,
    "compaction": _summed,
}


# ------------------------------------------------------------ messages together


def _pairs(messages: Sequence[Message]) -> Iterator[str]:
    """Yield violations of three rules: each tool_use is answered in the next message, each tool_result has
    its call in the message before, ids are unique.
    """
    calls: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            yield from _unanswered(at, calls)
            calls = [call.id for call in blocks.tool_calls(message["content"])]
            ids = calls + [str(b.get("id")) for b in message["content"] if b["type"] in SERVER_CALLS]
            if len(set(ids)) < len(ids) or seen & set(ids):
                yield f"messages.{at}: a tool_use id stands twice"
            seen |= set(ids)
            continue
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        if set(results) - set(calls) or len(results) > len(set(results)):
            yield f"messages.{at}: a tool_result without its tool_use"
        yield from _unanswered(at, [call for call in calls if call not in results])
        calls = []
    yield from _unanswered(len(messages), calls)


def _unanswered(at: int, calls: Sequence[str]) -> Iterator[str]:
    if calls:
        yield f"messages.{at}: {len(calls)} tool_use without tool_result"


def _server_pairs(messages: Sequence[Message], *, paused: bool) -> Iterator[str]:
    """Yield violations of the rule that the result of each server tool call follows in the same answer."""
    calls: set[str] = set()
    for at, message in enumerate(messages):
        if message["role"] == "user":
            if calls:
                yield f"messages.{at}: a server's tool_use without its result"
            calls = set()
        for block in message["content"]:
            if block["type"] in SERVER_CALLS:
                calls.add(str(block.get("id")))
            elif is_server_result(block) and message["role"] == "assistant":
                if block.get("tool_use_id") not in calls:
                    yield f"messages.{at}: a {block['type']} without its tool_use"
                calls.discard(str(block.get("tool_use_id")))
    if calls and not paused:
        yield "messages: a server's tool_use without its result"


def is_server_result(block: Json) -> bool:
    """Return True for the result of one of the provider's own tools."""
    kind = str(block.get("type"))
    return kind.endswith("_tool_result")


def _ends(messages: Sequence[Message], *, paused: bool) -> Iterator[str]:
    """Yield violations of two rules: no answer ends in thinking, and the request ends with the user unless
    the provider paused.
    """
    for at, message in enumerate(messages):
        final = at + 1 == len(messages)
        if message["role"] == "user" or (final and paused):
            continue
        last = message["content"][-1]["type"] in blocks.THINKING
        if last and (final or messages[at + 1]["role"] == "user"):
            yield f"messages.{at}: an answer that ends in thinking"
        if final:
            yield "messages: the last message must be the user's"


# ------------------------------------------------------------ the whole request


def _breakpoints(request: ModelRequest) -> Iterator[str]:
    marks = 0
    for place, block in _markable(request):
        mark = block.get("cache_control")
        if mark is None:
            continue
        marks += 1
        if block.get("type") in blocks.THINKING:
            yield f"{place}: a cache breakpoint on thinking"
        if mark not in (view.CACHE, view.HOUR):
            yield f"{place}: an unknown cache breakpoint"
    if marks > view.MOST_BREAKPOINTS:
        yield f"{marks} cache breakpoints, at most {view.MOST_BREAKPOINTS} are allowed"


def _markable(request: ModelRequest) -> Iterator[tuple[str, Json]]:
    """Yield the blocks that may carry a cache breakpoint, in cache order."""
    yield from ((f"tools.{at}", tool) for at, tool in enumerate(request.tools))
    yield from ((f"system.{at}", block) for at, block in enumerate(request.system))
    for at, message in enumerate(request.messages):
        content = message.get("content")
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                place = f"messages.{at}.content.{number}"
                inner = block.get("content")
                parts = inner if isinstance(inner, list) else ()
                yield from ((place, part) for part in parts if isinstance(part, dict))
                yield place, block


def _bytes(value: Sequence[Any] | Json) -> int:
    return len(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


_TOOLS = IdentityCache[Sequence[Json], int](_bytes)
_MESSAGE = MessageFact[Message, int](_bytes)


def _sized(request: ModelRequest) -> None:
    try:
        messages = sum(_MESSAGE.each(request.messages)) + len(request.messages)
        size = _bytes(list(request.system)) + messages + _TOOLS(request.tools)
    except (ValueError, TypeError, RecursionError) as error:
        raise errors.RequestInvalid(
            f"the request cannot be written as JSON ({type(error).__name__})"
        ) from None
    size += blocks.attached_bytes(request.messages)
    if size > MAX_BYTES:
        raise errors.RequestTooLarge(f"the request has {size} bytes, at most {MAX_BYTES} are allowed")
