"""Estimates token counts before the provider reports exact counts.

Claude's tokenizer takes about 3.3 characters of ASCII prose per token, 2.8 of JSON or code, about one CJK
character, plus a few tokens of framing per block. The plain functions give correct relative sizes, not exact
counts. `Estimator` multiplies them by a ratio per model, learned from the token usage of each answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from bot.contracts.base import Json, Message
from bot.contracts.model import ATTACHED, InMemoryLearned, Learned, ModelRequest, Usage
from bot.core import blocks
from bot.identity_cache import MessageFact

ASCII_PER_TOKEN = 3.3
DATA_PER_TOKEN = 2.8
"""Characters per token of JSON and code, including code inside ``` fences."""
NARROW_PER_TOKEN = 2.0
"""Characters per token of other scripts below the CJK blocks: Cyrillic, Arabic, Hebrew, accented Latin."""
OPAQUE_PER_TOKEN = 4.0
"""Characters per token of content that the provider encrypted."""
BLOCK_TOKENS = 4
CALL_TOKENS = 12
"""Tokens of a tool call or tool result in addition to its name, id and content."""
TOOL_TOKENS = 16
"""Tokens of a tool definition in addition to its name, description and schema."""
IMAGE_TOKENS = 1_600
"""Tokens of the largest image; the provider shrinks larger images."""

_WIDE = re.compile("[\u2e80-\U0010ffff]+")
_ASCII = re.compile("[\x00-\x7f]+")
_FENCE = re.compile("```")


def text_tokens(text: str, per_token: float = ASCII_PER_TOKEN) -> float:
    """Return the estimated tokens of text in any script."""
    if text.isascii():
        return _prose(text, per_token)
    wide = sum(map(len, _WIDE.findall(text)))
    narrow = len(text) - wide - sum(map(len, _ASCII.findall(text)))
    return wide + narrow / NARROW_PER_TOKEN + (len(text) - wide - narrow) / per_token


def _prose(text: str, per_token: float) -> float:
    """Return the estimated tokens of ASCII text with code fences."""
    if per_token == DATA_PER_TOKEN or "```" not in text:
        return len(text) / per_token
    parts = _FENCE.split(text)
    code = sum(map(len, parts[1::2]))
    return code / DATA_PER_TOKEN + (len(text) - code) / per_token


def data_tokens(value: Any) -> float:
    """Return the estimated tokens of a JSON value."""
    return text_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")), DATA_PER_TOKEN)


def block_tokens(block: Json) -> float:
    """Return the estimated tokens of a content block of any type."""
    count = _COUNTS.get(str(block.get("type")), _other)
    return BLOCK_TOKENS + count(block)


def _call(block: Json) -> float:
    return CALL_TOKENS + text_tokens(str(block.get("name"))) + data_tokens(block.get("input"))


def _other(block: Json) -> float:
    return data_tokens(blocks.unmarked(block))


def _content(content: object) -> float:
    """Return the estimated tokens of a tool result's content, which is mostly data."""
    if isinstance(content, str):
        return text_tokens(content, DATA_PER_TOKEN)
    if isinstance(content, list):
        return sum(map(block_tokens, content))
    return 0.0


_COUNTS: dict[str, Callable[[Json], float]] = {
    "text": lambda block: text_tokens(block["text"]),
    "tool_use": _call,
    "tool_result": lambda block: CALL_TOKENS + _content(block.get("content")),
    "thinking": lambda block: text_tokens(str(block.get("thinking") or "")),
    "compaction": lambda block: text_tokens(str(block.get("content") or "")),
    "redacted_thinking": lambda block: len(str(block.get("data") or "")) / OPAQUE_PER_TOKEN,
    "image": lambda _: IMAGE_TOKENS,
    ATTACHED: lambda block: float(block["tokens"]),
}


def _part_tokens(part: Json) -> float:
    """Return the estimated tokens of a message, a system block or a tool definition."""
    if "role" in part:
        return tokens([part])
    return tool_tokens(part) if "input_schema" in part else block_tokens(part)


