"""Small questions about messages of the model's API, and the changes the view may make to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bot import text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.inbound import ShownFile
from bot.contracts.model import ATTACHED
from bot.contracts.tools import ToolCall

THINKING = frozenset({"thinking", "redacted_thinking"})
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls of the provider's own tools, which it answers in the same message."""


def unmarked(block: Json) -> Json:
    """The block without its cache breakpoint."""
    return {key: block[key] for key in block if key != "cache_control"} if "cache_control" in block else block


def tool_calls(content: Iterable[Json]) -> list[ToolCall]:
    """The tool calls in the content of an answer."""
    return [ToolCall.of(block) for block in content if block.get("type") == "tool_use"]


def is_results(message: Message) -> bool:
    """True if a message only answers tool calls."""
    return message["role"] == "user" and all(
        block.get("type") == "tool_result" for block in message["content"]
    )


def redacted(blocks: Iterable[Json], redact: Redact) -> list[Json]:
    """The blocks without our secrets. A thinking block that holds one goes: its signature would not fit it."""
    clean = []
    for block in blocks:
        changed = text.deep(block, redact)
        if changed == block or block.get("type") not in THINKING:
            clean.append(changed)
    return clean


def sayable(content: Iterable[Json], *, paused: bool = False) -> list[Json]:
    """The blocks of an answer that may stand in a request: no blank text, no thinking at the end, no call of the
    provider's own tools without its result. One that `paused` is sent back as it came; it still says more than nothing.
    """
    kept = [block for block in content if block.get("type") != "text" or block["text"].strip()]
    if not paused:
        kept = without_open_calls(kept)
    if paused and any(block.get("type") not in THINKING for block in kept):
        return kept
    while kept and kept[-1].get("type") in THINKING:
        kept.pop()
    return kept


def without_open_calls(content: Iterable[Json]) -> list[Json]:
    """The blocks without the calls of the provider's own tools that have no result, and without what was thought
    behind them.
    """
    blocks = list(content)
    answered = {block.get("tool_use_id") for block in blocks}
    kept, gone = [], False
    for block in blocks:
        if block.get("type") in SERVER_CALLS and block.get("id") not in answered:
            gone = True
        elif not gone or block.get("type") not in THINKING:
            kept.append(block)
    return kept


def plain_text(content: Iterable[Json]) -> str:
    """The text blocks of a message, joined."""
    return "".join(block["text"] for block in content if block.get("type") == "text")


def without_thinking(messages: Iterable[Message]) -> list[Message]:
    """The messages without their thinking blocks, which newer models refuse behind a changed position."""
    kept = []
    for message in messages:
        content = [block for block in message["content"] if block.get("type") not in THINKING]
        if len(content) == len(message["content"]):
            kept.append(message)
        elif content:
            kept.append({**message, "content": content})
    return kept


def result_ids(message: Message) -> set[str]:
    """The ids of the tool calls that a message answers."""
    return {block["tool_use_id"] for block in message["content"] if block.get("type") == "tool_result"}


def attached(shown: ShownFile) -> Json:
    """The block that stands for a file which the model is shown."""
    return {
        "type": ATTACHED,
        "artifact": shown.artifact,
        "media": shown.type,
        "size": shown.size,
        "tokens": shown.tokens,
    }


def attached_bytes(messages: Iterable[Message]) -> int:
    """Bytes of the files in these messages as they are sent."""
    return sum(
        -(-int(block["size"]) // 3) * 4
        for message in messages
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == ATTACHED
    )


def maskable(message: Message) -> set[str]:
    """The ids of what can be masked in a message: the calls that it answers, and the artifacts of files that it shows."""
    return result_ids(message) | {
        str(block["artifact"]) for block in message["content"] if block.get("type") == ATTACHED
    }


def masked(message: Message, words: Mapping[str, str]) -> Message:
    """The message with other `words`, by the ids of `maskable`, in place of what tools returned and of files."""
    if words.keys().isdisjoint(maskable(message)):
        return message
    return {**message, "content": [_masked(block, words) for block in message["content"]]}


def _masked(block: Json, words: Mapping[str, str]) -> Json:
    if block.get("type") == "tool_result" and block["tool_use_id"] in words:
        return {**block, "content": words[block["tool_use_id"]]}
    if block.get("type") == ATTACHED and block["artifact"] in words:
        return {"type": "text", "text": words[block["artifact"]]}
    return block


def shortened_results(messages: Iterable[Message], limit: int) -> dict[str, str]:
    """Return tool results of more than `limit` characters, cut to that many with head and tail kept, by id of the call."""
    return {
        block["tool_use_id"]: text.shorten_middle(block["content"], limit)
        for message in messages
        for block in message["content"]
        if block.get("type") == "tool_result"
        and isinstance(block.get("content"), str)
        and len(block["content"]) > limit
    }


def longest_result(messages: Iterable[Message]) -> int:
    """Characters of the longest textual tool result; 0 where there is none."""
    return max(
        (
            len(block["content"])
            for message in messages
            for block in message["content"]
            if block.get("type") == "tool_result" and isinstance(block.get("content"), str)
        ),
        default=0,
    )
