"""How many tokens something will cost, before the provider has said so.

Claude's tokenizer takes about 3.3 characters of ASCII a token, about one token for each CJK character, and a
few tokens of framing for each block. The figures only have to be right in proportion: they decide which part of
a request is the large one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from bot.contracts import Json, Message

ASCII_PER_TOKEN = 3.3
BLOCK_TOKENS = 4
IMAGE_TOKENS = 1_600


def text_tokens(text: str) -> float:
    """Tokens of plain text in any script."""
    wide = sum(1 for char in text if ord(char) >= 0x2E80)
    return wide + (len(text) - wide) / ASCII_PER_TOKEN


def block_tokens(block: Json) -> float:
    """Tokens of one content block."""
    if block.get("type") == "text":
        return BLOCK_TOKENS + text_tokens(block["text"])
    if block.get("type") == "image":
        return BLOCK_TOKENS + IMAGE_TOKENS
    return BLOCK_TOKENS + text_tokens(json.dumps(block, ensure_ascii=False))


def tokens(messages: Iterable[Message]) -> float:
    """Tokens of messages."""
    return sum(block_tokens(block) for message in messages for block in message["content"])


def frame_tokens(system: Iterable[Json], tools: Iterable[Json]) -> float:
    """Tokens of what stands before the messages."""
    return sum(map(block_tokens, system)) + sum(
        BLOCK_TOKENS + text_tokens(json.dumps(tool, ensure_ascii=False)) for tool in tools
    )
