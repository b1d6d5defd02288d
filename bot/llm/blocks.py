"""Content blocks of the Messages API: functions that inspect them, return copies with blocks changed or left out, and
estimate tokens. Estimates assume that a token has as many characters as with Claude's tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot import text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import ATTACHED, ShownFile
from bot.contracts.tools import ToolCall
from bot.identity_cache import IdentityCache

CACHE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
"""Cache breakpoints for five minutes, and for an hour."""
THINKING = frozenset({"thinking", "redacted_thinking"})
LONGEST_OVERLAP, LEAST_OVERLAP, LEAST_VARIED = 4_000, 12, 4
"""The second part of an answer may begin by repeating the end of the first. Max characters, min UTF-8 bytes and min different
characters of such a repetition. A shorter repetition, or a line of dashes, may be chance. Bytes are counted because four
Chinese characters say as much as twelve letters.
"""
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
"""Block types of calls to tools that the provider runs. Such a call and its result are in the same message."""


def unmarked(block: Json) -> Json:
    return {key: block[key] for key in block if key != "cache_control"} if "cache_control" in block else block


def tool_calls(content: Iterable[Json]) -> list[ToolCall]:
    return [ToolCall.of(block) for block in content if block.get("type") == "tool_use"]


def redacted(blocks: Iterable[Json], redact: Redact) -> list[Json]:
    """Return the blocks with secrets redacted. Drop thinking blocks with a secret, because they are signed."""
    clean = []
    for block in blocks:
        changed = text.deep(block, redact)
        if changed == block or block.get("type") not in THINKING:
            clean.append(changed)
    return clean


def sayable(content: Iterable[Json], *, paused: bool = False) -> list[Json]:
    """Return the blocks of an answer that the API accepts in a request. Keep provider tool calls without a result only if
    `paused` is True.
    """
    kept = [block for block in content if block.get("type") != "text" or block["text"].strip()]
    if not paused:
        kept = without_open_calls(kept)
    elif any(block.get("type") not in THINKING for block in kept):
        return kept
    while kept and kept[-1].get("type") in THINKING:
        kept.pop()
    return kept


def without_open_calls(content: Sequence[Json]) -> list[Json]:
    """Return the blocks, but leave out provider tool calls that have no result, and all thinking after the first such call."""
    answered = {block.get("tool_use_id") for block in content}
    kept, gone = list[Json](), False
    for block in content:
        if block.get("type") in SERVER_CALLS and block.get("id") not in answered:
            gone = True
        elif not gone or block.get("type") not in THINKING:
            kept.append(block)
    return kept


def joined(first: Sequence[Json], second: Sequence[Json]) -> list[Json]:
    """Merge an answer with its continuation. If `second` begins with a repetition of the end of `first`, drop the repetition."""
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
    lengths = range(min(len(end), len(begin)), 0, -1)
    length = next((one for one in lengths if end.endswith(begin[:one])), 0)
    again, before, after = begin[:length], end[: len(end) - length], begin[length:]
    # Equal lines in a row, such as closing tags, belong to the answer, so they are kept.
    in_a_row = before.rstrip().endswith(again.strip()) or after.lstrip().startswith(again.strip())
    long = len(again.encode(errors="replace")) >= LEAST_OVERLAP and len(set(again)) >= LEAST_VARIED
    return length if long and not in_a_row else 0


def plain_text(content: Iterable[Json]) -> str:
    return "".join(block["text"] for block in content if block.get("type") == "text")


def without_thinking(messages: Iterable[Message]) -> list[Message]:
    """Return the messages without thinking blocks. Newer models reject thinking blocks after an earlier message has changed."""
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


# ------------------------------------------------------------ tokens

ASCII_PER_TOKEN, DATA_PER_TOKEN, NARROW_PER_TOKEN, OPAQUE_PER_TOKEN = 3.3, 2.8, 2.0, 4.0
"""Characters per token: for ASCII prose, for JSON and code, for alphabets such as Cyrillic, Arabic, Hebrew and accented
Latin, and for content that the provider encrypted.
"""
BLOCK_TOKENS, CALL_TOKENS, TOOL_TOKENS, IMAGE_TOKENS = 4, 12, 16, 1_600
"""Tokens added for each block, for each tool call or result, and for each tool definition; and tokens of the largest image."""
_WIDE = re.compile("[\u2e80-\U0010ffff]+")
_ASCII = re.compile("[\x00-\x7f]+")


def text_tokens(words: str, per_token: float = ASCII_PER_TOKEN) -> float:
    if words.isascii():
        code = sum(map(len, words.split("```")[1::2])) if per_token != DATA_PER_TOKEN else 0
        return code / DATA_PER_TOKEN + (len(words) - code) / per_token
    wide = sum(map(len, _WIDE.findall(words)))
    narrow = len(words) - wide - sum(map(len, _ASCII.findall(words)))
    return wide + narrow / NARROW_PER_TOKEN + (len(words) - wide - narrow) / per_token


def data_tokens(value: Any) -> float:
    return text_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")), DATA_PER_TOKEN)


def block_tokens(block: Json) -> float:
    match block.get("type"):
        case "text":
            count = text_tokens(block["text"])
        case "tool_use":
            count = CALL_TOKENS + text_tokens(str(block.get("name"))) + data_tokens(block.get("input"))
        case "tool_result":
            content = block.get("content") or ""
            plain = isinstance(content, str)
            count = CALL_TOKENS + (
                text_tokens(content, DATA_PER_TOKEN) if plain else sum(map(block_tokens, content))
            )
        case "thinking":
            count = text_tokens(str(block.get("thinking") or ""))
        case "redacted_thinking":
            count = len(str(block.get("data") or "")) / OPAQUE_PER_TOKEN
        case "image":
            count = IMAGE_TOKENS
        case kind if kind == ATTACHED:
            count = float(block["tokens"])
        case _:
            count = data_tokens(unmarked(block))
    return BLOCK_TOKENS + count


def _part_tokens(part: Json) -> float:
    if "role" in part:
        return sum(map(block_tokens, part["content"]))
    if "input_schema" in part:
        return TOOL_TOKENS + data_tokens(unmarked(part))
    return block_tokens(part)


_TOKENS = IdentityCache[Json, float](_part_tokens)
"""Cache of token estimates by object. The cache helps because successive requests contain the same objects."""


def tokens(parts: Iterable[Message | Json]) -> float:
    """Return the estimated tokens of messages, system blocks and tool definitions. The caller must not change these objects
    later, because the estimates are cached.
    """
    return sum(_TOKENS.each(parts))
