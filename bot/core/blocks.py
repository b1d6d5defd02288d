"""Functions that inspect content blocks of the Messages API, or return copies with blocks changed or left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bot import text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import ATTACHED, ShownFile
from bot.contracts.tools import ToolCall

THINKING = frozenset({"thinking", "redacted_thinking"})
LONGEST_OVERLAP, LEAST_OVERLAP, LEAST_VARIED = 4_000, 12, 4
"""Max and min characters of a repetition at the border of two parts, and its min different characters. A shorter repetition,
or one such as a line of dashes, may be chance.
"""
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""Block types of calls to tools that the provider runs. Call and result are in the same message."""


def unmarked(block: Json) -> Json:
    return {key: block[key] for key in block if key != "cache_control"} if "cache_control" in block else block


def tool_calls(content: Iterable[Json]) -> list[ToolCall]:
    return [ToolCall.of(block) for block in content if block.get("type") == "tool_use"]


def redacted(blocks: Iterable[Json], redact: Redact) -> list[Json]:
    """Return the blocks with secrets redacted. A thinking block with a secret is dropped, because it is signed."""
    clean = []
    for block in blocks:
        changed = text.deep(block, redact)
        if changed == block or block.get("type") not in THINKING:
            clean.append(changed)
    return clean


def sayable(content: Iterable[Json], *, paused: bool = False) -> list[Json]:
    """Return the blocks of an answer that the API accepts in a request. Calls without a result stay only if `paused`."""
    kept = [block for block in content if block.get("type") != "text" or block["text"].strip()]
    if not paused:
        kept = without_open_calls(kept)
    elif any(block.get("type") not in THINKING for block in kept):
        return kept
    while kept and kept[-1].get("type") in THINKING:
        kept.pop()
    return kept


def without_open_calls(content: Sequence[Json]) -> list[Json]:
    """Return the blocks without server tool calls that lack a result, and without all thinking after the first of them."""
    answered = {block.get("tool_use_id") for block in content}
    kept, gone = list[Json](), False
    for block in content:
        if block.get("type") in SERVER_CALLS and block.get("id") not in answered:
            gone = True
        elif not gone or block.get("type") not in THINKING:
            kept.append(block)
    return kept


def joined(first: Sequence[Json], second: Sequence[Json]) -> list[Json]:
    """Merge an answer with its continuation. Drop a beginning of `second` that repeats the end of `first`."""
    content = list(first)
    before = plain_text(first)
    for block in second:
        if block.get("type") != "text":
            content.append(block)
            continue
        words = block["text"][_overlap(before, block["text"]) :]
        before += words
        last = content[-1] if content else {}
        if last.keys() == block.keys() == {"type", "text"}:
            content[-1] = {"type": "text", "text": last["text"] + words}
        elif words.strip():
            content.append({**block, "text": words})
    return content


def _overlap(first: str, second: str) -> int:
    end, begin = first[-LONGEST_OVERLAP:], second[:LONGEST_OVERLAP]
    lengths = range(min(len(end), len(begin)), LEAST_OVERLAP - 1, -1)
    length = next((one for one in lengths if end.endswith(begin[:one])), 0)
    return length if len(set(begin[:length])) >= LEAST_VARIED else 0


def plain_text(content: Iterable[Json]) -> str:
    return "".join(block["text"] for block in content if block.get("type") == "text")


def without_thinking(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without thinking blocks. Newer models reject these once an earlier message has changed."""
    kept = []
    for message in messages:
        content = [block for block in message["content"] if block.get("type") not in THINKING]
        if len(content) == len(message["content"]):
            kept.append(message)
        elif content:
            kept.append({**message, "content": content})
    return kept


def attached(shown: ShownFile) -> Json:
    return {
        "type": ATTACHED,
        "artifact": shown.artifact,
        "media": shown.type,
        "size": shown.size,
        "tokens": shown.tokens,
    }


def maskable(message: Message) -> set[str]:
    """Return the ids of content that can be replaced by a placeholder: call ids of tool results, artifact ids of files."""
    ids = (block.get("tool_use_id") or block.get("artifact") for block in message["content"])
    return {str(one) for one in ids if one}


def masked(message: Message, words: Mapping[str, str]) -> Message:
    """Return the message with tool results and files replaced by placeholder texts. `words` maps ids to these texts."""
    if words.keys().isdisjoint(maskable(message)):
        return message
    content: list[Json] = []
    for block in message["content"]:
        if block.get("type") == "tool_result" and block["tool_use_id"] in words:
            content.append({**block, "content": words[block["tool_use_id"]]})
        elif block.get("type") == ATTACHED and block["artifact"] in words:
            content.append({"type": "text", "text": words[block["artifact"]]})
        else:
            content.append(block)
    return {**message, "content": content}
