"""Helpers for content blocks of the Messages API: queries, and the changes allowed in the view sent to the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bot import text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import ATTACHED, ShownFile
from bot.contracts.tools import ToolCall

THINKING = frozenset({"thinking", "redacted_thinking"})
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""Block types of calls to the provider's own tools; the results of such calls are in the same message."""


def unmarked(block: Json) -> Json:
    """Return the block without its cache breakpoint."""
    return {key: block[key] for key in block if key != "cache_control"} if "cache_control" in block else block


def tool_calls(content: Iterable[Json]) -> list[ToolCall]:
    """Return the tool calls in an answer of the model."""
    return [ToolCall.of(block) for block in content if block.get("type") == "tool_use"]


def is_results(message: Message) -> bool:
    """Return True if a message contains only tool results."""
    return message["role"] == "user" and all(
        block.get("type") == "tool_result" for block in message["content"]
    )


def redacted(blocks: Iterable[Json], redact: Redact) -> list[Json]:
    """Return the blocks with our secrets redacted. A thinking block that contains a secret is dropped, since
    its signature would no longer match.
    """
    clean = []
    for block in blocks:
        changed = text.deep(block, redact)
        if changed == block or block.get("type") not in THINKING:
            clean.append(changed)
    return clean


def sayable(content: Iterable[Json], *, paused: bool = False) -> list[Json]:
    """Return the blocks of an answer that the API accepts in a request: no blank text, no thinking at the
    end, no server tool call without a result. An answer with stop reason `pause_turn` (`paused`) is
    returned unchanged. The result is never empty.
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
    """Return the blocks without server tool calls that have no result, and without the thinking before such calls."""
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
    """Return the joined text blocks of a message."""
    return "".join(block["text"] for block in content if block.get("type") == "text")


def without_thinking(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without thinking blocks. Newer models reject thinking blocks once an earlier
    message has changed.
    """
    kept = []
    for message in messages:
        content = [block for block in message["content"] if block.get("type") not in THINKING]
        if len(content) == len(message["content"]):
            kept.append(message)
        elif content:
            kept.append({**message, "content": content})
    return kept


def result_ids(message: Message) -> set[str]:
    """Return the ids of the tool calls whose results are in a message."""
    return {block["tool_use_id"] for block in message["content"] if block.get("type") == "tool_result"}


def attached(shown: ShownFile) -> Json:
    """Return the content block for a file that the model is shown."""
    return {
        "type": ATTACHED,
        "artifact": shown.artifact,
        "media": shown.type,
        "size": shown.size,
        "tokens": shown.tokens,
    }


def attached_bytes(messages: Iterable[Message]) -> int:
    """Return the total bytes of the files in these messages, as encoded for sending."""
    return sum(
        -(-int(block["size"]) // 3) * 4
        for message in messages
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == ATTACHED
    )


def maskable(message: Message) -> set[str]:
    """Return the ids of the content that can be masked in a message: tool results and the artifacts of files."""
    return result_ids(message) | {
        str(block["artifact"]) for block in message["content"] if block.get("type") == ATTACHED
    }


def masked(message: Message, words: Mapping[str, str]) -> Message:
    """Return the message with tool results and files replaced by the texts in `words`, whose keys are ids as
    `maskable` returns them.
    """
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
    """Return the tool results longer than `limit` characters, shortened to their head and tail, by call id."""
    return {
        block["tool_use_id"]: text.shorten_middle(block["content"], limit)
        for message in messages
        for block in message["content"]
        if block.get("type") == "tool_result"
        and isinstance(block.get("content"), str)
        and len(block["content"]) > limit
    }


def longest_result(messages: Iterable[Message]) -> int:
    """Return the length in characters of the longest textual tool result."""
    return max(
        (
            len(block["content"])
            for message in messages
            for block in message["content"]
            if block.get("type") == "tool_result" and isinstance(block.get("content"), str)
        ),
        default=0,
    )
