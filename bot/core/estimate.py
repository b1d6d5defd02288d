"""Estimates token counts. A plain estimate follows the rates of Claude's tokenizer. `Estimator` multiplies this
estimate by the model's ratio, which it learns from the usage of the model's answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from bot.contracts.base import Json, Message
from bot.contracts.model import ATTACHED, InMemoryLearned, Learned, ModelRequest, Usage
from bot.core import blocks
from bot.identity_cache import MessageFact

ASCII_PER_TOKEN, DATA_PER_TOKEN, NARROW_PER_TOKEN, OPAQUE_PER_TOKEN = 3.3, 2.8, 2.0, 4.0
"""Characters per token: for ASCII prose, for JSON and code, for alphabets such as Cyrillic, Arabic, Hebrew and accented
Latin, and for content that the provider encrypted.
"""
BLOCK_TOKENS, CALL_TOKENS, TOOL_TOKENS, IMAGE_TOKENS = 4, 12, 16, 1_600
"""Tokens added to those of the content: for each block, tool call or result, and tool definition. The last value is the
number of tokens of the largest image.
"""
_WIDE = re.compile("[\u2e80-\U0010ffff]+")
_ASCII = re.compile("[\x00-\x7f]+")


def text_tokens(text: str, per_token: float = ASCII_PER_TOKEN) -> float:
    if text.isascii():
        code = sum(map(len, text.split("```")[1::2])) if per_token != DATA_PER_TOKEN else 0
        return code / DATA_PER_TOKEN + (len(text) - code) / per_token
    wide = sum(map(len, _WIDE.findall(text)))
    narrow = len(text) - wide - sum(map(len, _ASCII.findall(text)))
    return wide + narrow / NARROW_PER_TOKEN + (len(text) - wide - narrow) / per_token


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
        case "thinking" | "compaction" as kind:
            count = text_tokens(str(block.get("content" if kind == "compaction" else "thinking") or ""))
        case "redacted_thinking":
            count = len(str(block.get("data") or "")) / OPAQUE_PER_TOKEN
        case "image":
            count = IMAGE_TOKENS
        case kind if kind == ATTACHED:
            count = float(block["tokens"])
        case _:
            count = data_tokens(blocks.unmarked(block))
    return BLOCK_TOKENS + count


def _part_tokens(part: Json) -> float:
    if "role" in part:
        return sum(map(block_tokens, part["content"]))
    if "input_schema" in part:
        return TOOL_TOKENS + data_tokens(blocks.unmarked(part))
    return block_tokens(part)


_TOKENS = MessageFact[Json, float](_part_tokens)
"""Cache of token estimates by object. It helps because successive requests contain the same objects."""


def tokens(parts: Iterable[Message | Json]) -> float:
    """Return the estimated tokens of messages, system blocks and tool definitions. They must not change later."""
    return sum(_TOKENS.each(parts))


SMALLEST_SAMPLE, RATIOS = 200, (0.25, 4.0)
"""Min tokens of a request to learn from, and range of plausible ratios. Any other ratio is ignored."""
JUMP, SLOWEST = 1.5, 0.1
"""Max factor by which one answer changes the ratio, and min weight of one answer. The first answers weigh more."""


class Estimator:
    """Multiplies the plain token estimate by the model's ratio. `learned` stores the ratios."""

    def __init__(self, learned: Learned | None = None) -> None:
        self._learned = InMemoryLearned() if learned is None else learned
        self._ratios: dict[str, tuple[float, float]] = {}
        """Each model's ratio, and the number of answers from which it was learned."""

    def ratio(self, model: str) -> float:
        """Return actual tokens divided by estimated tokens; 1.0 for a model that has not answered yet."""
        if model not in self._ratios:
            low, high = RATIOS
            ratio = self._learned.get(model, "tokenRatio") or 0.0
            known = low <= ratio <= high
            self._ratios[model] = (ratio, self._learned.get(model, "answers") or 1.0) if known else (1.0, 0.0)
        return self._ratios[model][0]

    def tokens(self, model: str, *parts: Iterable[Message | Json]) -> int:
        return round(sum(map(tokens, parts)) * self.ratio(model))

    def request(self, request: ModelRequest) -> int:
        return self.tokens(request.model, request.system, request.tools, request.messages)

    def text(self, model: str, text: str) -> int:
        return round(text_tokens(text) * self.ratio(model))

    def observe(self, request: ModelRequest, usage: Usage) -> None:
        """Learn the model's ratio from the usage of an answer. All input tokens count, cached or not."""
        actual = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        plain = sum(map(tokens, (request.system, request.tools, request.messages)))
        low, high = RATIOS
        if plain < SMALLEST_SAMPLE or not low <= actual / plain <= high:
            return
        seen = actual / plain
        ratio = self.ratio(request.model)
        answers = self._ratios[request.model][1]
        if answers:
            seen = min(max(seen, ratio / JUMP), ratio * JUMP)
        ratio += (seen - ratio) * max(SLOWEST, 1 / (answers + 1))
        self._ratios[request.model] = (ratio, answers + 1)
        self._learned.set(request.model, "tokenRatio", round(ratio, 4))
        self._learned.set(request.model, "answers", min(answers + 1, 1 / SLOWEST))