_TOKENS = MessageFact[Json, float](_part_tokens)
"""Token estimates cached by object, since messages, system blocks and tool definitions are the same objects
in every call.
"""


def tokens(messages: Iterable[Message]) -> float:
    """Return the estimated tokens of messages."""
    return sum(block_tokens(block) for message in messages for block in message["content"])


def tool_tokens(tool: Json) -> float:
    """Return the estimated tokens of a tool definition."""
    return TOOL_TOKENS + data_tokens(blocks.unmarked(tool))


def frame_tokens(system: Iterable[Json], tools: Iterable[Json]) -> float:
    """Return the estimated tokens of the system prompt and the tool definitions."""
    return sum(map(block_tokens, system)) + sum(map(tool_tokens, tools))


SMALLEST_SAMPLE = 200
"""Min tokens of a request to learn from; in smaller requests the framing dominates."""
RATIOS = (0.25, 4.0)
"""Range of plausible ratios. A ratio outside this range means that the prompt was cut or that the provider
counted something else.
"""
JUMP = 1.5
"""Max factor by which one answer changes a model's token ratio."""
SLOWEST = 0.1
"""Min weight of one answer in the learned ratio; the first answers have a higher weight."""


class Estimator:
    """Token estimates for particular models: the plain estimate times a learned ratio.

    `learned` keeps the ratios. Sizes of messages are cached, so that only messages added to a history are
    measured. A message must not change after it was measured.
    """

    def __init__(self, learned: Learned | None = None) -> None:
        self._learned = InMemoryLearned() if learned is None else learned
        self._ratios: dict[str, tuple[float, float]] = {}

    def ratio(self, model: str) -> float:
        """Return the actual divided by the estimated tokens; 1.0 for a model that has not answered yet."""
        return self._ratio(model)[0]

    def request(self, request: ModelRequest) -> int:
        """Return the estimated tokens of a request: system prompt, tools and messages."""
        return self._scaled(request.model, self._plain(request))

    def messages(self, model: str, messages: Iterable[Message]) -> int:
        """Return the estimated tokens of messages."""
        return self._scaled(model, sum(_TOKENS.each(messages)))

    def frame(self, model: str, system: Iterable[Json], tools: Iterable[Json]) -> int:
        """Return the estimated tokens of the system prompt and the tool definitions."""
        return self._scaled(model, self._frame(system, tools))

    def text(self, model: str, text: str) -> int:
        """Return the estimated tokens of text."""
        return self._scaled(model, text_tokens(text))

    def observe(self, request: ModelRequest, usage: Usage) -> None:
        """Learn the model's ratio from an answer's usage: all input tokens, cached or not."""
        actual = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        plain = self._plain(request)
        if plain < SMALLEST_SAMPLE or actual <= 0:
            return
        low, high = RATIOS
        seen = actual / plain
        if not low <= seen <= high:
            return
        ratio, answers = self._ratio(request.model)
        if answers:
            seen = min(max(seen, ratio / JUMP), ratio * JUMP)
        ratio += (seen - ratio) * max(SLOWEST, 1 / (answers + 1))
        self._ratios[request.model] = (ratio, answers + 1)
        self._learned.set(request.model, "tokenRatio", round(ratio, 4))
        self._learned.set(request.model, "answers", min(answers + 1, 1 / SLOWEST))

    def _ratio(self, model: str) -> tuple[float, float]:
        if model not in self._ratios:
            low, high = RATIOS
            ratio, answers = self._learned.get(model, "tokenRatio"), self._learned.get(model, "answers")
            sound = ratio is not None and low <= ratio <= high
            self._ratios[model] = (ratio, answers or 1.0) if sound and ratio is not None else (1.0, 0.0)
        return self._ratios[model]

    def _scaled(self, model: str, plain: float) -> int:
        return round(plain * self.ratio(model))

    def _plain(self, request: ModelRequest) -> float:
        return self._frame(request.system, request.tools) + sum(_TOKENS.each(request.messages))

    def _frame(self, system: Iterable[Json], tools: Iterable[Json]) -> float:
        return sum(_TOKENS.each(system)) + sum(_TOKENS.each(tools))
