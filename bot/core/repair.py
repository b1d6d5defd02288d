"""Repairs message histories that the provider would reject, e.g. after importing an old file.

Pure and idempotent; a valid history is returned unchanged. Text is kept if possible: an answer whose question
is missing stays, after a line that says so.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.contracts.provenance import ORIGIN, unpacked
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, view
from bot.core.validate import SERVER_CALLS, block_problem, is_server_result, validate

UNANSWERED = "Interrupted by a restart: nothing is known of this call. It may have run, or not."
LOST = "(A message that stood here could not be read.)"
GO_ON = "Please go on."


def sound(request: ModelRequest, *, paused: bool = False) -> tuple[ModelRequest, str | None]:
    """Return a request that can be sent, and a description of the repaired fault (None if there was none).
    `paused`: see `validate`.

    Raises `errors.RequestInvalid` if the fault is not in the messages, and `errors.RequestTooLarge`.
    """
    try:
        validate(request, paused=paused)
    except errors.RequestInvalid as error:
        messages = mended([_unmarked(message) for message in request.messages])
        if not messages or messages[-1]["role"] == "assistant":
            messages.append(_user(GO_ON if messages else LOST))
        system, shown = view.placed(request.system, messages, 0)
        request = replace(request, system=system, messages=shown)
        validate(request)
        return request, str(error)
    return request, None


def mended(messages: Iterable[Message]) -> list[Message]:
    """Return messages that the provider accepts; the last one may be the assistant's."""
    before, known = list(messages), set[str]()
    clean = [message for raw in before for message in _clean(raw, known)]
    kept: list[Message] = []
    runs = [list(run) for _, run in itertools.groupby(clean, key=lambda message: message["role"])]
    calls: list[ToolCall] = []
    for run in runs:
        if run[0]["role"] == "assistant":
            answer = _answer(run)
            calls = blocks.tool_calls(answer[-1]["content"]) if answer else []
            kept += answer
        else:
            kept += _answered(run, calls)
            calls = []
    if calls:
        kept.append(_results(calls, {}))
    if kept and kept[0]["role"] == "assistant":
        kept.insert(0, _user(LOST))
    return _without_loose_thinking(before, kept)


# ------------------------------------------------------------ one message


def _clean(message: Message, seen: set[str]) -> Iterator[Message]:
    """Yield a message without invalid blocks. A message that mixed tool results and other content is split in two."""
    role, content = message.get("role"), message.get("content")
    if role not in {"user", "assistant"}:
        return
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return
    kept = [block for block in content if block_problem(block, role) is None and _first(block, seen)]
    results = [block for block in kept if block["type"] == "tool_result"]
    if 0 < len(results) < len(kept):
        yield {**message, "content": results}
        yield {**message, "content": [block for block in kept if block["type"] != "tool_result"]}
    elif kept and content is message["content"] and len(kept) == len(content):
        yield message
    elif kept:
        yield {**message, "content": kept}


def _first(block: Json, seen: set[str]) -> bool:
    """Return False for a tool call whose id occurred before."""
    if block["type"] != "tool_use" and block["type"] not in SERVER_CALLS:
        return True
    name = str(block.get("id"))
    new = name not in seen
    seen.add(name)
    return new


# ------------------------------------------------------------ answers of the assistant


def _answer(run: Sequence[Message]) -> list[Message]:
    """Return the messages of one answer. Messages with tool calls are merged, and server tool calls without
    a result are dropped.
    """
    messages = list(run)
    if any(blocks.tool_calls(message["content"]) for message in messages[:-1]):
        content = [block for message in messages for block in message["content"]]
        told = [unpacked(message[ORIGIN]) for message in messages if ORIGIN in message]
        origin = {ORIGIN: functools.reduce(operator.or_, told).packed()} if told else {}
        messages = [{**messages[0], **origin, "content": content}]
    messages = _server_pairs(messages)
    while messages:
        last = messages.pop()
        content = blocks.sayable(last["content"])
        if len(content) == len(last["content"]):
            return [*messages, last]
        if content:
            return [*messages, {**last, "content": content}]
    return []


def _server_pairs(messages: Sequence[Message]) -> list[Message]:
    asked: dict[str, int] = {}
    paired: set[int] = set()
    for at, block in enumerate(block for message in messages for block in message["content"]):
        if block["type"] in SERVER_CALLS:
            asked[str(block.get("id"))] = at
        elif is_server_result(block) and str(block.get("tool_use_id")) in asked:
            paired |= {asked.pop(str(block["tool_use_id"])), at}
        elif not is_server_result(block):
            paired.add(at)
    places = itertools.count()
    return _filtered(messages, lambda _: next(places) in paired)


# ------------------------------------------------------------ user messages after an answer


def _answered(run: Sequence[Message], calls: Sequence[ToolCall]) -> list[Message]:
    """Return the user messages after these calls. The first message contains exactly one result per call."""
    found: dict[str, Json] = {}
    for message in run:
        for block in message["content"]:
            if block["type"] == "tool_result":
                found.setdefault(block["tool_use_id"], block)
    if not calls:
        return _spoken(run)
    given = [str(block.get("tool_use_id")) for block in run[0]["content"]]
    if sorted(given) == sorted(call.id for call in calls):
        return [run[0], *_spoken(run[1:])]
    return [_results(calls, found), *_spoken(run)]


def _spoken(run: Sequence[Message]) -> list[Message]:
    return _filtered(run, lambda block: block["type"] != "tool_result")


def _results(calls: Sequence[ToolCall], found: dict[str, Json]) -> Message:
    content = [found.get(call.id) or ToolResult(call.id, UNANSWERED, failed=True).block for call in calls]
    return {"role": "user", "content": content}


# ------------------------------------------------------------ the whole history


def _without_loose_thinking(before: Sequence[Message], after: Sequence[Message]) -> list[Message]:
    """Drop thinking at and after the first repaired message."""
    same = 0
    while same < min(len(before), len(after)) and before[same] is after[same]:
        same += 1
    if same == len(before) == len(after):
        return list(after)
    return [*after[:same], *blocks.without_thinking(after[same:])]


def _filtered(messages: Sequence[Message], stays: Callable[[Json], bool]) -> list[Message]:
    """Return the messages with only the accepted blocks; messages that become empty are dropped."""
    kept = []
    for message in messages:
        content = [block for block in message["content"] if stays(block)]
        if len(content) == len(message["content"]):
            kept.append(message)
        elif content:
            kept.append({**message, "content": content})
    return kept


def _unmarked(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [blocks.unmarked(b) if isinstance(b, dict) else b for b in content]}


def _user(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}
