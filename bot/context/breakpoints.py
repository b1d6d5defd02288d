"""Places the cache breakpoints of a request, so that the next request finds what the provider has read.

Four places at the most: the part of the system prompt that all chats share, the part of this chat, the end of the
history, the end of the request. The cache looks 20 blocks back from each of them for what it kept before. Where a step
was longer than that, the end of the request before it is a place too, and the chat's own part gives up its own: what
stands behind it covers it. All of it follows from the messages alone, so that it is the same after a restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bot.context import blocks
from bot.contracts.base import Json, Message

CACHE = {"type": "ephemeral"}
MOST = 4
LOOK_BACK = 15
"""Blocks; the provider looks back 20, and may count some that we do not."""


def placed(
    system: Sequence[Json], messages: Sequence[Message], history: int
) -> tuple[tuple[Json, ...], tuple[Message, ...]]:
    """System and messages with their breakpoints; `history` is the number of messages that are history."""
    places = {len(messages) - 1}
    if history:
        places.add(history - 1)
    before = _asked_before(messages)
    if before is not None:
        ends = list(itertools.accumulate(len(message["content"]) for message in messages))
        if not any(0 <= ends[place] - ends[before] < LOOK_BACK for place in places):
            places.add(before)
    marked = list(messages)
    for place in places:
        marked[place] = _marked(messages[place])
    return _within(system, MOST - len(places)), tuple(marked)


def _asked_before(messages: Sequence[Message]) -> int | None:
    """The last message of the request before this one: the model answered it. None where there was none."""
    answers = (at for at in reversed(range(len(messages))) if messages[at]["role"] == "assistant")
    answer = next(answers, 0)
    return answer - 1 if answer else None


def _within(system: Sequence[Json], most: int) -> tuple[Json, ...]:
    """The blocks with the first `most` of their breakpoints."""
    kept = []
    for block in system:
        spare = "cache_control" in block and most <= 0
        most -= "cache_control" in block
        kept.append(blocks.unmarked(block) if spare else block)
    return tuple(kept)


def _marked(message: Message) -> Message:
    """The message with a breakpoint on its last block that may carry one."""
    content = list(message["content"])
    for index in range(len(content) - 1, -1, -1):
        if content[index].get("type") not in blocks.THINKING:
            content[index] = {**content[index], "cache_control": CACHE}
            return {**message, "content": content}
    return message
